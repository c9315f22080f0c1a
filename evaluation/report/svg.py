"""Pictures as SVG text: a few shapes on a white card, legible on light and dark pages alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape

from slackswap import files

INK, FAINT, RULE = "#24292f", "#6F7782", "#d5d9de"
#: Width of a letter over the size of the type; a little more than most sans-serif faces have.
_LETTER = 0.56


class Drawing:
    """An SVG picture in the making. Lengths are pixels; y grows downwards.

    Parameters
    ----------
    width, height : float
        Of the whole picture.
    title : str
        What it shows, for readers who cannot see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, *,
        hint: str = "", opacity: float = 1.0, radius: float = 0.0, stroke: str = "",
    ) -> None:
        """Draw a box; `hint` is shown under the pointer."""
        attributes = [
            f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" fill="{fill}"',
            f'fill-opacity="{_n(opacity)}"' if opacity < 1 else "",
            f'rx="{_n(radius)}"' if radius else "",
            f'stroke="{stroke}" stroke-width="1.5"' if stroke else "",
        ]
        head = "<rect " + " ".join(part for part in attributes if part)
        self._parts.append(
            f"{head}><title>{escape(hint)}</title></rect>" if hint else f"{head}/>"
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str = RULE, *,
        width: float = 1.0, dash: str = "", arrow: bool = False,
    ) -> None:
        """Draw a straight line, with an arrowhead at its end if wanted."""
        style = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" '
            f'stroke="{colour}" stroke-width="{_n(width)}"{style}/>'
        )
        if arrow:
            self._head(x1, y1, x2, y2, colour)

    def text(
        self, x: float, y: float, words: str, *, size: float = 12, anchor: str = "start",
        fill: str = INK, bold: bool = False, italic: bool = False,
    ) -> None:
        """Write one line; `anchor` is start, middle or end."""
        style = (' font-weight="600"' if bold else "") + (' font-style="italic"' if italic else "")
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}" '
            f'fill="{fill}"{style}>{escape(words)}</text>'
        )

    def path(
        self, points: Sequence[tuple[float, float]], *, stroke: str = "none", fill: str = "none",
        width: float = 1.4, opacity: float = 1.0, dash: str = "",
    ) -> None:
        """Draw a line through points, or fill what it encloses."""
        if not points:
            return
        steps = "M" + " L".join(f"{_n(x)},{_n(y)}" for x, y in points)
        style = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<path d="{steps}" stroke="{stroke}" stroke-width="{_n(width)}" fill="{fill}" '
            f'fill-opacity="{_n(opacity)}" stroke-linejoin="round"{style}/>'
        )

    def dot(self, x: float, y: float, radius: float, fill: str) -> None:
        """Draw a filled circle."""
        self._parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{fill}"/>')

    def svg(self) -> str:
        """Return the picture."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(self.width)} '
            f'{_n(self.height)}" width="{_n(self.width)}" height="{_n(self.height)}" role="img" '
            'style="max-width:100%;height:auto" '
            'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
            f"<title>{escape(self.title)}</title>"
            f'<rect width="{_n(self.width)}" height="{_n(self.height)}" rx="6" fill="#ffffff"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture, whole or not at all."""
        files.write_text(path, self.svg())

    def _head(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        if length == 0:
            return
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        back_x, back_y = x2 - 8 * ux, y2 - 8 * uy
        self.path(
            [(x2, y2), (back_x - 3.5 * uy, back_y + 3.5 * ux),
             (back_x + 3.5 * uy, back_y - 3.5 * ux)],
            fill=colour,
        )


def text_width(words: str, size: float) -> float:
    """Return about how many pixels a line of text takes."""
    return _LETTER * size * len(words)


def _n(value: float) -> str:
    """Return a length with at most two decimals, so that files stay small and equal."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
