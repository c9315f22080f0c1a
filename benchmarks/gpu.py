"""Capture, plan and run on a GPU in under ten minutes; dry-run on a CPU without one.

python -m benchmarks.gpu                     three models, six planners, two budgets
python -m benchmarks.gpu --device cpu        the same path with an emulated link, models in small
python -m benchmarks.gpu --json gpu.json     the figures in a file as well

Nothing on CUDA has been exercised by a test of this repository: capture comes first here, and each
model that fails is reported and left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks.execution import COLUMNS, LINK, PLANNERS, convnet, measured, transformer
from benchmarks.tables import Column, Row, Table, print_table
from slackswap.errors import SlackSwapError

BUDGETS = (0.8, 0.5)
#: No model is begun after this many seconds.
LIMIT_S = 480.0


def models(device: str) -> dict[str, Callable[[], Any]]:
    """Return three models sized for a device."""
    if device == "cpu":
        return {"transformer": transformer, "convnet": convnet}
    from slackswap.profiles.capture import models as shipped

    return {
        "gpt-small": partial(shipped.gpt_small, batch=32, sequence=512),
        "bert-large": partial(shipped.bert_large, "sdpa", batch=8, layers=8),
        "resnet50": partial(shipped.resnet50, batch=32),
    }


def correlations(rows: Sequence[Row]) -> list[Row]:
    """Rank correlation of predicted and measured times, by model and budget."""
    from scipy.stats import spearmanr

    found: list[Row] = []
    for key in dict.fromkeys((row["model"], row["budget"]) for row in rows):
        own = [row for row in rows if (row["model"], row["budget"]) == key]
        if len(own) > 2:
            rho = spearmanr(
                [row["predicted_ns"] for row in own], [row["measured_ns"] for row in own]
            ).statistic
            found.append({"model": key[0], "budget": key[1], "plans": len(own), "rho": float(rho)})
    return found


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; 1 when bits differ or a budget was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    rows: list[Row] = []
    for name, build in models(options.device).items():
        if time.perf_counter() - started > LIMIT_S:
            print(f"{name} left out: {LIMIT_S:.0f} s are over")
            continue
        try:
            rows += measured(
                name, build, PLANNERS, BUDGETS, steps=options.steps, device=options.device,
                hardware=LINK if options.device == "cpu" else None,
            )
        except (SlackSwapError, RuntimeError) as error:
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
    when = datetime.now(UTC).date().isoformat()
    tables = [
        Table("gpu", f"Plans run on {device_name(options.device)}, {when}", COLUMNS, rows),
        Table("gpu-rank", "Rank correlation of predicted and measured step times",
              (Column("model", "model", left=True),
               Column("budget", "budget", lambda f: f"{f:.0%}"), Column("plans", "plans"),
               Column("rho", "Spearman", lambda rho: f"{rho:.2f}")), correlations(rows)),
    ]
    for table in tables:
        print_table(table)
    if options.json:
        from slackswap.files import write_json

        write_json(options.json, {"device": device_name(options.device), "date": when,
                                  "tables": [table.to_dict() for table in tables]})
    return 0 if rows and all(row["bits"] and row["kept"] for row in rows) else 1


def device_name(device: str) -> str:
    """Return the name of the GPU, or of the processor."""
    import torch

    from slackswap.evaluation.run.environment import machine

    return str(torch.cuda.get_device_name() if device == "cuda" else machine()["processor"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
