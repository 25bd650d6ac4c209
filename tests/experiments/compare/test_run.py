"""A comparison over real NICs with one process per rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests import needs

torch = needs.module("torch")

from softnic.experiments.compare import run as runs  # noqa: E402
from softnic.experiments.compare.plan import ComparisonPlan, Training  # noqa: E402
from softnic.experiments.compare.results import TrainingResults  # noqa: E402
from tests.experiments.compare.trainings import TEXT  # noqa: E402
from tests.experiments.test_torch_models import SIZES  # noqa: E402

pytestmark = pytest.mark.slow

STEPS = 4


def test_a_failed_training_is_reported_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.write_text(TEXT)
    plan = ComparisonPlan(
        methods=("nothing", "exact", "wa+adt:8"),
        trainings={"transformer": Training(batch=2, steps=STEPS, rate=0.1, looks=2)},
        workers=2,
        text=str(text),
        link={},
    )
    results = TrainingResults(tmp_path, plan.link)
    reported: list[str] = []
    comparison = runs.run(plan, results, reported.append)
    (failure,) = comparison.failures
    assert (failure.model, failure.method) == ("transformer", "nothing")
    assert "'nothing' is not a method" in failure.why
    exact, aggregated = comparison.results
    assert [evaluation.step for evaluation in exact.evaluations] == [STEPS // 2, STEPS]
    gradient = 4 * SIZES["transformer"]
    assert 2 * gradient < exact.last.wire_bytes / STEPS < 2.2 * gradient
    # To the aggregator go gradients; what comes back are weights of a byte each (and biases of four).
    assert 2.5 * gradient < aggregated.last.wire_bytes / STEPS < 2.8 * gradient
    assert reported[0].startswith("transformer by nothing, seed 7 (1 of 3): ")
    assert any(line.startswith("transformer by exact, seed 7 (2 of 3): step ") for line in reported)

    monkeypatch.setattr(runs, "Cluster", None)
    again = runs.run(replace(plan, methods=("wa+adt:8", "exact")), results)
    assert again.results == [aggregated, exact]
