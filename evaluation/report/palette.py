"""Colours and marks of the figures: one place, safe for colour-blind readers.

Okabe and Ito's palette (2008), its yellow darkened to be seen on white; marks and dashes stand
beside the colours, so that nothing rests on hue alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PINK, YELLOW, GREY = "#56B4E9", "#CC79A7", "#B8A400", "#6F7782"

#: What a stretch of time was spent on.
KIND_COLOURS: Mapping[str, str] = {
    "forward": BLUE,
    "backward": SKY,
    "recompute": ORANGE,
    "stall": RED,
    "offload": GREEN,
    "prefetch": PINK,
}
#: What a plan does with saved bytes.
ACTION_COLOURS: Mapping[str, str] = {"keep": BLUE, "swap": GREEN, "recompute": ORANGE}

_HUES = (ORANGE, GREEN, PINK, SKY, YELLOW, GREY)
_MARKS = ("square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "8px 2px 2px 2px")


@dataclass(frozen=True, slots=True)
class Look:
    """How one planner is drawn in every figure."""

    colour: str
    mark: str
    dash: str
    width: float


#: The planners that figures are about keep their look whatever else is shown.
_FIXED: Mapping[str, Look] = {
    "slackswap": Look(BLUE, "circle", "solid", 2.6),
    "slackswap+": Look(RED, "circle-open", "dash", 2.2),
}


def looks(planners: Iterable[str]) -> dict[str, Look]:
    """Return a look for each planner: equal planners, equal looks.

    Colour and dash together differ between any two of 42.
    """
    others = sorted(name for name in set(planners) if name not in _FIXED)
    found = dict(_FIXED)
    for number, name in enumerate(others):
        found[name] = Look(
            _HUES[number % len(_HUES)], _MARKS[number % len(_MARKS)],
            DASHES[number // len(_HUES) % len(DASHES)], 1.5,
        )
    return found
