"""Trainings that lose precision: what is truncated, what is kept of it, and what items make of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.claim import Results
from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import fig4, lossy
from benchmarks.papers.items import make
from benchmarks.papers.learner import learner
from benchmarks.papers.verdicts import PAPERS as CLAIMS
from softnic import codecs
from softnic.experiments.data import DataSet
from softnic.measure.kept import ResultFile
from softnic.measure.report import Value


def test_shares_of_gradients_by_hand() -> None:
    found = lossy.stage(3, np.array([0, 2**-13, -(2**-10), 0.04, 0.5, -1.0, 1.5, 2**-20], np.float32))
    assert found.step == 3
    assert found.largest == 1.5
    by_edge = dict(zip((*lossy.EDGES, np.inf), found.magnitudes, strict=True))
    assert by_edge[2.0**-14] == 2 / 8
    assert by_edge[2.0**-12] == 1 / 8
    assert by_edge[2.0**-8] == 1 / 8, "2^-10 itself is not below 2^-10"
    assert by_edge[np.inf] == 2 / 8
    assert sum(found.magnitudes) == 1
    assert found.bits["10"][0] == 3 / 8


class Recorder:
    """Weights of a training after every step, as the workers have them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.weights: list[np.ndarray] = []
        usual = learner

        def recorded(model: str, data: DataSet, seed: int) -> object:
            made = usual(model, data, seed)
            forward = made.forward

            def recorded_forward(inputs: object, labels: object) -> float:
                self.weights.append(made.parameters.copy())
                return forward(inputs, labels)

            monkeypatch.setattr(made, "forward", recorded_forward)
            return made

        monkeypatch.setattr(lossy, "learner", recorded)


@pytest.mark.parametrize("kept", [False, True])
def test_workers_compute_with_truncated_weights(kept: bool, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    lossy.trainings(context, "hdc", lossy.Loss(weights="truncate:8", kept=kept))
    truncate = codecs.get("truncate:8")
    assert recorder.weights
    for weights in recorder.weights:
        np.testing.assert_array_equal(truncate.roundtrip(weights), weights)


def test_updates_smaller_than_the_truncation_accumulate_only_where_weights_are_whole(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a rate this small no weight leaves its interval in one step, away from zero."""
    monkeypatch.setattr(lossy, "PLANS", {"hdc": lossy.LossyPlan(12, 2, 1e-3)})
    changed: list[int] = []
    for kept in (True, False):
        recorder = Recorder(monkeypatch)
        monkeypatch.setattr(lossy, "plan_of", lambda _context, model: lossy.PLANS[model])
        lossy.trainings(context, "hdc", lossy.Loss(weights="truncate:16", kept=kept))
        grew = np.abs(recorder.weights[-1]) > np.abs(recorder.weights[0])
        changed.append(int(np.count_nonzero(grew & (recorder.weights[0] != 0))))
    assert changed[0] < changed[1]


def test_an_exact_training_is_made_once_for_several_items(context: Context, tmp_path: Path) -> None:
    shown: list[str] = []
    own = Context(
        context.data,
        context.data_path,
        quick=True,
        models=("hdc",),
        settings=context.settings,
        results=tmp_path,
        progress=shown.append,
    )
    make("inceptionn", "fig4", own)
    kept = ResultFile(tmp_path / "inceptionn-trainings.json").content["units"]
    exact = kept["HDC, exact, seed 1"]
    assert len(kept) == 1 + 3 * len(fig4.SHOWN["hdc"])
    item = make("inceptionn", "fig5", own)
    assert ResultFile(tmp_path / "inceptionn-trainings.json").content["units"]["HDC, exact, seed 1"] == exact
    assert [row[1] for row in item.tables[0].rows] == list(lossy.STAGES)
    assert all(sum(map(float, row[3:7])) == pytest.approx(100) for row in item.tables[1].rows)  # type: ignore[arg-type]


def verdict(kept: Sequence[float], gradients: Sequence[float], context: Context) -> str:
    item = make("inceptionn", "fig4", context)
    [table] = item.tables
    rows: list[list[Value]] = [
        [model, "24b-T", "", "", "", -lost, 0.0, -weights]
        for model, weights, lost in zip(("HDC", "AlexNet"), kept, gradients, strict=True)
    ]
    changed = type(item)(item.title, [type(table)(table.title, table.columns, rows)])
    [claim] = [claim for claim in CLAIMS["inceptionn"] if claim.place == "Fig. 4"]
    return claim.cells(Results({"inceptionn fig4": changed}))[4]


@pytest.mark.parametrize(
    ("kept", "gradients", "expected"),
    [
        ([70, 60], [1, 2], "**confirmed**"),
        ([70, 1], [1, 2], "**in part**"),
        ([0, 1], [1, 2], "**refuted**"),
    ],
)
def test_the_verdict_follows_from_the_figures(
    kept: Sequence[float], gradients: Sequence[float], expected: str, context: Context
) -> None:
    assert verdict(kept, gradients, context) == expected
