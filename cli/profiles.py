"""``slackswap profiles``: list, show, export, import and capture profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from slackswap.cli.inputs import HardwareOption, JsonOption, ProfileArgument

if TYPE_CHECKING:
    from slackswap.hardware import Hardware
    from slackswap.profile import Profile

app = typer.Typer(help="List, show, export, import and capture profiles.")

OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE",
                 help="Write the profile here, compressed if the name ends in .gz; - is standard "
                 "output. Default: NAME.json in this folder, if there is none yet."),
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", help="Batch size of an analytic profile.")
]
SequenceOption = Annotated[
    int | None, typer.Option("--sequence", help="Sequence length of an analytic profile.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the profile.")]


@app.command("list")
def list_profiles(as_json: JsonOption = False) -> None:
    """List the library.

    Each with where its times come from, the hardware it is for, and a description.
    """
    from slackswap.cli.output import paragraph, print_json, print_table
    from slackswap.profiles.library import library_entries

    entries = library_entries()
    if as_json:
        print_json({
            "status": "ok",
            "profiles": [
                {"name": entry.name, "source": entry.source, "hardware": entry.hardware.name,
                 "description": entry.description}
                for entry in entries
            ],
        })
        return
    print_table(
        ("name", "source", "hardware", "description"),
        [(entry.name, entry.source, entry.hardware.name, entry.description) for entry in entries],
        left=("name", "source", "hardware"), folding=("description",),
    )
    print()
    paragraph("measured: timed on a device. traced: a real graph, priced by a model. analytic: "
              "graph and times by a model. imported: from another profiler's files.")


@app.command("show")
def show_profile(
    profile: ProfileArgument,
    hardware: HardwareOption = None,
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Write a plot as one HTML file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a profile holds.

    Sizes by kind and layer, what the link can overlap, what recomputing costs.
    """
    from slackswap import files
    from slackswap.cli.inputs import load_inputs
    from slackswap.cli.output import print_json
    from slackswap.cli.summaries import print_summary
    from slackswap.profiles.summary import summarise

    found, device = load_inputs(profile, hardware, batch=batch, sequence=sequence)
    if plot is not None:
        files.check_writable(plot)
    summary = summarise(found, device)
    if plot is not None:
        from slackswap.profiles.plots import write_profile_plot

        write_profile_plot(found, device, plot)
    if as_json:
        print_json({"status": "ok", "profile": found.name, **summary.to_dict(), "plot": plot,
                    "provenance": found.provenance})
        return
    print_summary(summary, found)
    if plot is not None:
        print(f"\nplot written to {plot}")


@app.command("export")
def export_profile(
    profile: ProfileArgument,
    output: OutputOption = None,
    hardware: HardwareOption = None,
    batch: BatchOption = None,
    sequence: SequenceOption = None,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a profile of the library as a JSON file.

    For example: slackswap profiles export bert-large --batch 64 --hardware h100-sxm -o bert64.json
    """
    from slackswap.cli.inputs import load_inputs

    _check_output(output)
    found, device = load_inputs(profile, hardware, batch=batch, sequence=sequence)
    _deliver(found if name is None else found.with_name(name), device, output, as_json)


class ImportCommand(TyperCommand):
    """A command whose help ends in the formats it reads; they are loaded for help alone."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the formats, each with its options."""
        from slackswap.profiles.importers import FORMATS

        rows = [
            (known.name, known.description + (f"; options: {_options(known.options)}"
                                              if known.options else ""))
            for known in FORMATS.values()
        ]
        with formatter.section("Formats"):
            formatter.write_dl(rows)


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_json(value)}" for key, value in options.items())


@app.command("import", cls=ImportCommand)
def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What another profiler wrote.")],
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT",
                     help="One of the formats listed below; default: the content tells."),
    ] = None,
    output: OutputOption = None,
    name: NameOption = None,
    layers: Annotated[
        int | None, typer.Option("--layers", help="Same as --option layers=N.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE",
                     help="An option of the format, as listed below; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn another profiler's file into a profile.

    For example: slackswap profiles import graph.txt -o vgg16-measured.json
    """
    from slackswap.cli.inputs import parse_parameters
    from slackswap.profiles.importers import import_profile
    from slackswap.profiles.library import hardware_of

    options = parse_parameters(option or (), where="--option")
    if layers is not None:
        options["layers"] = layers
    _check_output(output)
    found = import_profile(file, format=format_name, name=name, **options)
    _deliver(found, hardware_of(found), output, as_json)


@app.command("formats", hidden=True)
def list_formats(as_json: JsonOption = False) -> None:
    """List the formats that `import` reads, as its help does; for programs."""
    from slackswap.cli.output import print_json, print_table
    from slackswap.profiles.importers import FORMATS

    if as_json:
        print_json({
            "status": "ok",
            "formats": [
                {"name": known.name, "description": known.description, "options": known.options}
                for known in FORMATS.values()
            ],
        })
        return
    print_table(
        ("format", "what it is", "options"),
        [
            (known.name, known.description,
             _options(known.options) or "-")
            for known in FORMATS.values()
        ],
        left=("format",), folding=("what it is", "options"),
    )


@app.command("capture")
def capture_model(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION",
                       help="A function that returns a model or loss function, and example "
                       "inputs."),
    ],
    output: OutputOption = None,
    device: Annotated[
        str,
        typer.Option("--device", metavar="DEVICE",
                     help="cpu or cuda: run and measure there. fake: trace without memory, and "
                     "price for --hardware, or without it for an A100."),
    ] = "fake",
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME|FILE",
                     help="What to price a fake capture for; default: a100-80gb."),
    ] = None,
    optimizer: Annotated[
        str,
        typer.Option("--optimizer", metavar="NAME",
                     help="Whose state counts as static memory: none, sgd, momentum, adam, adamw, "
                     "mixed-adam."),
    ] = "adamw",
    iterations: Annotated[
        int, typer.Option("--iterations", min=1, help="Measured iterations.")
    ] = 10,
    name: NameOption = None,
    seed: Annotated[int, typer.Option("--seed", help="For PyTorch's random numbers.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Capture a PyTorch model's training step.

    Needs the torch extra: pip install 'slackswap[torch]'.

    For example: slackswap profiles capture my_pkg.my_module:build --device cpu -o model.json
    """
    from slackswap.profiles.capture import capture
    from slackswap.profiles.library import hardware_of, load_hardware

    chosen = None if hardware is None else load_hardware(hardware)
    _check_output(output)
    found = capture(target, device=device, hardware=chosen, optimizer=optimizer,
                    iterations=iterations, name=name, seed=seed)
    _deliver(found, chosen or hardware_of(found), output, as_json)


def _check_output(output: str | None) -> None:
    """Refuse an ``--output`` that cannot be written, before the profile is made."""
    from slackswap import files

    if output is not None and output != "-":
        files.check_writable(output)


def _deliver(profile: Profile, hardware: Hardware, output: str | None, as_json: bool) -> None:
    """Write a profile and say what it is."""
    import os

    from slackswap.cli.output import print_json
    from slackswap.cli.summaries import print_summary
    from slackswap.errors import InvalidFile
    from slackswap.profiles.summary import summarise

    if output == "-":
        print_json(profile.to_dict())
        return
    place = output or f"{_file_name(profile.name)}.json"
    if output is None and os.path.exists(place):
        raise InvalidFile("is there already", where=place, fix="name a file with -o")
    profile.save(place)
    summary = summarise(profile, hardware)
    if as_json:
        print_json({"status": "ok", "profile": profile.name, **summary.to_dict(), "output": place})
        return
    print_summary(summary, profile)
    print()
    print(f"written to {place}")


def _file_name(name: str) -> str:
    """Return a profile's name as that of a file: no separators, nothing hidden."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".-")
    return safe or "profile"


def _json(value: Any) -> str:
    import json

    plain: Any = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain)
