"""The rules of the check kit, one function each. A rule returns, or says what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slackswap.bound import Bound
from slackswap.cost_model.engine import simulate_many
from slackswap.errors import BoundViolated, Skipped
from slackswap.evaluation.check import cases
from slackswap.evaluation.check.cases import Case
from slackswap.evaluation.check.session import (
    PATIENCE_S,
    CheckFailed,
    Observed,
    Session,
)
from slackswap.evaluation.check.spawn import plan_in_child
from slackswap.evaluation.run.child import told
from slackswap.plan import Plan
from slackswap.planner import Planner
from slackswap.profile import Action
from slackswap.registry import FunctionPlanner
from slackswap.solving import TIME_LIMIT_TOLERANCE
from slackswap.status import Status

#: A busy machine may delay any one attempt; a planner that overruns does so every time.
_ATTEMPTS = 3
#: Beyond this multiple of the limit the machine is not to blame.
_HOPELESS = 4


@dataclass(frozen=True, slots=True)
class Rule:
    """One check.

    Attributes
    ----------
    name : str
        Its id.
    promise : str
        What it checks, in one line.
    run : callable
        Raises `CheckFailed` or another error when the rule is broken, `Skipped` when it does not
        apply.
    """

    name: str
    promise: str
    run: Callable[[Session], None]


def valid_plan(session: Session) -> None:
    """Check that every answer is a plan that can be carried out."""
    # `solve` raises for any other.
    for answer in session.answers(cases.ordinary_cases()):
        if answer.solution.plan is None and answer.solution.status is not Status.INFEASIBLE:
            raise CheckFailed(f"returned no plan on {answer.case.name}")


def carries_provenance(session: Session) -> None:
    """Check that a plan says who made it, and survives being written and read."""
    made = [answer for answer in session.answers((*cases.ample_cases(), *cases.ordinary_cases()))
            if answer.solution.plan is not None]
    if not made:
        raise Skipped("the planner made no plan on any problem")
    for answer in made:
        plan = answer.solution.plan
        assert plan is not None
        assert plan.planner is not None
        if not plan.planner.name or not isinstance(plan.planner.name, str):
            raise CheckFailed(f"its name is {plan.planner.name!r}, not a text")
        if not plan.planner.version or not isinstance(plan.planner.version, str):
            raise CheckFailed(f"its version is {plan.planner.version!r}, not a text")
        try:
            copy = Plan.from_dict(json.loads(json.dumps(plan.to_dict(), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise CheckFailed(
                f"its plan cannot be written as JSON ({error})",
                fix="use numbers, texts, lists and mappings as parameters",
            ) from error
        if copy.to_dict() != json.loads(json.dumps(plan.to_dict())):
            raise CheckFailed("its plan does not survive being written and read")


def never_above_budget(session: Session) -> None:
    """Check that neither a plan nor an incumbent needs more memory than the budget."""
    _needs_budget(session.planner)
    for answer in session.answers((*cases.ordinary_cases(), *cases.one_byte_short_cases())):
        _must_fit(answer)
        incumbents = [plan for _, plan in answer.solution.incumbents]
        for score in simulate_many(answer.solution.problem, incumbents):
            if not score.feasible:
                raise CheckFailed(f"an incumbent on {answer.case.name} does not fit: "
                                  f"{score.infeasible}")


def says_infeasible(session: Session) -> None:
    """Check that it raises Infeasible where no plan fits."""
    _needs_budget(session.planner)
    for answer in session.answers(cases.impossible_cases()):
        if answer.solution.plan is not None:
            raise CheckFailed(
                f"returned a plan on {answer.case.name}, which no plan fits",
                fix="raise slackswap.Infeasible with the reason",
            )


def ample_budget_costs_nothing(session: Session) -> None:
    """Check that a plan costs nothing where everything can be kept."""
    _needs_budget(session.planner)
    for answer in session.answers(cases.ample_cases()):
        solution, problem = answer.solution, answer.solution.problem
        if solution.evaluation is None:
            raise CheckFailed(f"has no plan on {answer.case.name}, where keeping everything fits "
                              f"({solution.reason})")
        _must_fit(answer)
        took, needed = solution.evaluation.iteration_ns, problem.profile.duration_ns
        if took != needed:
            raise CheckFailed(f"its plan on {answer.case.name} takes {took} ns instead of "
                              f"{needed} ns, though everything could be kept")


def single_op(session: Session) -> None:
    """Check that profiles of one op are planned."""
    _small(session, cases.single_op_cases(), must_answer=True)


def zero_bytes(session: Session) -> None:
    """Check that tensors without bytes and ops without time do no harm."""
    _small(session, cases.zero_cases())


def one_byte_short(session: Session) -> None:
    """Check that one byte less than keeping everything takes is met, or said to be infeasible."""
    _small(session, cases.one_byte_short_cases())


def same_seed_same_plan(session: Session) -> None:
    """Check that the same seed gives the same plan, also after other problems."""
    for answer in session.answers(cases.repeated_cases()):
        other = session.ask(answer.case, again=True)
        _same(answer, other, "with the same seed")


def same_plan_for_every_seed(session: Session) -> None:
    """Check that the seed does not matter, if it declares itself deterministic."""
    if not session.planner.capabilities.deterministic:
        raise Skipped("it does not declare itself deterministic")
    for answer in session.answers(cases.repeated_cases()):
        other = session.ask(answer.case, seed=session.seed + 1)
        _same(answer, other, "with another seed, though it declares itself deterministic")


def declared_actions_only(session: Session) -> None:
    """Check that plans hold no action that its capabilities rule out."""
    declared = session.planner.capabilities
    if declared.uses_swap and declared.uses_recompute:
        raise Skipped("it declares both actions")
    for answer in session.answers(cases.ordinary_cases()):
        plan, graph = answer.solution.plan, answer.solution.problem.profile.graph
        if plan is None:
            continue
        index_of = answer.solution.problem.profile.index_of
        for name, action in plan.actions.items():
            if action is Action.SWAP and not declared.uses_swap:
                raise CheckFailed(f"swaps {name!r} on {answer.case.name}, but declares "
                                  f"uses_swap=False")
            recomputed = action is Action.RECOMPUTE and graph.is_saved[index_of[name]]
            if recomputed and not declared.uses_recompute:
                raise CheckFailed(f"recomputes {name!r} on {answer.case.name}, but declares "
                                  f"uses_recompute=False")


def input_not_mutated(session: Session) -> None:
    """Check that nothing of the problem is changed, arrays included."""
    try:
        answers = session.answers(cases.ordinary_cases())
    except (TypeError, ValueError) as error:
        if "read-only" not in str(error):
            raise
        raise CheckFailed(
            f"changed problem.profile.graph or what else is shared ({told(error)})",
            fix="work on a copy",
        ) from error
    for answer in answers:
        if answer.mutated:
            raise CheckFailed(f"changed {answer.mutated} on {answer.case.name}",
                              fix="work on a copy")


def global_random_state_untouched(session: Session) -> None:
    """Check that the global generators of random, NumPy and PyTorch are left alone."""
    for answer in session.answers(cases.ordinary_cases()):
        if answer.touched:
            raise CheckFailed(f"changed the global state of {answer.touched} on "
                              f"{answer.case.name}", fix="draw from the rng that plan() is given")


def picklable_under_spawn(session: Session) -> None:
    """Check that it can be pickled, and plans the same in a new process."""
    planner = session.planner
    maker = planner.function if isinstance(planner, FunctionPlanner) else type(planner)
    if maker.__module__ == "__main__":
        raise Skipped("it is defined in a script or notebook, which no new process can import")
    answer = session.answers(cases.ordinary_cases())[0]
    target = session.target if isinstance(session.target, str) else None
    plan = plan_in_child(planner, target, answer.case.build(), seed=session.seed,
                         timeout=PATIENCE_S)
    _equal(answer.solution.plan, plan, answer.case, "in a new process")


def keeps_time_limit(session: Session) -> None:
    """Check that it returns within its time limit, a fifth more at most."""
    limit = session.time_limit
    took = []
    for _ in range(_ATTEMPTS):
        answer = session.observe(cases.long_case(), time_limit=limit)
        if answer.declined:
            raise Skipped(f"the planner declined the problem ({answer.solution.reason})")
        took.append(answer.solution.planning_s)
        if took[-1] <= TIME_LIMIT_TOLERANCE * limit:
            return
        if took[-1] > _HOPELESS * limit:
            break
    raise CheckFailed(f"took {min(took):.3g} s at best with a limit of {limit:g} s",
                      fix="look at the clock while working, and return the best plan so far")


def bound_below_optimum(session: Session) -> None:
    """Check that no bound it reports is above the time of the best of all plans."""
    from slackswap.search.enumeration import enumerate_plans

    promised = session.planner.capabilities.gives_bound
    bounds = 0
    try:
        for answer in session.answers(cases.enumerable_cases()):
            bound = answer.solution.bound
            if bound is None:
                continue
            bounds += 1
            best = enumerate_plans(answer.case.build()).iteration_ns
            _must_not_exceed(bound, best, answer.case)
    except BoundViolated as error:
        raise CheckFailed(error.what, where=error.where,
                          fix="report only bounds that are proven") from error
    if promised and not bounds:
        raise CheckFailed("declares gives_bound=True, but reported no bound on any problem",
                          fix="call report.bound(...), or declare gives_bound=False")
    if not bounds:
        raise Skipped("it reports no bound")


def monotone_as_declared(session: Session) -> None:
    """Check that it is never slower at a larger budget, if it declares itself monotone.

    The promise is for hardware without contention, as that of the cases is.
    """
    if not session.planner.capabilities.monotone:
        raise Skipped("it does not declare itself monotone")
    for profile, ladder in cases.budget_ladders().items():
        reached: tuple[int, Case] | None = None
        for answer in [session.ask(case) for case in ladder]:
            score = answer.solution.evaluation
            took = None if score is None else score.iteration_ns
            if reached is not None and (took is None or took > reached[0]):
                slower = "has no plan" if took is None else f"takes {took} ns"
                raise CheckFailed(f"{slower} at {answer.case.name}, but took {reached[0]} ns at "
                                  f"{reached[1].name} ({profile})")
            if took is not None:
                reached = (took, answer.case)


def _needs_budget(planner: Planner) -> None:
    if not planner.capabilities.uses_budget:
        raise Skipped("it declares that it does the same whatever the budget")


def _must_fit(answer: Observed) -> None:
    score = answer.solution.evaluation
    if score is not None and not score.feasible:
        raise CheckFailed(
            f"its plan on {answer.case.name} does not fit: {score.infeasible}",
            fix="check it with slackswap.simulate, and raise slackswap.Infeasible if nothing fits",
        )


def _small(session: Session, chosen: tuple[Case, ...], *, must_answer: bool = False) -> None:
    for answer in session.answers(chosen):
        if session.planner.capabilities.uses_budget:
            _must_fit(answer)
            if must_answer and answer.solution.plan is None:
                raise CheckFailed(f"has no plan on {answer.case.name} ({answer.solution.reason})")


def _same(first: Observed, second: Observed, how: str) -> None:
    _equal(first.solution.plan, second.solution.plan, first.case, how)


def _equal(first: Plan | None, second: Plan | None, case: Case, how: str) -> None:
    # Who made a plan includes the seed.
    if _anonymous(first) != _anonymous(second):
        raise CheckFailed(f"its plan on {case.name} differs {how}",
                          fix="draw only from the rng that plan() is given, and keep no state")


def _anonymous(plan: Plan | None) -> Plan | None:
    return None if plan is None else replace(plan, planner=None)


def _must_not_exceed(bound: Bound, best: int | None, case: Case) -> None:
    if bound.status is Status.INFEASIBLE:
        if best is not None:
            raise CheckFailed(f"its bound says that no plan fits {case.name}, but one does")
    elif best is not None and bound.value_ns > best * (1 + bound.tolerance):
        raise CheckFailed(f"its bound on {case.name} is {bound.value_ns} ns, above the best of "
                          f"all plans: {best} ns", fix="report only bounds that are proven")


def _rules(functions: Iterable[Callable[[Session], None]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            function.__name__.replace("_", "-"),
            (function.__doc__ or "").splitlines()[0].removeprefix("Check that ").rstrip("."),
            function,
        )
        for function in functions
    )


#: All checks. The one of the time limit comes first: a planner that never returns is told so.
RULES = _rules((
    keeps_time_limit,
    valid_plan,
    carries_provenance,
    never_above_budget,
    says_infeasible,
    ample_budget_costs_nothing,
    single_op,
    zero_bytes,
    one_byte_short,
    same_seed_same_plan,
    same_plan_for_every_seed,
    declared_actions_only,
    input_not_mutated,
    global_random_state_untouched,
    picklable_under_spawn,
    bound_below_optimum,
    monotone_as_declared,
))
