"""What ``slackswap planners new`` writes: a planner that works, and its test."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path

from slackswap import files
from slackswap.errors import InvalidFile, InvalidPlanner
from slackswap.registry import planner_names

_PLANNER = '''"""The planner {name}."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap import Capabilities, Infeasible, Plan, register
from slackswap.cost_model.scorer import SWAP, Scorer


@register
@dataclass(frozen=True, slots=True)
class {class_name}:
    """Swap the largest saved tensors first, as many as the budget asks for.

    A start to change: `Scorer` scores plans by the thousand, `problem.profile.graph` holds sizes,
    durations and who reads what. Fields of the class are the planner's parameters.
    """

    name: ClassVar[str] = "{name}"
    version: ClassVar[str] = "1"  # raise it whenever plans may change
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)

    steps: int = 64

    def plan(self, problem, *, rng, time_limit, report) -> Plan:
        """Return the fastest plan that fits among `steps` numbers of tensors to swap."""
        scorer, graph = Scorer(problem), problem.profile.graph
        tensors = np.flatnonzero(graph.is_saved & scorer.allowed[:, SWAP])
        largest_first = tensors[np.argsort(-graph.nbytes[tensors], kind="stable")]
        counts = np.unique(np.linspace(0, len(tensors), self.steps + 1).astype(int))
        codes = np.tile(scorer.default, (len(counts), 1))
        for row, count in enumerate(counts):
            codes[row, largest_first[:count]] = SWAP
        best = scorer.score(codes).best()
        if best is None:
            raise Infeasible(f"swapping does not bring it down to {{problem.budget_bytes}} bytes")
        report(swapped=int(counts[best]))
        return scorer.decode(codes[best])
'''

_TEST = '''"""Does {name} keep the rules that comparisons rest on? One test a check."""

from pathlib import Path

import pytest

from slackswap import Problem, load_hardware, load_profile, solve
from slackswap.evaluation import check_names, check_planner

PLANNER = f"{{Path(__file__).with_name('{module}.py')}}:{class_name}"


@pytest.mark.parametrize("check", check_names())
def test_keeps_the_rules(check):
    check_planner(PLANNER, check)


def test_plans_for_a_real_model():
    problem = Problem(load_profile("bert-large"), load_hardware("a100-80gb"), 0.7)
    solution = solve(problem, PLANNER)
    assert solution.status.has_plan, solution.reason
    assert solution.evaluation.peak_bytes <= problem.budget_bytes
'''


def write_planner(name: str, folder: str | os.PathLike[str] = ".") -> tuple[Path, Path]:
    """Write a planner that works and its test; nothing is overwritten.

    Parameters
    ----------
    name : str
        Name of the planner: letters, digits and dashes.
    folder : path-like
        Where to; made if it is not there.

    Returns
    -------
    planner, test : Path
        The two files.

    Raises
    ------
    InvalidPlanner
        When the name cannot be one.
    InvalidFile
        When the folder cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name):
        raise InvalidPlanner(
            f"{name!r} cannot be a planner's name", where="NAME",
            fix="use letters, digits and single dashes, a letter first: my-planner",
        )
    if name in planner_names():
        raise InvalidPlanner(
            f"{name!r} is the name of a planner that is there already", where="NAME",
            fix=f"call it for instance my-{name}",
        )
    words = re.split("[-_]", name)
    module = "_".join(words).lower()
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        raise InvalidPlanner(
            f"{name!r} is a word of Python", where="NAME", fix=f"call it for instance my-{name}"
        )
    place = Path(folder)
    targets = place / f"{module}.py", place / f"test_{module}.py"
    for target in targets:
        if target.exists():
            raise InvalidPlanner(
                "is there already", where=str(target), fix="choose another name or --output folder"
            )
    parts = {
        "name": name.replace("_", "-"),
        "module": module,
        "class_name": "".join(word[:1].upper() + word[1:] for word in words),
    }
    _make_folder(place)
    for target, template in zip(targets, (_PLANNER, _TEST), strict=True):
        files.write_text(target, template.format(**parts))
    return targets


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(
            f"cannot be made ({error.strerror or error})", where=str(place),
            fix="check the path and its permissions",
        ) from error
