"""Tables at every width: a figure is printed whole, or in a table further down, never cut."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest

from slackswap.cli.output import WIDTH, print_pairs, print_table

WIDTHS = (100, 80, 60, 40)

#: A number with its unit, as the tables print it; a piece of a digest is none.
FIGURE = re.compile(r"(?<![\w.])-?\d[\d.,/]*(?: (?:ns|µs|ms|s|B|kB|MB|GB|TB)\b|%)?(?!\w)")


def figures(text: str) -> list[str]:
    return sorted(FIGURE.findall(text))


@pytest.mark.parametrize("width", [*WIDTHS, 25])
@pytest.mark.parametrize("seed", range(20))
def test_every_figure_of_a_table_is_printed_whole_at_every_width(
    monkeypatch, capsys, width, seed
):
    monkeypatch.setenv("COLUMNS", str(width))
    draw = random.Random(seed)
    figures_ = [f"{draw.choice(('throughput', 'stall', 'peak memory'))} {c}"
                for c in range(draw.randint(1, 9))]
    columns = ["planner", *figures_, "reason"]
    rows = [
        (f"planner-{'x' * draw.randint(0, 18)}",
         *(f"{draw.uniform(0, 10 ** draw.randint(0, 6)):,.2f} ms" for _ in figures_),
         " ".join("word" for _ in range(draw.randint(0, 30))))
        for _ in range(draw.randint(1, 6))
    ]
    print_table(columns, rows, left=("planner",), folding=("planner", "reason"))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    for row in rows:
        for figure in row[1:-1]:
            assert figure in out
    # And each in the row of its planner, under its heading.
    for words in " ".join(columns).split():
        assert words in out


def test_a_table_that_fits_is_one_table_with_headings_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    print_table(("planner", "peak memory"), [("a", "1 GB"), ("b", "2 GB")], left=("planner",))
    assert capsys.readouterr().out.splitlines() == [
        "planner   peak memory",
        "─" * 21,
        "a                1 GB",
        "b                2 GB",
    ]


def test_columns_that_do_not_fit_continue_below_and_repeat_the_first(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    print_table(("planner", "one", "two"), [("first", "1.23 seconds", "4.56 seconds")],
                left=("planner",))
    first, second = capsys.readouterr().out.split("\n\n")
    assert [("1.23 seconds" in part, "4.56 seconds" in part) for part in (first, second)] == [
        (True, False), (False, True)
    ]
    assert [part.splitlines()[2].split()[0] for part in (first, second)] == ["first", "first"]


def test_labels_stand_above_their_texts_where_there_is_no_room_beside(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    print_pairs([("keeping everything", "1.03 s an iteration of one hundred")])
    assert capsys.readouterr().out == (
        "keeping everything\n  1.03 s an iteration of one hundred\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "small.json", "-b", "60%", "-p", "slackswap", "-p", "swap-all", "-p",
         "chen-greedy", "-p", "capuchin", "-p", "keep-all"),
        ("plan", "small.json", "-b", "60%"),
        ("bound", "small.json", "-b", "60%", "--method", "compute"),
        ("profiles", "list"),
        ("profiles", "show", "bert-large"),
        ("planners", "list"),
    ],
)
def test_commands_print_the_same_figures_at_every_width(here, cli, monkeypatch, command):
    # Planning and proving take another time in each run: no measured time is printed here.
    for module in ("slackswap.quantities", "slackswap.cli.scores"):
        monkeypatch.setattr(f"{module}.format_seconds", lambda seconds: "a moment")

    # Numbers alone: a unit may stand in the next line of a text.
    def printed(width: int) -> set[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        result = cli(*command)
        assert result.code == 0, result.err
        assert max(map(len, result.out.splitlines())) <= width
        return {figure.split()[0] for figure in figures(result.out)}

    at_widest = printed(WIDTH)
    assert at_widest
    for width in WIDTHS[1:]:
        assert printed(width) == at_widest


def test_the_width_is_that_of_the_terminal(here):
    pty = pytest.importorskip("pty")
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    environment |= {"TERM": "dumb", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "slackswap.cli.main", "compare", "small.json", "-b", "60%",
         "-p", "slackswap", "-p", "swap-all", "--bound", "compute"],
        stdout=theirs, stderr=subprocess.DEVNULL, env=environment,
    )
    os.close(theirs)
    out = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        out += piece
    os.close(ours)
    assert process.wait() == 0
    lines = out.decode().replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("planner") for line in lines) > 1  # continued below
