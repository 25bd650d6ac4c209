"""Plans, kept results and reports of comparisons."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from softnic.experiments import methods, torch_models
from softnic.experiments.compare import plan, report, summary
from softnic.experiments.compare.plan import ComparisonPlan, Training, TrainingJob
from softnic.experiments.compare.results import TrainingResult, TrainingResults
from softnic.experiments.compare.run import Comparison, FailedTraining
from softnic.experiments.compare.training import Evaluation
from tests import needs

LINK = {"rate": "1gbit"}
TRAINING = Training(batch=4, steps=10, rate=0.5, looks=4)
PLAN = ComparisonPlan(
    ("exact", "bounded:10"), {"hdc": TRAINING, "transformer": TRAINING}, images="/mnist", text="/text", link=LINK
)


def test_rates_rise_and_fall_and_are_the_same_for_all_methods() -> None:
    training = replace(TRAINING, steps=100)
    rates = [training.rate_at(step) for step in range(100)]
    assert rates[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert rates[5] == 0.5
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.001
    assert rates[52] == pytest.approx(0.25, abs=0.01)


def test_evaluations_are_spread_evenly_and_the_last_is_at_the_end() -> None:
    assert TRAINING.evaluated_after() == [2, 5, 8, 10]
    assert replace(TRAINING, steps=2).evaluated_after() == [1, 2]


def test_every_model_is_trained_by_every_method_on_its_own_data() -> None:
    jobs = PLAN.jobs()
    assert [(job.model, job.method, job.data) for job in jobs] == [
        ("hdc", "exact", "/mnist"),
        ("hdc", "bounded:10", "/mnist"),
        ("transformer", "exact", "/text"),
        ("transformer", "bounded:10", "/text"),
    ]
    assert [TrainingJob.from_json(job.as_json()) for job in jobs] == jobs
    assert jobs[0].portable().data == "mnist"
    both = replace(PLAN, seeds=(7, 8)).jobs()
    assert both == [*jobs, *(replace(job, seed=8) for job in jobs)]


def test_the_residual_network_learns_photographs_and_the_others_what_is_given() -> None:
    given = replace(PLAN, trainings={"resnet": TRAINING, "convnet": TRAINING}, methods=("exact",))
    resnet, convnet = given.jobs()
    assert (resnet.data, resnet.portable().data, resnet.learns_photographs) == ("photos", "photos", True)
    assert (convnet.data, convnet.learns_photographs) == ("/mnist", False)
    (title, *_) = _shown(replace(given, images=None), "resnet")
    assert title.startswith("resnet on photos: 4 ranks")
    (title, *_) = _shown(replace(given, images=None), "convnet")
    assert title.startswith("convnet on digits: 4 ranks")


def _shown(given: ComparisonPlan, model: str) -> list[str]:
    """Return the lines of a report without results."""
    out = io.StringIO()
    report.report(Comparison(given), model).show(Console(file=out, width=200))
    return out.getvalue().splitlines()


def test_presets_have_all_models_and_known_methods() -> None:
    for preset in plan.PRESETS.values():
        assert set(preset.models) <= set(preset.trainings) == set(torch_models.NAMES)
        assert len({*map(methods.check, preset.methods)}) == 26
        assert preset.methods[0] == summary.REFERENCE


def test_the_quick_preset_reaches_all_phases() -> None:
    steps = plan.QUICK["transformer"].steps
    for name in plan.BRIEF:
        for phase in re.findall(r"(?:full|learn|warmup)=([0-9]+)|awp:[^,]+,([0-9]+)", name):
            assert 2 * int("".join(phase)) < steps


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zip:9", "'zip:9' is not a method: exact"),
        ("powersgd:0", "the rank of PowerSGD's matrices is a whole number, at least 1"),
        ("powersgd:+rht:9", "rht"),
        ("powersgd:4+", "''"),
        ("wa+zip:9", "zip"),
        ("wa+adt:9", "8, 16, 24 or 32 bits"),
        ("wa+adt:8+bounded:10", "takes a codec for gradients, then a precision for weights"),
        ("wa+bounded:10+bounded:8", "takes a codec for gradients, then a precision for weights"),
    ],
)
def test_unknown_methods_are_errors(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        methods.check(name)


def test_an_aggregator_is_an_additional_rank() -> None:
    assert [methods.aggregators(name) for name in ("exact", "wa", "wa+bounded:10", "powersgd:2")] == [0, 1, 1, 0]


def evaluations(scale: int, score: float, loss: float = 1.0) -> tuple[Evaluation, ...]:
    return (
        Evaluation(5, 0.5, 2.0, 0.3, 100 * scale, 2.0, 1.0, 4.0),
        Evaluation(10, 1.0, loss, score, 300 * scale, 5.0 * scale, 2.0, 10.0),
    )


EXACT = TrainingResult("hdc", "exact", evaluations(10, 0.9), 7.0)
SMALL = TrainingResult("hdc", "bounded:10", evaluations(2, 0.85), 3.0)
LOST = TrainingResult("transformer", "exact", evaluations(1, math.inf, math.nan), 3.0)


def test_a_result_is_reused_for_the_same_training_only(tmp_path: Path) -> None:
    job = PLAN.jobs()[0]
    kept = TrainingResults(tmp_path, LINK)
    assert kept.find(job) is None
    assert kept.keep(job, EXACT) == EXACT
    assert kept.find(job) == EXACT
    assert kept.find(replace(job, data="/elsewhere/mnist")) == EXACT
    assert kept.find(replace(job, seed=8)) is None
    assert kept.find(replace(job, workers=2)) is None
    assert TrainingResults(tmp_path, {"rate": "2gbit"}).find(job) is None
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text()[:100])
    assert kept.find(job) is None


def test_nan_is_kept_as_null(tmp_path: Path) -> None:
    job = PLAN.jobs()[2]
    kept = TrainingResults(tmp_path, LINK)
    kept.keep(job, LOST)
    assert "NaN" not in next(tmp_path.iterdir()).read_text()
    found = kept.find(job)
    assert found is not None
    assert found.diverged
    assert found.last.wire_bytes == 300


def test_without_a_directory_no_result_is_kept() -> None:
    kept = TrainingResults(None, LINK)
    kept.keep(PLAN.jobs()[0], EXACT)
    assert kept.find(PLAN.jobs()[0]) is None


def test_rows_compare_trainings_with_the_exact_one() -> None:
    exact, small = report.rows([EXACT, SMALL, LOST], "hdc")
    assert (exact.ratio, exact.speed_up, exact.score_change) == (1.0, 1.0, 0.0)
    assert small == report.TrainingRow(
        model="hdc",
        method="bounded:10",
        seed=7,
        score=0.85,
        score_change=0.85 - 0.9,
        loss=1.0,
        wire_bytes=600,
        ratio=5.0,
        last_ratio=5.0,
        train_s=10.0,
        to_exact_s=None,
        speed_up=5.0,
        step_s=1.0,
        exchange_s=0.2,
        cpu_s=1.0,
    )
    (lost,) = report.rows([EXACT, SMALL, LOST], "transformer")
    assert (lost.score, lost.loss, lost.score_change, lost.ratio) == (None, None, None, 1.0)
    (alone,) = report.rows([SMALL], "hdc")
    assert (alone.ratio, alone.speed_up, alone.score_change, alone.last_ratio, alone.to_exact_s) == (None,) * 5


@pytest.mark.parametrize(
    ("model", "scores", "expected"),
    [
        ("hdc", (0.8949, 0.9), 25.0),
        ("hdc", (0.8951, 0.85), 2.0),
        ("hdc", (0.3, 0.85), None),
        ("transformer", (0.909, 0.95), 2.0),
        ("transformer", (0.911, 0.9), 25.0),
    ],
)
def test_the_time_to_the_exact_score_is_that_of_the_first_evaluation_about_as_good(
    model: str, scores: tuple[float, float], expected: float | None
) -> None:
    first, last = evaluations(5, scores[1])
    result = TrainingResult(model, "bounded:10", (replace(first, score=scores[0]), last), 3.0)
    (_, row) = report.rows([replace(EXACT, model=model), result], model)
    assert row.to_exact_s == expected


COMPARISON = Comparison(PLAN, [EXACT, SMALL, LOST], [FailedTraining("transformer", "bounded:10", "rank 1: it broke")])


def test_each_model_has_a_table_and_its_failures() -> None:
    out = io.StringIO()
    for model in PLAN.trainings:
        report.report(COMPARISON, model).show(Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    assert lines[0] == "hdc on mnist: 4 ranks x 4 samples, 10 steps; links: rate 1gbit"
    rows = [line.split() for line in lines]
    assert [
        "bounded:10",
        "7",
        "85.00",
        "%",
        "-5.00",
        "600",
        "B",
        "5.0",
        "5.0",
        "10.0",
        "5.00",
        "1000.0",
        "200.0",
        "1000",
    ] in rows
    assert ["exact", "7", "diverged", "300", "B", "1.0", "1.0", "5.0", "1.00", "500.0", "200.0", "1000"] in rows
    assert "bounded:10, seed 7, failed: rank 1: it broke" in lines


def test_json_and_csv_have_every_evaluation(tmp_path: Path) -> None:
    found = json.loads(json.dumps(report.as_json(COMPARISON), allow_nan=False))
    assert [row["method"] for row in found["results"]] == ["exact", "bounded:10", "exact"]
    assert len(found["looks"]) == 6
    assert found["looks"][5]["score"] is None
    assert found["failures"] == [{"model": "transformer", "method": "bounded:10", "why": "rank 1: it broke", "seed": 7}]
    assert found["settings"]["trainings"]["hdc"]["steps"] == 10
    summary, curves = report.write(COMPARISON, tmp_path, pictures=False)
    with summary.open(newline="") as file:
        assert [row["ratio"] for row in csv.DictReader(file)] == ["1.0", "5.0", "1.0"]
    with curves.open(newline="") as file:
        assert [row["wire_bytes"] for row in csv.DictReader(file)] == ["1000", "3000", "200", "600", "100", "300"]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    needs.module("matplotlib")
    report.draw_curves("hdc", [EXACT, SMALL], tmp_path / "hdc.png")
    assert (tmp_path / "hdc.png").read_bytes().startswith(b"\x89PNG")
