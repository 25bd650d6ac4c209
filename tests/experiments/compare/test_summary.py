"""Summaries of trainings over seeds, computed times over links, and the advice from them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from softnic.experiments.compare import advice, link_report, page, plan, summary
from softnic.experiments.compare.results import TrainingResult
from softnic.experiments.compare.training import Evaluation
from tests import needs


def training(
    method: str, scores: tuple[float, ...], host_s: float, link_bytes: int, seed: int = 7, model: str = "hdc"
) -> TrainingResult:
    """Return a training of ten steps an evaluation, each of which costs the same."""
    looks = tuple(
        Evaluation(
            step=10 * number,
            epoch=number / 2,
            loss=1 / number,
            score=score,
            wire_bytes=4 * link_bytes * number,
            train_s=number,
            exchange_s=number / 2,
            cpu_s=8 * host_s * number,
            host_s=host_s * number,
            link_bytes=link_bytes * number,
            compute_s=0.01,
        )
        for number, score in enumerate(scores, 1)
    )
    return TrainingResult(model, method, looks, 1.0, seed)


EXACT = training("exact", (0.5, 0.9), 1.0, 80_000_000)
FP16 = training("fp16", (0.5, 0.9), 1.0, 40_000_000)
SMALL = training("rht:4", (0.5, 0.9), 2.0, 10_000_000)
WORSE = training("scalecom:0.01", (0.5, 0.8), 1.0, 1_000_000)
LOST = training("powersgd:1", (0.5, math.nan), 1.0, 1_000_000)
ALL = [EXACT, FP16, SMALL, WORSE, LOST]
MODEL = summary.ModelSummary("hdc", "mnist", 1_000_000, 0.01, 4, 25, 20, 5.0, summary.summaries(ALL, "hdc"))
COMPARED = advice.compared(MODEL)


CURVE = MODEL.of("rht:4").curves[0]


def test_the_cost_until_the_score_is_linear_between_evaluations() -> None:
    cost = CURVE.until(0.7, less_is_better=False)
    assert cost is not None
    assert (cost.steps, cost.host_s, cost.link_bytes) == pytest.approx((15.0, 3.0, 15_000_000))
    assert cost.seconds(1e8) == pytest.approx(3.0 + 1.2)
    assert cost.seconds(math.inf) == pytest.approx(3.0)
    assert CURVE.until(0.901, less_is_better=False) is None
    first = CURVE.until(0.3, less_is_better=False)
    assert first is not None
    assert first.steps == 10


def test_fewer_bits_per_character_are_better() -> None:
    text = [
        training(method, (3.0, last), 1.0, 1, model="transformer") for method, last in (("exact", 2.0), ("wa", 2.02))
    ]
    exact, worse = summary.summaries(text, "transformer")
    assert exact.to_score is not None
    assert exact.to_score.steps == pytest.approx(10 + 10 * (3.0 - 2.01) / (3.0 - 2.0))
    assert worse.to_score is None


def test_the_mean_over_the_seeds_is_to_reach_the_mean_of_the_exact_trainings() -> None:
    """A seed may be below the score as long as others are above it, the exact training's, too."""
    exact = [training("exact", (0.5, last), 1.0, 1, seed=seed) for seed, last in ((7, 0.88), (8, 0.92))]
    near = [training("fp16", (0.5, last), 1.0, 1, seed=seed) for seed, last in ((7, 0.91), (8, 0.89))]
    far = [training("rht:4", (0.5, last), 1.0, 1, seed=seed) for seed, last in ((7, 0.9), (8, 0.88))]
    whole, close, late = summary.summaries([*exact, *near, *far], "hdc")
    for each in (whole, close):
        assert each.to_score is not None
        assert each.to_score.steps == pytest.approx(10 + 10 * (0.895 - 0.5) / (0.9 - 0.5))
    assert late.to_score is None
    alone = late.only({7})
    assert alone is not None
    assert alone.to_score is not None


def test_a_summary_has_all_seeds_of_a_method_beside_their_exact_trainings() -> None:
    seeds = [
        EXACT,
        replace(EXACT, seed=8),
        training("exact", (0.5, math.nan), 1.0, 1, seed=9),
        SMALL,
        training("rht:4", (0.5, 0.88), 2.0, 10_000_000, seed=8),
        replace(SMALL, seed=9),
    ]
    exact, small = summary.summaries(seeds, "hdc")
    assert exact.seeds == small.seeds == (7, 8)
    assert small.score is not None
    assert small.change is not None
    assert small.score.mean == pytest.approx(0.89)
    assert small.change.values == pytest.approx([0.0, -0.02])
    assert (small.ratio, small.last_ratio) == (8.0, 8.0)
    assert small.seconds_to_score(1e9) is None
    assert small.step_seconds(1e8) == pytest.approx(0.2 + 0.08)
    assert summary.summaries([SMALL], "hdc") == []


def test_a_diverged_training_has_no_score_and_is_not_chosen() -> None:
    lost = MODEL.of("powersgd:1")
    assert (lost.score, lost.change, lost.to_score) == (None, None, None)
    for rate in (1e7, 1e10):
        assert {choice.method.method for choice in advice.advise(COMPARED, rate).choices} == {"exact", "fp16", "rht:4"}


@pytest.mark.parametrize(("rate", "best", "share"), [(1e8, "rht:4", 0.86), (1e10, "fp16", 0.06)])
def test_the_soonest_method_is_advised(rate: float, best: str, share: float) -> None:
    given = advice.advise(COMPARED, rate)
    assert given.best.method.method == best
    assert given.peer is not None
    assert given.ours is not None
    assert (given.peer.method.method, given.ours.method.method) == ("fp16", "rht:4")
    assert given.link_share == pytest.approx(share, abs=0.01)


def test_methods_are_compared_by_the_seeds_that_they_have_in_common() -> None:
    slow = training("fp16", (0.5, 0.9), 9.0, 40_000_000, seed=8)
    found = summary.summaries([*ALL, replace(EXACT, seed=8), slow], "hdc")
    given = advice.advise(advice.compared(replace(MODEL, methods=found)), 1e10)
    assert given.model.seeds == [7]
    assert given.best.method.method == "fp16"
    rows = {row.method: row for row in link_report.rows(found, ("10gbit",))}
    times = rows["rht:4"].times_peer["10gbit"]
    assert times == link_report.rows(MODEL.methods, ("10gbit",))[2].times_peer["10gbit"]
    assert rows["fp16"].seeds == 2
    assert rows["fp16"].seconds["10gbit"] == pytest.approx(1.9875 * (5.0 + 0.032))  # evaluations until 0.895
    assert found[0].only({9}) is None
    apart = [found[0], found[1].only({8}), found[2]]
    alone = advice.compared(replace(MODEL, methods=[each for each in apart if each is not None]))
    assert {each.method for each in alone.methods} == {"exact", "rht:4"}


def test_advice_says_why_and_where_softnic_loses() -> None:
    slow, fast = (" ".join(advice.text(advice.advise(COMPARED, rate))) for rate in (1e8, 1e10))
    assert slow.startswith("hdc over 100 Mbit/s: rht:4 is soonest - 5.6 s (1 seed) until the exact training's accuracy")
    assert "1.50 times as soon as fp16" in slow
    assert "the link is the limit: it takes 86 % of an exact step" in slow
    assert "sends 8.0 times fewer bytes than exact" in slow
    assert "at the end: 90.00 %, +0.00 points against exact" in slow
    assert "hdc over 10 Gbit/s: fp16 is soonest" in fast
    assert "softnic's best here, rht:4, takes 1.95 times as long" in fast
    assert "the hosts are the limit: the link takes 6 %" in fast
    assert "rht:4, the codec to begin with for any model: " in fast
    assert fast.endswith("1.95 times as long")
    assert "to begin with" not in slow


def test_summaries_survive_json(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    path.write_text(advice.content([COMPARED, COMPARED]))
    assert advice.load(path) == [COMPARED, COMPARED]
    methods = [line for line in path.read_text().splitlines() if '"method":' in line]
    assert len(methods) == 2 * len(ALL), "a line for each"
    path.write_text("{}")
    with pytest.raises(advice.AdviceError, match="has no summaries"):
        advice.load(path)


def test_the_nearest_model_is_scaled_to_the_size_asked_for() -> None:
    slow = replace(COMPARED, model="slow", compute_s=1.0)
    large = replace(COMPARED, model="large", parameters=100_000_000)
    models = [COMPARED, slow, large]
    assert advice.nearest(models, 50_000_000, None).model == "large"
    assert advice.nearest(models, 2_000_000, 2.0).model == "slow"
    assert advice.nearest(models, 2_000_000, 0.02).model == "hdc"
    with pytest.raises(advice.AdviceError, match="no results of any model"):
        advice.nearest([], 1, None)
    scaled = advice.scaled(COMPARED, 2_000_000, 0.05).of("rht:4")
    cost = scaled.whole
    # Of 4 s for 20 steps, 0.2 are computation.
    assert (cost.steps, cost.host_s, cost.link_bytes) == pytest.approx((20, 2 * 3.8 + 20 * 0.05, 40_000_000))
    reached = scaled.to_score
    assert reached is not None
    part = 10 + 10 * (0.895 - 0.5) / (0.9 - 0.5)
    assert (reached.steps, reached.host_s) == pytest.approx((part, 2 * part * 0.19 + part * 0.05))
    with pytest.raises(advice.AdviceError, match=r"no results of vgg .*--parameters"):
        advice.find(models, "vgg")


def test_hosts_that_computed_faster_than_the_exact_training_leave_the_exchange_no_less_than_no_time() -> None:
    fast = replace(MODEL, compute_s=0.15, methods=MODEL.methods[:1] + MODEL.methods[2:3])  # 0.1 and 0.2 s a step
    exact, small = (advice.scaled(advice.compared(fast), 2_000_000, 0.05).of(name) for name in ("exact", "rht:4"))
    assert exact.whole.host_s == pytest.approx(20 * 0.05)
    assert small.whole.host_s == pytest.approx(2 * 20 * (0.2 - 0.15) + 20 * 0.05)


def test_the_table_compares_with_the_best_of_torchs_hooks() -> None:
    rows = {row.method: row for row in link_report.rows(MODEL.methods, ("100mbit",))}
    assert rows["rht:4"].times_peer["100mbit"] == pytest.approx(1.5, abs=0.01)
    assert rows["fp16"].times_peer["100mbit"] == 1.0
    assert rows["scalecom:0.01"].seconds["100mbit"] is None
    cells = {row.method: [each.text(row) for each in link_report.columns("hdc", ("100mbit",))] for row in rows.values()}
    assert cells["rht:4"] == ["rht:4", "90.00 %", "+0.00 points", "8.0", "8.0", "1", "5.6 s (1.50)"]
    assert cells["scalecom:0.01"] == [
        "scalecom:0.01",
        "80.00 %",
        "-10.00 points",
        "80.0",
        "80.0",
        "1",
        "[108 ms a step]",
    ]
    assert cells["powersgd:1"][1:3] == ["diverged", ""]


def test_the_published_summaries_can_be_read() -> None:
    for found in advice.load(advice.PUBLISHED):
        assert found.of(summary.REFERENCE).to_score is not None


def test_the_page_is_generated_from_the_published_results() -> None:
    needs.module("torch")
    root = Path(__file__).parents[3]
    text = (root / page.PAGE).read_text(encoding="utf-8")
    for name, made in page.regions(root / page.RESULTS).items():
        assert f"<!-- results: {name} -->\n\n{made.strip()}\n\n<!-- end -->" in text
    compared = [advice.compared(each) for each in page.summarised(root / page.RESULTS) if each.is_comparable]
    assert advice.PUBLISHED.read_text(encoding="utf-8") == advice.content(compared), "run `softnic compare --report`"
    assert advice.PUBLISHED.stat().st_size < 60_000, "the package carries it"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    needs.module("torch")
    made = page.regions(tmp_path)
    total = len(plan.METHODS) * 3
    assert made["compare-run"].count(f"0 of {total}") == len(plan.FULL)
    assert made["compare-advice"] == made["compare-tables"] == "No results yet."
