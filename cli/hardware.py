"""``slackswap hardware``: list and show devices with their host links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.cli.inputs import JsonOption, complete_hardware

if TYPE_CHECKING:
    from slackswap.hardware import Hardware

app = typer.Typer(help="List and show devices with their host links.")

HardwareArgument = Annotated[
    str,
    typer.Argument(metavar="NAME|FILE", autocompletion=complete_hardware,
                   help="A name of `slackswap hardware list`, or a JSON file."),
]
SharingOption = Annotated[
    int | None,
    typer.Option("--sharing", metavar="GPUS",
                 help="What one of so many GPUs has whose copies all run at once."),
]


@app.command("list")
def list_hardware(as_json: JsonOption = False) -> None:
    """List the catalogue.

    Memory, rates, and the host link as it was measured.
    """
    from slackswap.cli.output import paragraph, print_json, print_table
    from slackswap.profiles.catalogue import find_device, hardware_names

    devices = [device for name in hardware_names() if (device := find_device(name)) is not None]
    if as_json:
        print_json({"status": "ok", "hardware": [
            {**device.hardware.to_dict(), "precision": device.precision, "link": device.link,
             "year": device.launch_year} for device in devices
        ]})
        return
    print_table(
        ("name", "year", "memory", "TFLOP/s", "memory GB/s", "link out / in GB/s", "basis"),
        [
            (device.name, str(device.launch_year), _gb(device.hardware.device_bytes),
             f"{(device.hardware.flops_per_s or 0) / 1e12:g} {device.precision}",
             f"{(device.hardware.memory_bytes_per_s or 0) / 1e9:g}", _link(device.hardware),
             _basis(device))
            for device in devices
        ],
        left=("name", "basis"),
    )
    print()
    paragraph("Basis: of the link rates; every other rate is a vendor's. What each figure rests "
              "on: slackswap hardware show NAME")


@app.command("show")
def show_hardware(
    hardware: HardwareArgument, sharing: SharingOption = None, as_json: JsonOption = False
) -> None:
    """Show a device: each figure, whether it is measured, a vendor's or inferred, and its source.

    For example: slackswap hardware show gb300 --sharing 4
    """
    from slackswap.cli.output import heading, print_json, print_table
    from slackswap.profiles.catalogue import find_device
    from slackswap.profiles.library import load_hardware

    found = load_hardware(hardware)
    device = find_device(found.name)
    if device is not None and device.hardware != found:
        device = None  # a file that has a name of the catalogue
    if sharing is not None:
        found = found.sharing(sharing)
    rows: list[dict[str, Any]] = []
    for field, value in found.to_dict().items():
        if field in ("schema", "name") or value is None:
            continue
        root = field.replace("bytes", "root_bytes")
        shared = device is not None and value != device.hardware.to_dict().get(field)
        figure = None if device is None else device.figure(root if shared else field)
        rows.append({"field": field, "value": value,
                     "basis": figure.basis if figure else "",
                     "date": figure.date if figure else "",
                     "source": figure.source if figure else ""})
    if as_json:
        print_json({"status": "ok", "hardware": found.to_dict(), "figures": rows})
        return
    heading(f"{found.name}" + (f": {device.link}, {device.precision}" if device else ""))
    print_table(
        ("figure", "value", "basis", "date", "source"),
        [(row["field"], _value(row["field"], row["value"]), row["basis"] or "-",
          row["date"] or "-", row["source"] or "-") for row in rows],
        left=("figure", "basis", "date"), folding=("source",),
    )


def _basis(device: Any) -> str:
    figure = device.figure("h2d_bytes_per_s")
    return str(figure.basis)


def _gb(nbytes: int | None) -> str:
    from slackswap.quantities import format_bytes

    return "-" if nbytes is None else format_bytes(nbytes)


def _link(hardware: Hardware) -> str:
    return f"{hardware.d2h_bytes_per_s / 1e9:g} / {hardware.h2d_bytes_per_s / 1e9:g}"


def _value(field: str, value: Any) -> str:
    from slackswap.quantities import format_bytes, format_ns

    if field == "flops_per_s":
        return f"{value / 1e12:g} TFLOP/s"
    if field.endswith("bytes_per_s"):
        return f"{value / 1e9:g} GB/s"
    if field.endswith("ppm"):
        return f"{value / 10_000:g}%"
    if field == "latency_ns":
        return format_ns(value)
    return format_bytes(value) if field.endswith("bytes") else str(value)
