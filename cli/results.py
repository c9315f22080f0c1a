"""``slackswap results``: show, merge and export what suites have stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackswap.cli.inputs import JsonOption

app = typer.Typer(
    help="Show, merge and export the results of suites.", no_args_is_help=True
)

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The --output folder of an evaluation.")
]


@app.command()
def show(
    folder: FolderArgument,
    claims: Annotated[
        bool, typer.Option("--claims", help="Print the claims only, as Markdown.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE",
                     help="With --claims: write them between the marks of this document."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write the HTML report.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the tables of a stored run."""
    from slackswap import files
    from slackswap.cli.evaluate import counts, print_finished
    from slackswap.cli.output import print_json
    from slackswap.evaluation.run.finished import load_finished
    from slackswap.evaluation.run.store import Store

    for place in (into, report):
        if place is not None:
            files.check_writable(place)
    finished = load_finished(Store(folder))
    if as_json:
        print_json({"output": str(folder), "report": None if report is None else str(report),
                    **counts(finished)})
    if claims or into is not None:
        from slackswap.evaluation.analysis.claims_text import claims_markdown, inserted

        text = claims_markdown(finished.claims)
        if into is None:
            print("" if as_json else text, end="")
        else:
            document = inserted(files.read_text(into), text, where=str(into))
            files.write_text(into, document)
    elif not as_json:
        print_finished(finished)
    if report is not None:
        from slackswap.evaluation.report.page import write_report

        write_report(finished, report)


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of results.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder that takes them all.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Join stored results: the union of all cells."""
    from slackswap.cli.output import print_json
    from slackswap.evaluation.run.store import Store, merge as merge_stores

    counts = merge_stores(Store(output), [Store(source) for source in sources])
    if as_json:
        print_json({"status": "ok", "output": str(output), **counts})
        return
    print(f"{counts['added']} cells added, {counts['replaced']} replaced, "
          f"{counts['kept']} already there: {output}")


@app.command()
def export(
    folder: FolderArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")
    ],
    format: Annotated[
        str | None,
        typer.Option("--format", help="csv or parquet; otherwise the file's name decides."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write all results as one tidy table."""
    from slackswap import files
    from slackswap.cli.output import print_json
    from slackswap.evaluation.analysis.frame import export as export_frame, load_results

    files.check_writable(output)
    frame = load_results(folder)
    export_frame(frame, output, format)
    if as_json:
        print_json({"status": "ok", "output": str(output), "rows": len(frame),
                    "columns": list(frame.columns)})
        return
    print(f"{len(frame)} rows, {len(frame.columns)} columns: {output}")
