import json
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    Plan,
    Problem,
    Profile,
    Tensor,
    load_hardware,
    load_profile,
    simulate,
)
from slackswap.profiles import (
    deep_chain_profile,
    profile_figure,
    random_profile,
    summarise,
    write_profile_plot,
)
from slackswap.profiles.summary import closure_times, recompute_prices

LINK = Hardware("toy", d2h_bytes_per_s=10**9, h2d_bytes_per_s=10**9, device_bytes=1000)


@pytest.fixture(scope="module")
def profile():
    """A block of a saved x, an intermediate r = x + 1, and two saved functions of r."""
    return Profile(
        "small", "random",
        (Tensor("in", 10), Tensor("x", 40), Tensor("r", 40), Tensor("a", 20), Tensor("b", 100),
         Tensor("none", 0)),
        (ForwardOp("x", 100, (0,), (1,), layer=0, kind="gemm"),
         ForwardOp("r", 3, (1,), (2,), layer=0, kind="elementwise"),
         ForwardOp("a1", 5, (2,), (3, 5), layer=1, kind="norm"),
         ForwardOp("b", 7, (2, 3), (4,), layer=1, recomputable=False)),
        (BackwardOp("b'", 10, (4, 5), 8), BackwardOp("a'", 20, (3,)), BackwardOp("x'", 30, (1,))),
        {"description": "by hand", "assumptions": ["none"]},
        static_bytes=900,
    )


def brute_force_time(profile, op):
    """Follow producers through intermediates, one op at a time."""
    graph = profile.graph
    todo, closure = [op], set()
    while todo:
        i = todo.pop()
        if i in closure:
            continue
        closure.add(i)
        todo += [
            int(graph.producer[t]) for t in profile.forward[i].reads
            if not graph.is_input[t] and not graph.is_saved[t]
        ]
    if not all(profile.forward[i].recomputable for i in closure):
        return None
    return sum(profile.forward[i].duration_ns for i in closure)


def test_totals(profile):
    summary = summarise(profile, LINK)
    assert (summary.forward_ops, summary.backward_ops, summary.tensors) == (4, 3, 6)
    assert (summary.forward_ns, summary.backward_ns) == (115, 60)
    assert (summary.saved_bytes, summary.intermediate_bytes, summary.input_bytes) == (160, 40, 10)
    assert summary.keep_all_peak_bytes == 10 + 40 + 40 + 20 + 100
    assert (summary.link_bytes, summary.hideable_bytes) == (115, 115)
    assert summary.hideable_fraction == 115 / 160
    assert summary.fits_device is False
    assert (summary.description, summary.assumptions) == ("by hand", ("none",))


def test_shares(profile):
    summary = summarise(profile, LINK)
    assert [(s.label, s.tensors, s.nbytes) for s in summary.saved_by_kind] == [
        ("-", 1, 100), ("gemm", 1, 40), ("norm", 2, 20)
    ]
    assert [(s.label, s.nbytes) for s in summary.saved_by_layer] == [("0", 40), ("1", 120)]


def test_prices_follow_closures(profile):
    assert [(p.op, p.nbytes, p.closure_ns) for p in recompute_prices(profile)] == [
        ("a1", 20, 8), ("x", 40, 100), ("b", 100, None)
    ]
    summary = summarise(profile, LINK)
    assert [price.op for price in summary.cheapest(1)] == ["a1"]
    assert [price.op for price in summary.dearest(2)] == ["b", "x"]
    assert summary.prices[1].ns_per_mb == 2.5e6


def test_prices_are_what_the_referee_charges(profile):
    """Recompute one op's tensors and keep the rest: the price is the recompute time."""
    graph = profile.graph
    for index, op in enumerate(profile.forward):
        names = [profile.tensors[t].name for t in op.writes if graph.is_saved[t]]
        if not names or not op.recomputable:
            continue
        plan = Plan(dict.fromkeys(names, "recompute"))
        evaluation = simulate(Problem(profile, LINK), plan, engine="reference")
        assert evaluation.recompute_ns == closure_times(graph)[index]


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_closure_times_agree_with_a_walk(seed):
    profile = random_profile(np.random.default_rng(seed))
    found = closure_times(profile.graph)
    assert found == [brute_force_time(profile, op) for op in range(len(profile.forward))]


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_closure_times_where_paths_part_and_meet(seed):
    """Dense graphs of intermediates, whose closures overlap in every way."""
    rng = random.Random(seed)
    count = rng.randint(2, 14)
    forward = [
        ForwardOp(
            f"op{i}", rng.randint(0, 50),
            tuple(rng.sample(range(i), min(i, rng.randint(0, 3)))), (i,),
            recomputable=rng.random() < 0.95,
        )
        for i in range(count)
    ]
    saved = tuple(i for i in range(count) if rng.random() < 0.2)
    profile = Profile(
        "dense", "random", tuple(Tensor(f"t{i}", 1) for i in range(count)), tuple(forward),
        (BackwardOp("all", 1, saved),),
    )
    found = closure_times(profile.graph)
    assert found == [brute_force_time(profile, op) for op in range(count)]


def test_long_chains_are_priced_to_their_start():
    profile = deep_chain_profile(2000)
    assert closure_times(profile.graph)[-1] == brute_force_time(profile, 1999)


def test_equal_layers_stand_together():
    summary = summarise(load_profile("bert-large"), load_hardware("a100-80gb"))
    gelu = next(price for price in summary.prices if price.op == "layer*.gelu")
    assert (gelu.ops, gelu.kind) == (24, "elementwise")
    assert sum(price.ops * price.nbytes for price in summary.prices) == summary.saved_bytes
    matter = [price.ops * price.nbytes >= summary.saved_bytes / 1000 for price in summary.dearest()]
    assert all(matter)


def test_to_dict_is_json(profile):
    document = json.loads(json.dumps(summarise(profile, LINK).to_dict(count=1), allow_nan=False))
    assert document["dearest"][0]["ns_per_mb"] is None
    assert document["cheapest"] == [
        {"op": "a1", "kind": "norm", "ops": 1, "nbytes": 20, "closure_ns": 8, "ns_per_mb": 4e5}
    ]
    assert document["hideable_bytes"] == 115


def test_an_empty_profile_has_a_summary_and_a_figure():
    empty = Profile("empty", "random", (), (), ())
    summary = summarise(empty, load_hardware("a100-80gb"))
    assert (summary.saved_bytes, summary.hideable_fraction, summary.prices) == (0, 1.0, ())
    assert profile_figure(empty, load_hardware("a100-80gb")).data


def test_figure_shows_what_the_summary_says(profile):
    figure = profile_figure(profile, LINK)
    bars = {trace.name: list(zip(trace.x, trace.y, strict=True))
            for trace in figure.data if trace.type == "bar"}
    assert bars == {"-": [("1", 1e-7)], "gemm": [("0", 4e-8)], "norm": [("1", 2e-8)]}
    memory = figure.data[len(bars)]
    assert max(memory.y) == pytest.approx(210e-9)
    assert memory.x[-1] == pytest.approx(175e-6)


def test_long_memory_curves_keep_their_peak():
    profile = deep_chain_profile(6000)
    hardware = load_hardware("a100-80gb")
    curve = next(t for t in profile_figure(profile, hardware).data if t.type == "scatter")
    assert len(curve.x) < 5000
    assert max(curve.y) == pytest.approx(Problem(profile, hardware).keep_all_peak_bytes / 1e9)


def test_plot_is_one_self_contained_file(tmp_path):
    tricky = Profile("<script>alert(1)</script>", "random", (Tensor("t", 1),),
                     (ForwardOp("<b>op</b>", 1, (), (0,), kind="<i>"),),
                     (BackwardOp("back", 1, (0,)),))
    path = tmp_path / "plot.html"
    write_profile_plot(tricky, LINK, path)
    page = path.read_text()
    assert page.rstrip().endswith("</html>")
    assert "<script src=" not in page
    assert "<script>alert" not in page
    assert "<b>op" not in page
