"""Claims: every verdict follows the results, whichever way they point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from results_for_tests import facts_of, frame_of, made_up, made_up_bound, made_up_facts

from slackswap.evaluation.analysis.claim_rules import CLAIMS, judge_claims
from slackswap.evaluation.analysis.claims import PAPER_MODELS, Judged, Verdict
from slackswap.evaluation.analysis.claims_text import claims_markdown
from slackswap.evaluation.run.record import Record
from slackswap.status import Status

SWAPPERS = ("vdnn-all", "superneurons", "swapadvisor")


def _judge(*records: Record) -> Mapping[str, Judged]:
    return {
        entry.claim.name: entry
        for entry in judge_claims(frame_of(*records), facts_of(*records))
    }


def _verdict(name: str, *records: Record) -> Verdict:
    return _judge(*records)[name].finding.verdict


def _on_models(planner: str, times: Sequence[float | None], **options: object) -> list[Record]:
    return [
        made_up(planner, model, time=time, **options)  # type: ignore[arg-type]
        for model, time in zip(PAPER_MODELS, times, strict=True)
    ]


def _stalling(planner: str, share: float, **options: object) -> list[Record]:
    figures = {"stall_forward_ns": round(share * 1_250_000), "stall_backward_ns": 0}
    return _on_models(planner, (1.25,) * 3, figures=figures, **options)


def test_without_results_only_the_catalogue_can_be_judged() -> None:
    judged = _judge()
    tested = {name for name, e in judged.items() if e.finding.verdict is not Verdict.NOT_TESTABLE}
    assert tested == {"compute growth", "link growth"}
    assert all(judged[name].finding.verdict is Verdict.REPRODUCED for name in tested)


@pytest.mark.parametrize(("whole", "verdict"), [
    (0.99, Verdict.REPRODUCED), (1.04, Verdict.REPRODUCED), (0.8, Verdict.DIFFERS),
])
def test_vgg(whole: float, verdict: Verdict) -> None:
    assert _verdict("VGG-16 on Titan X", made_up_facts("vgg16", "titan-x", 1.0, whole)) is verdict


@pytest.mark.parametrize(("shares", "verdict"), [
    ((0.114, 0.17, 0.376), Verdict.REPRODUCED), ((0.121, 0.17, 0.38), Verdict.DIFFERS),
    ((0.11, 0.17, 0.45), Verdict.DIFFERS),
])
def test_hideable(shares: Sequence[float], verdict: Verdict) -> None:
    facts = [made_up_facts(m, "a100-80gb", s, s) for m, s in zip(PAPER_MODELS, shares, strict=True)]
    assert _verdict("hideable on A100", *facts) is verdict
    assert _verdict("hideable on A100", *facts[:2]) is Verdict.NOT_TESTABLE


def test_another_link_is_another_hardware() -> None:
    """The claims are about the catalogue's A100; only a named variant may change it."""
    slow = [made_up_facts(m, "a100-80gb link x0.2", 0.2, 0.2) for m in PAPER_MODELS]
    assert _verdict("hideable on A100", *slow) is Verdict.NOT_TESTABLE
    plans = _on_models("slackswap", (1.04, 1.02, 1.0), hardware="a100-80gb half duplex")
    assert _verdict("throughput at half", *plans) is Verdict.NOT_TESTABLE


def test_throughput_at_half() -> None:
    good = _on_models("slackswap", (1.04, 1.02, 1.0))
    assert _verdict("throughput at half", *good) is Verdict.REPRODUCED
    poor = _on_models("slackswap", (1.08, 1.02, 1.0))
    finding = _judge(*poor)["throughput at half"].finding
    assert finding.verdict is Verdict.DIFFERS
    assert "bert-large below 96%" in finding.why
    assert "no plan" not in finding.why
    # With a bound in the way the reason says so, with its figure.
    capped = _judge(*poor, made_up_bound("bert-large", time=1.06))["throughput at half"].finding
    assert "94.3%" in capped.why


def test_best_of_the_four_takes_the_best_of_each_model() -> None:
    records = [
        *_on_models("slackswap", (1.0, 1.0, 1.0)),
        *_on_models("block-checkpointing", (1.10, 1.2, 1.11)),
        *_on_models("vdnn-all", (2.0, 2.0, None)), *_on_models("superneurons", (2, 1.105, 2)),
        *_on_models("swapadvisor", (3, 3, 3)), *_on_models("capuchin", (1.05, 1.05, 1.05)),
    ]
    judged = _judge(*records)
    four = judged["best of the four"].finding
    assert four.verdict is Verdict.REPRODUCED
    assert "SuperNeurons" in four.ours
    of_all = judged["best of all"].finding
    assert of_all.verdict is Verdict.DIFFERS
    assert "1.050x capuchin" in of_all.ours


def test_a_missing_family_makes_the_comparison_uninformative() -> None:
    records = [
        *_on_models("slackswap", (1.0, 1.0, 1.0)),
        *_on_models("block-checkpointing", (1.10, 1.105, 1.11)),
        *_on_models("vdnn-all", (None,) * 3, status=Status.SKIPPED),
    ]
    finding = _judge(*records)["best of the four"].finding
    assert finding.verdict is Verdict.UNINFORMATIVE
    assert "vDNN" in finding.why


def test_ours_and_keep_all_are_no_baselines() -> None:
    records = [
        *_on_models("slackswap", (1.0, 1.0, 1.0)), *_on_models("slackswap+", (0.99,) * 3),
        *_on_models("milp", (0.99,) * 3), *_on_models("keep-all", (0.9,) * 3),
        *_on_models("capuchin", (1.10, 1.11, 1.11)), *_on_models("vdnn-all", (2,) * 3),
        *_on_models("superneurons", (2,) * 3), *_on_models("swapadvisor", (2,) * 3),
        *_on_models("block-checkpointing", (2,) * 3),
    ]
    assert _verdict("best of all", *records) is Verdict.REPRODUCED


def test_genetic_search() -> None:
    bounds = [made_up_bound(model, time=1.0) for model in PAPER_MODELS]
    count = {"statistics": {"unique_candidates": 14_000}}
    cold = _on_models("genetic", (1.01, 1.01, 1.01), figures=count)
    near = _on_models("slackswap", (1.014, 1.0, 1.0))
    assert _verdict("genetic search, not worse", *bounds, *cold, *near) is Verdict.REPRODUCED
    far = _on_models("slackswap", (1.03, 1.0, 1.0))
    finding = _judge(*bounds, *cold, *far)["genetic search, not worse"].finding
    assert finding.verdict is Verdict.DIFFERS
    assert "+1.98%" in finding.ours


def test_within_half_a_percent_has_two_sides() -> None:
    bounds = [made_up_bound(model, time=1.0) for model in PAPER_MODELS]
    cold = _on_models("genetic", (1.01, 1.01, 1.01))
    faster = _judge(*bounds, *cold, *_on_models("slackswap", (1.0, 1.01, 1.01)))
    assert faster["genetic search, not worse"].finding.verdict is Verdict.REPRODUCED
    both = faster["genetic search, both sides"].finding
    assert both.verdict is Verdict.DIFFERS
    assert "0.99% faster" in both.why
    near = _judge(*bounds, *cold, *_on_models("slackswap", (1.006, 1.01, 1.014)))
    assert near["genetic search, both sides"].finding.verdict is Verdict.REPRODUCED


def test_seeds_are_shown_by_median_and_range() -> None:
    records = [
        made_up("genetic", model, time=time, seed=seed)
        for model in PAPER_MODELS for seed, time in enumerate((1.0, 1.02, 1.01))
    ]
    bounds = [made_up_bound(model, time=1.0) for model in PAPER_MODELS]
    judged = _judge(*records, *bounds, *_on_models("slackswap", (1.01,) * 3))
    ours = judged["genetic search, not worse"].finding.ours
    assert "bert-large +0.00% (-0.98% to +1.00%, 3 seeds)" in ours


def test_the_family_of_block_checkpointing_and_the_reading_of_superneurons() -> None:
    def readings(at_failure: int, eager: int) -> Mapping[str, object]:
        return {"statistics": {"readings": {
            "prefetch_gate=True, copy_at=failure, unread_checkpoints=joins": at_failure,
            "prefetch_gate=True, copy_at=failure, unread_checkpoints=all": at_failure - 1,
            "prefetch_gate=True, copy_at=eager, unread_checkpoints=joins": eager,
            "prefetch_gate=False, copy_at=eager, unread_checkpoints=joins": "does not fit",
        }}}

    records = [
        *_on_models("slackswap", (1.0,) * 3), *_on_models("block-checkpointing", (1.2,) * 3),
        *_on_models("vdnn-all", (2,) * 3), *_on_models("swapadvisor", (2,) * 3),
        *_on_models("chen-greedy", (1.02,) * 3),
        *_on_models("superneurons", (1.05,) * 3, figures=readings(1_105_000, 1_050_000)),
    ]
    judged = _judge(*records)
    assert "1.050x SuperNeurons" in judged["best of the four"].finding.ours
    assert "1.105x SuperNeurons" in judged["best of the four, as cached"].finding.ours
    assert "1.020x chen-greedy" in judged["best of the four, and Chen's greedy"].finding.ours


def test_every_claim_says_what_it_rests_on() -> None:
    text = claims_markdown(list(_judge().values()))
    by_basis = {str(claim.basis): claim.name for claim in CLAIMS}
    assert set(by_basis) == {"constructed", "fitted", "tested"}
    assert all(f"| {basis} |" in text for basis in by_basis)


def test_a_search_far_above_the_bound_is_uninformative() -> None:
    bounds = [made_up_bound(model, time=1.0) for model in PAPER_MODELS]
    count = {"statistics": {"unique_candidates": 14_000}}
    poor = _on_models("genetic", (1.05, 1.05, 1.05), figures=count)
    mine = _on_models("slackswap", (1.0, 1.0, 1.0))
    assert _verdict("genetic search, not worse", *bounds, *poor, *mine) is Verdict.UNINFORMATIVE
    few = _on_models("genetic", (1.01,) * 3, figures={"statistics": {"unique_candidates": 500}})
    assert _verdict("genetic search, not worse", *bounds, *few, *mine) is Verdict.UNINFORMATIVE


@pytest.mark.parametrize(("seconds", "contended", "verdict"), [
    (0.01, False, Verdict.REPRODUCED), (0.5, False, Verdict.DIFFERS),
    (0.01, True, Verdict.REPRODUCED), (0.5, True, Verdict.UNINFORMATIVE),
])
def test_planning_time(seconds: float, contended: bool, verdict: Verdict) -> None:
    rows = _on_models("slackswap", (1.1,) * 3, figures={"planning_s": seconds},
                      contended=contended)
    assert _verdict("planning time", *rows) is verdict


def test_stalls() -> None:
    stalling = [row for name in SWAPPERS for row in _stalling(name, 0.3)]
    assert _verdict("swapping stalls", *stalling) is Verdict.REPRODUCED
    calm = _stalling("vdnn-all", 0.3) + _stalling("swapadvisor", 0.001)
    finding = _judge(*calm)["swapping stalls"].finding
    assert finding.verdict is Verdict.DIFFERS
    assert "swapadvisor" in finding.why


def test_idle_link() -> None:
    mine = _on_models("slackswap", (1.1,) * 3)
    idle = _on_models("block-checkpointing", (1.2,) * 3, figures={"d2h_utilisation": 0.0})
    assert _verdict("idle link", *mine, *idle) is Verdict.REPRODUCED
    busy = _on_models("block-checkpointing", (1.2,) * 3, figures={"d2h_utilisation": 0.1})
    assert _verdict("idle link", *mine, *busy) is Verdict.DIFFERS


def test_sensitivity_is_judged_variant_by_variant() -> None:
    records = _on_models("slackswap", (1.08, 1.02, 1.0))
    records += _on_models("slackswap", (1.02, 1.02, 1.0), variant="link +20%")
    records += _on_models("slackswap", (1.2, 1.2, 1.2), variant="link -20%")
    entry = _judge(*records)["throughput at half"]
    assert {label: f.verdict for label, f in entry.sensitivity} == {
        "link +20%": Verdict.REPRODUCED, "link -20%": Verdict.DIFFERS,
    }
    assert entry.holds_in == (1, 3)


def test_other_budgets_and_models_do_not_count() -> None:
    records = _on_models("slackswap", (1.04, 1.02, 1.0))
    records += _on_models("slackswap", (2.0, 2.0, 2.0), budget="0.2")
    records += [made_up("slackswap", "gpt-neo-2.7b-a100", time=2.0)]
    assert _verdict("throughput at half", *records) is Verdict.REPRODUCED


def test_every_claim_says_how_it_is_judged() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) == 14
    text = claims_markdown(judge_claims(frame_of(), facts_of()))
    for claim in CLAIMS:
        assert claim.how in text
        assert claim.paper in text
