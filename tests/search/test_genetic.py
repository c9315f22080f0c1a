"""The genetic search: repeatable, bounded, resumable, and never worse than its seeds."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest
from drawing import random_case
from hypothesis import given, settings, strategies as st

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    Infeasible,
    InvalidFile,
    InvalidPlanner,
    Plan,
    Problem,
    Profile,
    Status,
    Tensor,
    load_hardware,
    load_profile,
    register,
    simulate,
    solve,
    unregister,
)
from slackswap.cost_model.scorer import Scorer
from slackswap.profiles.generators.random_dag import UNRESTRICTED, layered_profile, random_profile
from slackswap.result import Phase
from slackswap.search.enumeration import enumerate_plans
from slackswap.search.genetic import evolution
from slackswap.search.genetic.checkpoint import Checkpoint
from slackswap.search.genetic.evolution import Outcome, Stop, evolve
from slackswap.search.genetic.population import Individual, grade_genomes
from slackswap.search.genetic.space import Space
from slackswap.search.genetic.state import Settings
from slackswap.search.genetic_planner import GeneticSeeded, without_idle

SEEDS = st.integers(0, 2**40)
LINK = Hardware("link of 2 GB/s", 2 * 10**9, 2 * 10**9, latency_ns=10_000)
FEW = Settings(evaluations=330, population=20, offspring=25)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(layered_profile(60, random.Random(1)), LINK, 0.5)


def figures(outcome: Outcome) -> tuple[object, ...]:
    """All of an outcome, comparable."""
    return (
        outcome.best.tobytes(), outcome.grade, outcome.candidates, outcome.proposed,
        outcome.stopped, outcome.logbook,
        [(codes.tobytes(), grade) for codes, grade in outcome.hall],
    )


# ---------------------------------------------------------------------- repeatable


def test_same_seed_same_search_and_another_seed_another(problem):
    first, again, other = (evolve(problem, FEW, random.Random(s)) for s in (1, 1, 2))
    assert figures(first) == figures(again)
    assert figures(first) != figures(other)


def test_serial_and_parallel_are_the_same(problem):
    serial = evolve(problem, FEW, random.Random(1))
    parallel = evolve(problem, replace(FEW, jobs=3), random.Random(1))
    assert figures(serial) == figures(parallel)


def test_same_seed_same_plan_file_whatever_the_jobs(problem):
    plans = [
        solve(problem, "genetic", seed=7, evaluations=200, jobs=jobs).plan for jobs in (1, 1, 2)
    ]
    texts = {json.dumps(replace(plan, planner=None).to_dict()) for plan in plans}
    assert len(texts) == 1


def test_incumbents_do_not_disturb_the_search(problem):
    seen = []
    watched = evolve(problem, FEW, random.Random(1),
                     on_incumbent=lambda codes, time: seen.append((codes.copy(), time)))
    assert figures(watched) == figures(evolve(problem, FEW, random.Random(1)))
    times = [time for _, time in seen]
    assert times == sorted(set(times), reverse=True)
    assert times[-1] == watched.grade[1]
    scores = Scorer(problem).score(np.array([codes for codes, _ in seen]))
    assert scores.feasible.all()
    assert scores.iteration_ns.tolist() == times


# ---------------------------------------------------------------------- what is counted


def test_no_candidate_is_scored_twice_and_all_are_counted(problem, monkeypatch):
    scored = []

    def spy(genomes, **options):
        scored.extend(genome.tobytes() for genome in genomes)
        return grade_genomes(genomes, **options)

    monkeypatch.setattr(evolution, "grade_genomes", spy)
    outcome = evolve(problem, FEW, random.Random(1))
    assert len(scored) == len(set(scored)) == outcome.candidates == FEW.evaluations
    assert outcome.proposed >= outcome.candidates
    assert outcome.stopped is Stop.EVALUATIONS


@pytest.mark.parametrize("limit", [1, 19, 20, 21, 45, 46])
def test_the_evaluation_limit_is_met_exactly(problem, limit):
    outcome = evolve(problem, replace(FEW, evaluations=limit), random.Random(1))
    assert outcome.candidates == limit
    assert outcome.logbook[-1]["candidates"] == limit


def test_the_logbook_follows_the_search(problem):
    outcome = evolve(problem, FEW, random.Random(1))
    assert [record["generation"] for record in outcome.logbook] == list(range(len(outcome.logbook)))
    best = [record["best_ns"] for record in outcome.logbook if record["best_ns"] is not None]
    assert best == sorted(best, reverse=True)
    assert best[-1] == outcome.grade[1] == outcome.hall[0][1][1]
    last = outcome.logbook[-1]
    assert last["best_ns"] <= last["median_ns"] <= last["worst_ns"]


def test_the_hall_of_fame_holds_different_plans_best_first(problem):
    outcome = evolve(problem, FEW, random.Random(1))
    grades = [grade for _, grade in outcome.hall]
    assert grades == sorted(set(grades))
    assert len(grades) == 10
    scores = Scorer(problem).score(np.array([codes for codes, _ in outcome.hall]))
    assert scores.iteration_ns.tolist() == [time for _, time in grades]


def test_a_longer_search_is_never_worse(problem):
    grades = [
        evolve(problem, replace(FEW, evaluations=n), random.Random(3)).grade
        for n in (20, 45, 120, 300)
    ]
    assert grades == sorted(grades, reverse=True)


# ---------------------------------------------------------------------- time


class Clock:
    """A clock that advances one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize(("limit", "generations"), [(0.5, 1), (1.5, 1), (3.0, 2), (9.5, 8)])
def test_a_generation_that_would_end_too_late_is_not_begun(problem, limit, generations):
    # Read once at the start and once before each generation: a generation takes a second.
    outcome = evolve(problem, FEW, random.Random(1), time_limit=limit, clock=Clock())
    assert outcome.stopped is Stop.TIME
    assert len(outcome.logbook) == generations


def test_a_search_cut_by_time_is_the_beginning_of_the_whole(problem):
    whole = evolve(problem, FEW, random.Random(1))
    cut = evolve(problem, FEW, random.Random(1), time_limit=6.0, clock=Clock())
    assert cut.logbook == whole.logbook[: len(cut.logbook)]


# ---------------------------------------------------------------------- ends


def test_a_plan_without_overhead_ends_the_search():
    problem = Problem(layered_profile(20, random.Random(1)), LINK, "200%")
    outcome = evolve(problem, Settings(), random.Random(1))
    assert outcome.stopped is Stop.OPTIMAL
    assert outcome.grade == (0, problem.profile.duration_ns)


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_are_solved_to_the_optimum(seed):
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(3, 6), traits=UNRESTRICTED)
    problem = Problem(profile, Hardware("toy", 10**9, 10**9), rng.choice((0.7, 0.85, 1.0)))
    best = enumerate_plans(problem).iteration_ns
    outcome = evolve(problem, Settings(evaluations=4000), random.Random(seed))
    assert (None if outcome.grade[0] else outcome.grade[1]) == best


def test_an_impossible_budget_is_an_answer(problem):
    solution = solve(problem.with_budget(1), "genetic", evaluations=100)
    assert solution.status is Status.INFEASIBLE
    assert "none of 100 candidates fits" in solution.reason
    assert solution.statistics["candidates"] == 100


def test_a_profile_that_leaves_no_choice_is_scored_once():
    profile = Profile(
        "fixed", "random", (Tensor("a", 8, ("keep",)),), (ForwardOp("f", 3, (), (0,)),),
        (BackwardOp("b", 5, (0,)),),
    )
    outcome = evolve(Problem(profile, LINK), Settings(), random.Random(0))
    assert outcome.candidates == 1
    assert outcome.grade == (0, 8)
    tight = evolve(Problem(profile, LINK, 7), Settings(), random.Random(0))
    assert tight.stopped is Stop.EXHAUSTED
    assert tight.grade[0] == 1


# ---------------------------------------------------------------------- grades


@settings(max_examples=150)
@given(SEEDS)
def test_the_grade_of_a_plan_that_fits_is_its_time(seed):
    case = random_case(seed, ordered=False)
    scorer = Scorer(case.problem)
    try:
        space = Space.of(scorer)
    except Infeasible:
        return
    codes = scorer.encode(case.plan)
    scores = scorer.score(codes)
    if not scores.valid[0]:
        return
    short, time = grade_genomes([space.genome(codes)], scorer=scorer, space=space)[0]
    assert (short == 0) == bool(scores.feasible[0])
    if short == 0:
        assert time == simulate(case.problem, case.plan).iteration_ns
    else:
        assert short >= scores.shortfall_bytes[0]


def test_grades_order_plans_by_how_nearly_they_fit(problem):
    scorer = Scorer(problem)
    space = Space.of(scorer)
    keep_all = np.where(scorer.graph.is_intermediate, 2, 0).astype(np.int8)
    saved = np.flatnonzero(scorer.graph.is_saved)
    misfits = []
    # Ever fewer of the layers' tensors are kept: ever nearer to ending the forward pass.
    for count in range(0, len(saved), 4):
        codes = keep_all.copy()
        codes[saved[len(saved) - count :]] = 2
        if scorer.score(codes).evaluation(0).infeasible.phase is Phase.FORWARD:
            misfits += grade_genomes([space.genome(codes)], scorer=scorer, space=space)
        else:
            break
    bytes_short = [short for short, _ in misfits]
    assert len(set(bytes_short)) > 3
    assert bytes_short == sorted(bytes_short, reverse=True)


def test_what_is_swapped_beyond_the_host_counts_as_short(problem):
    ample = Problem(problem.profile, replace(LINK, host_bytes=1000), None)
    scorer = Scorer(ample)
    space = Space.of(scorer)
    swapped = np.where(scorer.allowed[:, 1] & scorer.graph.is_saved, 1, scorer.default)
    codes = swapped.astype(np.int8)
    (short, _), = grade_genomes([space.genome(codes)], scorer=scorer, space=space)
    assert short == int(scorer.graph.nbytes[codes == 1].sum()) - 1000


def test_an_op_that_cannot_run_again_is_worse_than_any_lack_of_memory():
    for seed in itertools.count():
        case = random_case(seed, ordered=False)
        scorer = Scorer(case.problem)
        codes = scorer.encode(case.plan)
        if scorer.score(codes).table[0, 0] == 4:  # CANNOT_RUN_AGAIN
            break
    space = Space.of(Scorer(case.problem))
    genome = np.array([choices[0] for choices in space.choices], dtype=np.int8)
    bad = grade_genomes([codes[space.tensor]], scorer=scorer, space=space)[0]
    tight = Scorer(case.problem.with_budget(1))
    short = grade_genomes([genome], scorer=tight, space=space)[0]
    assert short[0] > 0
    assert bad > short


def test_fitness_compares_exactly_beyond_floats():
    genome = np.zeros(1, dtype=np.int8)
    first, second = Individual(genome, (0, 2**60)), Individual(genome, (0, 2**60 + 1))
    assert first.fitness > second.fitness
    assert second.grade == (0, 2**60 + 1)


# ---------------------------------------------------------------------- checkpoints


class Interrupted(Exception):
    pass


def interrupt_after(calls, monkeypatch):
    """Let the search die while it scores its generation number `calls`."""
    count = itertools.count()

    def dying(genomes, **options):
        if next(count) == calls:
            raise Interrupted
        return grade_genomes(genomes, **options)

    monkeypatch.setattr(evolution, "grade_genomes", dying)


@pytest.mark.parametrize("calls", [3, 4, 9])
def test_an_interrupted_search_ends_as_if_it_had_not_been(problem, calls, tmp_path, monkeypatch):
    whole = evolve(problem, FEW, random.Random(1))
    path = tmp_path / "search.json"
    with monkeypatch.context() as patch:
        interrupt_after(calls, patch)
        with pytest.raises(Interrupted):
            evolve(problem, FEW, random.Random(1), checkpoint=path, checkpoint_every=2)
    assert path.exists()
    resumed = evolve(problem, FEW, random.Random(1), checkpoint=path)
    assert figures(resumed) == figures(whole)


@pytest.mark.parametrize("first", [20, 45, 133, 330])
def test_a_finished_search_goes_on_with_a_higher_limit(problem, first, tmp_path):
    path = tmp_path / "search.json"
    evolve(problem, replace(FEW, evaluations=first), random.Random(1), checkpoint=path)
    resumed = evolve(problem, FEW, random.Random(1), checkpoint=path)
    assert figures(resumed) == figures(evolve(problem, FEW, random.Random(1)))


def test_a_search_cut_by_time_goes_on(problem, tmp_path):
    path = tmp_path / "search.json"
    evolve(problem, FEW, random.Random(1), time_limit=6.0, clock=Clock(), checkpoint=path)
    resumed = evolve(problem, FEW, random.Random(1), checkpoint=path)
    assert figures(resumed) == figures(evolve(problem, FEW, random.Random(1)))


def test_the_planner_goes_on_from_its_checkpoint(problem, tmp_path):
    path = str(tmp_path / "search.json")
    parameters = {"population": 20, "offspring": 25, "seed": 5}
    solve(problem, "genetic", evaluations=100, checkpoint=path, **parameters)
    resumed = solve(problem, "genetic", evaluations=330, checkpoint=path, **parameters)
    whole = solve(problem, "genetic", evaluations=330, **parameters)
    assert replace(resumed.plan, planner=None) == replace(whole.plan, planner=None)
    assert resumed.statistics == whole.statistics


def test_another_search_refuses_the_checkpoint(problem, tmp_path):
    path = tmp_path / "search.json"
    evolve(problem, FEW, random.Random(1), checkpoint=path)
    for other, tuned, seed, name in (
        (problem, FEW, 2, "random"),
        (problem.with_budget(0.6), FEW, 1, "budget_bytes"),
        (problem.with_hardware(replace(LINK, latency_ns=0)), FEW, 1, "hardware"),
        (problem, replace(FEW, offspring=30), 1, "settings"),
    ):
        with pytest.raises(InvalidFile, match=f"its {name} differs"):
            evolve(other, tuned, random.Random(seed), checkpoint=path)


@pytest.mark.parametrize(("field", "value"), [
    ("random_words", [0] * 625), ("random_words", [1] * 3), ("population", []),
    ("population", [{"genome": "012", "short_bytes": 0, "time": 1}]),
    ("memo", {"zz": [0, 1]}), ("proposed", -1), ("logbook", None), ("schema", "other"),
])
def test_a_damaged_checkpoint_is_named(problem, field, value, tmp_path):
    path = tmp_path / "search.json"
    evolve(problem, FEW, random.Random(1), checkpoint=path)
    document = json.loads(path.read_text())
    if field == "random_words" and len(value) == 625:
        value = [*value[:-1], 99_999]  # a place outside the generator's table
    document[field] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidFile, match=r"search\.json"):
        evolve(problem, FEW, random.Random(1), checkpoint=path)


def test_a_checkpoint_survives_being_read_and_written(problem, tmp_path):
    path, copy = tmp_path / "search.json", tmp_path / "copy.json"
    evolve(problem, FEW, random.Random(1), checkpoint=path)
    space = Space.of(Scorer(problem))
    stores = [Checkpoint.of(p, problem, FEW, [], random.Random(1)) for p in (path, copy)]
    stores[1].save(stores[0].load(space))
    assert copy.read_bytes() == path.read_bytes()


# ---------------------------------------------------------------------- seeds


@settings(max_examples=25)
@given(SEEDS)
def test_seeded_is_never_worse_than_its_seeds(seed):
    problem = random_case(seed).problem
    names = ("slackswap", "vdnn-all", "capuchin", "keep-all", "swap-all")
    seeded = solve(problem, GeneticSeeded(evaluations=30, population=10, seeds=names))
    times = []
    for name in names:
        evaluation = solve(problem, name).evaluation
        if evaluation is not None and evaluation.feasible:
            times.append(evaluation.iteration_ns)
    if times:
        assert seeded.evaluation.iteration_ns <= min(times)
    found = seeded.statistics["seeds"]
    assert sorted(time for time in found.values() if isinstance(time, int)) == sorted(times)


def test_missing_and_unfitting_seeds_are_reported_and_skipped(problem):
    solution = solve(
        problem, "genetic-seeded", evaluations=60,
        seeds=["no-such-planner", "keep-all", "slackswap"],
    )
    found = solution.statistics["seeds"]
    assert "no planner is called 'no-such-planner'" in found["no-such-planner"]
    assert "does not fit" in found["keep-all"]
    assert found["slackswap"] == solve(problem, "slackswap").evaluation.iteration_ns
    assert solution.evaluation.iteration_ns <= found["slackswap"]
    assert solution.statistics["mode"] == "seeded"


def test_without_a_seed_that_fits_the_search_starts_at_random(problem):
    solution = solve(problem, "genetic-seeded", evaluations=300, seeds=["keep-all"])
    assert solution.evaluation.feasible


def test_a_seed_that_its_gates_make_faster_is_kept():
    problem, gated = problem_with_a_useful_gate()
    register("gated-seed")(lambda problem, *, rng, time_limit, report: gated)
    try:
        # One candidate: the seed's actions without its gates, which take longer.
        solution = solve(problem, "genetic-seeded", evaluations=1, seeds=["gated-seed"])
    finally:
        unregister("gated-seed")
    assert solution.statistics["hall_of_fame_ns"] == [
        simulate(problem, Plan(gated.actions)).iteration_ns
    ]
    assert replace(solution.plan, planner=None) == gated


def problem_with_a_useful_gate() -> tuple[Problem, Plan]:
    """Find one of the rare plans that their gates make faster."""
    for seed in range(3700, 20_000):
        case = random_case(seed)
        if case.plan.has_order:
            scorer = Scorer(case.problem)
            gated = scorer.score_plans([case.plan])
            bare = scorer.score_plans([Plan(case.plan.actions)])
            if gated.feasible[0] and bare.feasible[0] and (
                gated.iteration_ns[0] < bare.iteration_ns[0]
            ):
                return case.problem, case.plan
    raise AssertionError("no such plan: draw more")


# ---------------------------------------------------------------------- parameters, tidying


@pytest.mark.parametrize("parameters", [
    {"evaluations": 0}, {"population": 0}, {"offspring": 2.5}, {"crossover": 1.5}, {"jobs": True},
    {"mutations": ()}, {"crossovers": ("nothing",)},
])
def test_settings_check_themselves(parameters):
    (name,) = parameters
    with pytest.raises(InvalidPlanner, match=name):
        Settings(**parameters)


@settings(max_examples=150)
@given(SEEDS)
def test_dropping_what_nothing_would_miss_changes_nothing(seed):
    case = random_case(seed, ordered=False)
    scorer = Scorer(case.problem)
    codes = scorer.encode(case.plan)
    before = scorer.score(codes)
    if not before.valid[0]:
        return
    tidy = without_idle(case.problem, codes)
    after = scorer.score(tidy)
    assert (after.table == before.table).all()
    assert (without_idle(case.problem, tidy) == tidy).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl", "llama-7b"])
def test_the_cold_search_ends_near_the_proven_bound(name):
    from slackswap.search.bounds import lower_bound

    problem = Problem(load_profile(name), load_hardware("a100-80gb"), 0.5)
    solution = solve(problem, "genetic")
    assert solution.statistics["mode"] == "cold"
    assert solution.statistics["candidates"] == 14_000
    assert solution.gap_to(lower_bound(problem)) <= 0.02
