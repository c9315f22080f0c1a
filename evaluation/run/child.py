"""What runs in a planner's own process, and the JSON in which it answers."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import slackswap
from slackswap import errors
from slackswap.bound import Bound, BoundMethod
from slackswap.errors import PlannerFailed, SlackSwapError
from slackswap.evaluation.run.code_identity import code_digest
from slackswap.evaluation.run.lifetime import die_with
from slackswap.files import plain
from slackswap.plan import Plan, PlannerInfo
from slackswap.planner import Capabilities, Planner
from slackswap.problem import Problem
from slackswap.quantities import as_integer, as_number
from slackswap.registry import PlannerLike, parameters_of, resolve_planner
from slackswap.solving import Reply, ask
from slackswap.status import Status

#: Lines of the protocol: the planner is about to start; it has returned, and the answer follows.
READY, DONE = b"ready\n", b"done\n"

_OWN_CODE = tuple(
    str(folder.resolve()) + os.sep
    for folder in (Path(slackswap.__file__).parent, Path(__file__).parents[1])
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a planner's process is to do.

    Attributes
    ----------
    planner : str, Planner, type or callable
        As `slackswap.resolve_planner` takes it.
    parameters : mapping
        Replace the planner's own.
    problem : Problem or None
        What to plan for; None asks for a description of the planner.
    seed, time_limit
        As for `slackswap.solve`.
    threads : int or None
        Threads that linear algebra may use.
    """

    planner: PlannerLike
    parameters: Mapping[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    seed: int = 0
    time_limit: float | None = None
    threads: int | None = None


def main() -> None:
    """Carry out the order on standard input; the answer goes to what was standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed, by Python or below it, is kept apart from the answer
    path, parent, order = pickle.load(sys.stdin.buffer)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Buffered even where Python is told not to: planners may print a million lines.
    sys.stdout = os.fdopen(os.dup(1), "w", errors="replace")
    sys.path[:] = path
    carry_out(order, answers, parent)


def carry_out(order: Order, answers: IO[bytes], parent: int) -> None:
    """Carry out an order in this process, and end it."""
    exit_code = 1
    try:
        die_with(parent)
        answer = _answer(order, answers)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        answers.write(answer)
        answers.flush()
        exit_code = 0
    finally:
        # Neither exit handlers nor threads that a planner left behind run any longer.
        os._exit(exit_code)


def _answer(order: Order, answers: IO[bytes]) -> bytes:
    from threadpoolctl import threadpool_limits

    def tell(moment: str) -> None:
        answers.write(READY if moment == "ready" else DONE)
        answers.flush()

    try:
        with threadpool_limits(limits=order.threads):
            if order.problem is None:
                document = description(resolve_planner(order.planner, **order.parameters))
            else:
                document = encoded(ask(
                    order.problem, order.planner, seed=order.seed, time_limit=order.time_limit,
                    parameters=order.parameters, told=tell,
                ))
        return _line(document)
    except SlackSwapError as error:
        place = place_of(error, foreign_only=True)
        document = {"error": type(error).__name__, "where": str(error.where),
                    "what": f"{error.what} (at {place})" if place else str(error.what),
                    "fix": str(error.fix)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are a planner's errors too
        document = {"error": "PlannerFailed", "what": told(error), "where": "", "fix": ""}
    return _line(document)


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(plain(document)).encode() + b"\n"


def description(planner: Planner) -> dict[str, Any]:
    """Return what `slackswap.evaluation.run.isolated.Description` holds, as a JSON object."""
    code = getattr(planner, "function", type(planner))
    return {
        "name": str(planner.name),
        "version": str(planner.version),
        "parameters": plain(parameters_of(planner)),
        "capabilities": asdict(planner.capabilities),
        "source": code_digest(code.__module__),
    }


def told(error: BaseException) -> str:
    """Return an error with the file and line it was raised at."""
    place = place_of(error)
    return f"{type(error).__name__}{f' at {place}' if place else ''}: {error}"


def place_of(error: BaseException, *, foreign_only: bool = False) -> str:
    """Return the innermost file and line of an error that is not this package's, if there is one.

    Without `foreign_only`, the innermost of all where there is none.
    """
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [f for f in frames if not os.path.realpath(f.filename).startswith(_OWN_CODE)]
    chosen = foreign or ([] if foreign_only else frames)
    return f"{os.path.basename(chosen[-1].filename)}:{chosen[-1].lineno}" if chosen else ""


def encoded(reply: Reply) -> dict[str, Any]:
    """Return a reply as a JSON object."""
    best = max(reply.bounds, key=lambda bound: bound.value_ns, default=None)
    return {
        "planner": {"name": reply.planner.name, "version": reply.planner.version,
                    "parameters": dict(reply.planner.parameters), "seed": reply.planner.seed},
        "capabilities": asdict(reply.capabilities),
        "status": str(reply.status),
        "plan": None if reply.plan is None else _document(reply.plan),
        "planning_s": reply.planning_s,
        "warm_up_s": reply.warm_up_s,
        "bound": None if best is None else {**best.to_dict(), "bound_gated": best.gated},
        "statistics": reply.statistics,
        "incumbents": [[when, _document(plan)] for when, plan in reply.incumbents],
        "reason": reply.reason,
    }


def decoded(line: bytes) -> Reply | dict[str, Any]:
    """Return the reply or the description that a line of JSON holds.

    Raises
    ------
    SlackSwapError
        What the planner raised; `PlannerFailed` for an answer that cannot be read.
    """
    try:
        document = json.loads(line)
        if "error" in document:
            raise _raised(document)
        if "plan" not in document:
            document["capabilities"] = Capabilities(**document["capabilities"])
            return dict(document)
        planner = PlannerInfo(**document["planner"])
        bound = document["bound"]
        return Reply(
            planner=planner,
            capabilities=Capabilities(**document["capabilities"]),
            status=Status(document["status"]),
            plan=None if document["plan"] is None
            else Plan.from_dict(document["plan"]).with_planner(planner),
            planning_s=_number(document["planning_s"]),
            warm_up_s=_number(document["warm_up_s"]),
            bounds=() if bound is None else (_bound(bound),),
            statistics=dict(document["statistics"]),
            incumbents=tuple(
                (_number(when), Plan.from_dict(plan).with_planner(planner))
                for when, plan in document["incumbents"]
            ),
            reason=str(document["reason"]),
        )
    except SlackSwapError:
        raise
    except Exception as error:  # whatever a planner wrote in place of an answer
        raise PlannerFailed(
            f"its answer cannot be read ({type(error).__name__}: {error})",
            fix="return a slackswap.Plan, and report only statistics, plans and bounds",
        ) from error


def _document(plan: Plan) -> dict[str, Any]:
    return {**plan.to_dict(), "planner": None}


def _raised(document: Mapping[str, Any]) -> SlackSwapError:
    kind = getattr(errors, str(document["error"]), PlannerFailed)
    known = isinstance(kind, type) and issubclass(kind, SlackSwapError)
    error: SlackSwapError = (kind if known else PlannerFailed)(
        str(document["what"]), where=str(document["where"]), fix=str(document["fix"])
    )
    return error


def _number(value: object) -> float:
    return as_number(value, "seconds", PlannerFailed)


def _bound(document: Mapping[str, Any]) -> Bound:
    return Bound(
        value_ns=as_integer(document["bound_ns"], "bound_ns", PlannerFailed),
        method=BoundMethod(document["bound_method"]),
        solver=None if document["bound_solver"] is None else str(document["bound_solver"]),
        status=Status(document["bound_status"]),
        safe=bool(document["bound_safe"]),
        tolerance=_number(document["bound_tolerance"]),
        runtime_s=_number(document["bound_s"]),
        gated=bool(document["bound_gated"]),
        note=str(document["bound_note"]),
    )
