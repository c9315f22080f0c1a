"""Writes those pages of the guide that the code itself knows best: commands, planners, devices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from slackswap import Hardware, files, load_hardware
from slackswap.cli.main import COMMANDS, _loaded, app
from slackswap.evaluation import COLUMNS
from slackswap.profiles.catalogue import Device, find_device, hardware_names
from slackswap.profiles.library import library_entries
from slackswap.quantities import format_bytes
from slackswap.schemas.documents import PUBLISHED, json_schema

_FOLDER = "_generated"
_NOTEBOOKS = "_notebooks"


def write_generated(docs: Path) -> None:
    """Write the generated pages and copy the notebooks into the folder of the guide."""
    for name, text in (
        ("cli.md", _commands()),
        ("profiles.md", _profiles()),
        ("hardware.md", _hardware()),
        ("columns.md", _columns()),
        ("schemas.md", _schemas()),
    ):
        _write(docs / _FOLDER / name, text)
    for notebook in sorted((docs.parent / "notebooks").glob("*.ipynb")):
        target = docs / _NOTEBOOKS / notebook.name
        if not target.exists() or target.read_bytes() != notebook.read_bytes():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(notebook, target)


def _write(path: Path, text: str) -> None:
    # A file that stays as it is keeps its time, so that Sphinx does not read it again.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(exist_ok=True)
        files.write_text(path, text)


def _commands() -> str:
    parts = [_help(get_command(app), "slackswap", level=2)]
    for name in COMMANDS:
        command = _loaded(name)
        parts.append(_help(command, f"slackswap {name}", level=2))
        for sub, part in getattr(command, "commands", {}).items():
            parts.append(_help(part, f"slackswap {name} {sub}", level=3))
    return "\n".join(parts)


def _help(command: Any, path: str, level: int) -> str:
    context = command.context_class(command, info_name=path, terminal_width=88)
    return f"{'#' * level} {path}\n\n```text\n{command.get_help(context)}\n```\n"


def _profiles() -> str:
    return _table(
        ("name", "source", "hardware", "what"),
        ((f"`{entry.name}`", entry.source, entry.hardware.name, entry.description)
         for entry in library_entries()),
    )


def _hardware() -> str:
    def rows() -> Iterable[Sequence[str]]:
        for name in hardware_names():
            hardware, device = load_hardware(name), find_device(name)
            yield (
                f"`{name}`",
                f"{(hardware.flops_per_s or 0) / 1e12:g}"
                + (f" {device.precision}" if device else ""),
                f"{(hardware.memory_bytes_per_s or 0) / 1e9:g}",
                format_bytes(hardware.device_bytes or 0),
                f"{hardware.d2h_bytes_per_s / 1e9:g} / {hardware.h2d_bytes_per_s / 1e9:g}"
                + (_both_ways(hardware) if hardware.contended else ""),
                device.link if device else "",
                _basis(device) if device else "",
            )

    return _table(
        ("name", "TFLOP/s", "memory, GB/s", "memory", "link out / in, GB/s", "link",
         "the link rests on"), rows()
    )


def _basis(device: Device) -> str:
    figure = device.figure("h2d_bytes_per_s")
    return f"{figure.basis}, {figure.date}: {figure.source}" if figure else ""


def _both_ways(hardware: Hardware) -> str:
    out, back = (
        rate * ppm / 1e15
        for rate, ppm in zip(
            (hardware.d2h_bytes_per_s, hardware.h2d_bytes_per_s), hardware.contended_ppm,
            strict=True,
        )
    )
    return f"; both ways at once {out:g} / {back:g}"


def _columns() -> str:
    return _table(
        ("column", "type", "meaning"),
        ((f"`{name}`", kind, meaning) for name, (kind, meaning) in COLUMNS.items()),
    )


def _schemas() -> str:
    return "\n".join(
        f"### {name}\n\n```json\n{json.dumps(json_schema(model), indent=1)}\n```\n"
        for name, model in PUBLISHED.items()
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    ) + "\n"
