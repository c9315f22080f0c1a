"""Draws the pictures of the guide, from simulations: ``python docs/draw.py [NAME ...]``.

Those of `CONCEPTS` depend on the cost model and the price table alone; a test holds the files to
them.
Those of `RESULTS` show what planners and bounds reach, and are drawn anew when these change.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

from slackswap import (
    Action,
    BackwardOp,
    ForwardOp,
    Hardware,
    Plan,
    Problem,
    Profile,
    Status,
    Tensor,
    certified_gap,
    load_hardware,
    load_profile,
    simulate,
    solve,
)
from slackswap.cost_model.schedule import backward_schedule, resolve_actions
from slackswap.evaluation.comparison.timeline_svg import TimelineRun, timeline_drawing
from slackswap.evaluation.report.palette import (
    BLUE,
    GREEN,
    KIND_COLOURS,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
)
from slackswap.evaluation.report.svg import FAINT, INK, RULE, Drawing
from slackswap.quantities import format_bytes, format_ns
from slackswap.result import EventKind
from slackswap.search.bounds import lower_bound

FOLDER = Path(__file__).parent / "pictures"
_MB, _MS = 10**6, 10**6
_LAYERS = 6


def six_layers(budget: str = "2.8GB") -> Problem:
    """Return six equal layers: a slow op and a quick one, a saved tensor of 400 MB behind each."""
    tensors: list[Tensor] = []
    forward: list[ForwardOp] = []
    backward: list[BackwardOp] = []
    for layer in range(1, _LAYERS + 1):
        h, a = len(tensors), len(tensors) + 1
        tensors += [Tensor(f"h{layer}", 400 * _MB), Tensor(f"a{layer}", 400 * _MB)]
        forward += [
            ForwardOp(f"fc{layer}", 10 * _MS, (h - 1,) if h else (), (h,), layer=layer),
            ForwardOp(f"act{layer}", 2 * _MS, (h,), (a,), layer=layer),
        ]
        backward.append(
            BackwardOp(f"layer{layer}.bwd", 24 * _MS, (h, a), workspace=300 * _MB,
                       carried=100 * _MB, layer=layer)
        )
    profile = Profile("six layers", "random", tuple(tensors), tuple(forward),
                      tuple(backward[::-1]))
    return Problem(profile, Hardware("a link of 25 GB/s", 25 * 10**9, 25 * 10**9, 10_000), budget)


def six_layer_plan() -> Plan:
    """Return a plan that uses all three means."""
    return Plan(
        dict.fromkeys(("h1", "h2", "h3"), Action.SWAP)
        | dict.fromkeys(("a1", "a2", "a3", "a4"), Action.RECOMPUTE)
    )


def draw_streams() -> Drawing:
    """Draw one iteration on three streams, with memory below."""
    problem = six_layers()
    unlimited = problem.with_budget(None)
    keep, plan = Plan(), six_layer_plan()
    scores = simulate(unlimited, keep, timeline=True), simulate(problem, plan, timeline=True)
    titles = "keep everything, memory unlimited", "swap three, recompute four, keep the rest"
    return timeline_drawing(
        problem,
        [
            TimelineRun(f"{title}: {format_ns(score.iteration_ns or 0)}, "
                f"peak {format_bytes(score.peak_bytes or 0)}", score)
            for title, score in zip(titles, scores, strict=True)
        ],
        names=True,
    )


def draw_slack() -> Drawing:
    """Draw what becomes of each swapped tensor between its two uses."""
    problem, plan = six_layers(), six_layer_plan()
    score = simulate(problem, plan, timeline=True)
    assert score.timeline is not None
    assert score.iteration_ns is not None
    profile = problem.profile
    schedule = backward_schedule(profile, resolve_actions(profile, plan))
    compute = [e for e in score.timeline if e.stream == "compute" and e.kind is not EventKind.STALL]
    steps = [e for e in compute if e.kind is not EventKind.FORWARD]
    rows = [profile.index_of[name] for name in ("h1", "h2", "h3")]
    left, width, row_height = 60.0, 840.0, 46.0
    drawing = Drawing(920, 40 + row_height * len(rows) + 62, "slack of swapped tensors")
    scale = width / score.iteration_ns
    for number, tensor in enumerate(rows):
        name, y = profile.tensors[tensor].name, 30 + number * row_height
        uses = [e for e in compute if e.kind is EventKind.FORWARD
                and tensor in (*profile.forward[e.index].reads, *profile.forward[e.index].writes)]
        copies = {e.kind: e for e in score.timeline if e.name == name and e.stream != "compute"}
        out, back = copies[EventKind.OFFLOAD], copies[EventKind.PREFETCH]
        need = steps[schedule.first_need[tensor]]
        drawing.text(left - 10, y + 15, name, anchor="end", bold=True)
        drawing.rect(left, y, width, 22, RULE, opacity=0.28)
        for start, end, colour, words in (
            (uses[0].start_ns, uses[-1].end_ns, BLUE, "used"),
            (out.start_ns, out.end_ns, GREEN, "out"),
            (back.start_ns, back.end_ns, PINK, "back"),
            (back.end_ns, need.start_ns, YELLOW, "slack"),
            (need.start_ns, need.end_ns, SKY, "needed"),
        ):
            x, length = left + start * scale, (end - start) * scale
            half = colour in (GREEN, PINK)  # copies overlap uses: lower half
            drawing.rect(x, y + 11 if half else y, length, 11 if half else 22, colour,
                         opacity=0.55 if colour == YELLOW else 1.0, hint=f"{words} {name}")
            if words == "slack" and length > 40:
                drawing.text(x + length / 2, y + 15, f"slack {format_ns(end - start)}", size=10.5,
                             anchor="middle")
        drawing.text(left + (out.end_ns + (score.forward_ns or 0)) / 2 * scale, y + 15,
                     "away", size=10.5, anchor="middle", fill=FAINT)
    turn = left + (score.forward_ns or 0) * scale
    bottom = 30 + len(rows) * row_height
    drawing.line(turn, 16, turn, bottom - 8, INK, dash="3 3")
    drawing.text(turn - 6, 18, "forward", size=11, anchor="end", fill=FAINT)
    drawing.text(turn + 6, 18, "backward", size=11, fill=FAINT)
    _legend(drawing, left, bottom + 20, (
        ("used in forward", BLUE), ("copied out", GREEN), ("copied back", PINK),
        ("slack: back before its deadline", YELLOW), ("first backward step that needs it", SKY),
    ))
    drawing.text(left, bottom + 44, "The link copies out in the order of writing, and back in the "
                 "order of need. A tensor without slack makes compute wait.", size=11, fill=FAINT)
    return drawing


def draw_closure() -> Drawing:
    """Draw which ops must run again when one tensor of GPT-2 XL is dropped."""
    profile = load_profile("gpt2-xl")
    dropped = "layer2.residual2"
    plan = Plan({dropped: Action.RECOMPUTE})
    schedule = backward_schedule(profile, resolve_actions(profile, plan))
    again = {step.forward for step in schedule.steps if step.forward is not None}
    names = ("residual1", "norm2", "fc1", "gelu", "fc2", "dropout2", "residual2")
    ops = {op.name.removeprefix("layer2."): (index, op) for index, op in enumerate(profile.forward)
           if op.name.startswith("layer2.")}
    graph = profile.graph
    drawing = Drawing(920, 236, f"closure of {dropped}")
    box, gap, y = 104.0, 20.0, 92.0
    at = {name: 26 + number * (box + gap) for number, name in enumerate(names)}
    for before, after in pairwise(names):
        drawing.line(at[before] + box, y + 21, at[after] - 2, y + 21, FAINT, arrow=True)
    # The residual connection: the sum reads the earlier sum as well.
    drawing.path([(at["residual1"] + box / 2, y), (at["residual1"] + box / 2, y - 26),
                  (at["residual2"] + box / 2, y - 26)], stroke=FAINT)
    drawing.line(at["residual2"] + box / 2, y - 26, at["residual2"] + box / 2, y - 2, FAINT,
                 arrow=True)
    cost = 0
    for name in names:
        index, op = ops[name]
        tensor = profile.index_of[f"layer2.{name}"]
        saved = bool(graph.is_saved[tensor])
        rerun, gone = index in again, op.name == dropped
        cost += op.duration_ns if rerun else 0
        drawing.rect(at[name], y, box, 42, ORANGE if rerun else BLUE if saved else "#ffffff",
                     opacity=0.85 if rerun else 0.16, radius=5,
                     stroke=ORANGE if rerun else BLUE if saved else FAINT)
        drawing.text(at[name] + box / 2, y + 18, name, size=12.5, anchor="middle", bold=True)
        drawing.text(at[name] + box / 2, y + 34, format_ns(op.duration_ns), size=10.5,
                     anchor="middle")
        state = "dropped" if gone else "saved" if saved else "not saved"
        drawing.text(at[name] + box / 2, y + 60, state, size=11, anchor="middle",
                     fill=RED if gone else INK if saved else FAINT, bold=gone)
    drawing.text(26, 28, f"Dropping {dropped} of GPT-2 XL "
                 f"({format_bytes(profile.tensors[profile.index_of[dropped]].nbytes)})", size=13,
                 bold=True)
    own = ops["residual2"][1].duration_ns
    drawing.text(26, y + 92, f"Its own op takes {format_ns(own)}. But what that op reads is not "
                 f"saved either, so the chain back to the last saved tensors runs again:", size=12)
    drawing.text(26, y + 111, f"{len(again)} ops, {format_ns(cost)}, "
                 f"{cost / own:.0f} times as much. That is the closure, and the price that counts.",
                 size=12)
    return drawing


def draw_headroom() -> Drawing:
    """Draw why a copy back has to wait: what compute will need before it is used."""
    problem, plan = six_layers(), six_layer_plan()
    score = simulate(problem, plan, timeline=True)
    assert score.timeline is not None
    profile = problem.profile
    schedule = backward_schedule(profile, resolve_actions(profile, plan))
    steps = [e for e in score.timeline
             if e.stream == "compute" and e.kind in (EventKind.RECOMPUTE, EventKind.BACKWARD)]
    copies = [e for e in score.timeline if e.kind is EventKind.PREFETCH]
    # The first copy that starts later than the link is free: why does it wait?
    asked_ns, copy = next(
        (before.end_ns, after) for before, after in pairwise(copies)
        if after.start_ns > before.end_ns
    )
    deadline = schedule.first_need[copy.index]
    current = max(k for k, e in enumerate(steps) if e.start_ns <= asked_ns)
    # What the running step holds itself is part of the headroom, not of what is in use.
    held = schedule.steps[current].workspace + sum(
        profile.tensors[t].nbytes for t in schedule.steps[current].writes
    )
    level = _level_at(score.memory_curve or (), asked_ns) - held
    left, base, height, top = 116.0, 250.0, 190.0, 3.4e9
    count = deadline - current + 1
    slot = min(78.0, 560.0 / count)
    drawing = Drawing(920, 330, f"headroom before {copy.name} comes back")

    def y_of(nbytes: float) -> float:
        return base - height * nbytes / top

    nbytes = profile.tensors[copy.index].nbytes
    drawing.text(left, 24, f"The link is free while {steps[current].name} runs. May "
                 f"{copy.name} ({format_bytes(nbytes)}) come back now?", size=13, bold=True)
    running, highest = level, level
    for offset in range(count):
        k = current + offset
        step = schedule.steps[k]
        peak = running + step.workspace + sum(profile.tensors[t].nbytes for t in step.writes)
        highest = max(highest, peak)
        x = left + offset * slot
        drawing.rect(x, y_of(peak), slot - 8, base - y_of(peak), KIND_COLOURS[steps[k].kind],
                     opacity=0.85)
        drawing.text(x + (slot - 8) / 2, base + 16, steps[k].name, size=10, anchor="middle")
        drawing.text(x + (slot - 8) / 2, base + 30, str(steps[k].kind), size=10, anchor="middle",
                     fill=FAINT)
        running = peak - step.workspace - sum(profile.tensors[t].nbytes for t in schedule.frees[k])
    end = left + count * slot
    for value, words, colour, dash in (
        (problem.budget_bytes, f"budget {format_bytes(problem.budget_bytes)}", RED, "5 4"),
        (level, f"in use now {format_bytes(level)}", INK, "2 3"),
    ):
        drawing.line(left, y_of(value), 892, y_of(value), colour, dash=dash, width=1.3)
        drawing.text(left - 8, y_of(value) + 4, words, size=11, anchor="end", fill=colour)
    x = end + 8
    drawing.line(x, y_of(level), x, y_of(highest), ORANGE, width=2.4)
    drawing.text(x + 8, (y_of(level) + y_of(highest)) / 2 + 4,
                 f"headroom {format_bytes(highest - level)}", size=11.5, bold=True)
    x += 140
    drawing.rect(x, y_of(highest + nbytes), 46, y_of(highest) - y_of(highest + nbytes), PINK,
                 opacity=0.8)
    drawing.text(x + 54, (y_of(highest) + y_of(highest + nbytes)) / 2 + 4, copy.name, size=11.5,
                 bold=True)
    fits = highest + nbytes <= problem.budget_bytes
    drawing.text(left, base + 58, f"In use + headroom + {copy.name} = "
                 f"{format_bytes(highest + nbytes)}: it "
                 + ("fits, so the copy may start at once." if fits else
                    f"must wait. It starts {format_ns(copy.start_ns - asked_ns)} later, when "
                    f"{steps[current].name} is over."), size=12)
    return drawing


def draw_bound() -> Drawing:
    """Draw the throughput that planners reach on BERT-Large, and what no plan can exceed."""
    profile, hardware = load_profile("bert-large"), load_hardware("a100-80gb")
    fractions = [percent / 100 for percent in range(25, 101, 5)]
    curves: dict[str, list[tuple[float, float]]] = {}
    impossible: list[float] = []
    gaps: list[float] = []
    for fraction in fractions:
        problem = Problem(profile, hardware, fraction)
        bound = lower_bound(problem)
        if bound.status is Status.INFEASIBLE:
            impossible.append(fraction)
            continue
        curves.setdefault("bound", []).append((fraction, profile.duration_ns / bound.value_ns))
        for planner in ("slackswap+", "block-checkpointing"):
            score = solve(problem, planner).evaluation
            if score is not None and score.throughput is not None:
                curves.setdefault(planner, []).append((fraction, score.throughput))
                if planner == "slackswap+":
                    gaps.append(certified_gap(score.iteration_ns or 0, bound))
    left, right, top, base = 70.0, 700.0, 44.0, 330.0
    low = 0.7
    drawing = Drawing(920, 390, "throughput and bound on BERT-Large")

    def place(point: tuple[float, float]) -> tuple[float, float]:
        fraction, value = point
        return (left + (right - left) * (fraction - 0.25) / 0.75,
                base - (base - top) * (max(value, low) - low) / (1.0 - low))

    frontier = [place(point) for point in curves["bound"]]
    drawing.text(left, 24, "BERT-Large, A100 80 GB: throughput against memory budget", size=13,
                 bold=True)
    drawing.path([(frontier[0][0], top), *frontier, (right, top)], fill=RED, opacity=0.1)
    if impossible:
        edge = place((max(impossible), 1.0))[0]
        drawing.rect(left, top, edge - left, base - top, RED, opacity=0.1)
        drawing.text((left + edge) / 2, base - 12, "none fits", size=10, anchor="middle", fill=RED)
    for value in (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0):
        y = place((0.25, value))[1]
        drawing.line(left, y, right, y)
        drawing.text(left - 8, y + 4, f"{value:.0%}", size=11, anchor="end", fill=FAINT)
    for percent in (25, 40, 55, 70, 85, 100):
        x = place((percent / 100, 1))[0]
        drawing.text(x, base + 18, f"{percent}%", size=11, anchor="middle", fill=FAINT)
    drawing.text((left + right) / 2, base + 40, "budget over the keep-everything peak", size=11.5,
                 anchor="middle", fill=FAINT)
    for name, colour, dash in (
        ("block-checkpointing", ORANGE, ""), ("slackswap+", BLUE, ""), ("bound", RED, "5 4"),
    ):
        points = [place(point) for point in curves.get(name, [])]
        drawing.path(points, stroke=colour, width=2.2 if name != "bound" else 1.6, dash=dash)
        for x, y in points if name != "bound" else []:
            drawing.dot(x, y, 3, colour)
    y = top + 12
    for words, colour, note in (
        ("no plan reaches here", RED, "proven by the LP bound"),
        ("slackswap+", BLUE, f"at most {max(gaps):.1%} above the bound"),
        ("block-checkpointing", ORANGE, "leaves the link idle"),
    ):
        drawing.rect(right + 20, y - 9, 11, 11, colour, radius=2)
        drawing.text(right + 38, y + 1, words, size=12, bold=True)
        drawing.text(right + 38, y + 16, note, size=10.5, fill=FAINT)
        y += 42
    return drawing


def draw_comparison() -> Drawing:
    """Draw GPT-2 XL at half its activation memory, checkpointed and by SlackSwap."""
    problem = Problem(load_profile("gpt2-xl"), load_hardware("a100-80gb"), "50%")
    runs = []
    for title, planner in (("block checkpointing", "block-checkpointing"),
                           ("SlackSwap", "slackswap")):
        plan = solve(problem, planner).plan
        assert plan is not None
        score = simulate(problem, plan, timeline=True)
        runs.append(TimelineRun(f"{title}: {format_ns(score.iteration_ns or 0)}, "
                        f"{score.throughput:.1%} of the throughput without a limit", score))
    return timeline_drawing(problem, runs, hints=False)


def _level_at(curve: tuple[tuple[int, int], ...], time_ns: int) -> int:
    return [level for when, level in curve if when <= time_ns][-1]


def _legend(
    drawing: Drawing, x: float, y: float, entries: tuple[tuple[str, str], ...]
) -> None:
    for words, colour in entries:
        drawing.rect(x, y - 9, 11, 11, colour, radius=2, opacity=0.55 if colour == YELLOW else 1.0)
        drawing.text(x + 16, y + 1, words, size=11)
        x += 34 + 5.6 * len(words)


CONCEPTS: Mapping[str, Callable[[], Drawing]] = {
    "streams": draw_streams,
    "slack": draw_slack,
    "closure": draw_closure,
    "headroom": draw_headroom,
}
RESULTS: Mapping[str, Callable[[], Drawing]] = {
    "bound": draw_bound,
    "comparison": draw_comparison,
}


def main() -> None:
    """Write the pictures that are asked for, or all."""
    every = {**CONCEPTS, **RESULTS}
    parser = argparse.ArgumentParser(description="Draw the pictures of the guide.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(every))
    for name in parser.parse_args().names or every:
        every[name]().save(FOLDER / f"{name}.svg")
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
