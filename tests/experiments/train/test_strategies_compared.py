"""All strategies over real processes and NICs, with the same model, data and seed."""

from __future__ import annotations

import pytest

from softnic.experiments.strategies import KINDS
from softnic.experiments.timeline import breakdowns
from softnic.experiments.train import strategies_compared
from softnic.measure.report import MeasurementError

pytestmark = pytest.mark.slow

MODEL = "mlp:4x64"
PLAN = strategies_compared.StrategiesPlan(
    workers=3, model=MODEL, batch=32, steps=4, warm_up=1, data=strategies_compared.SYNTHETIC, link={}
)
LOSSY = "bfp:7"
HALF = "wa+adt:16"


@pytest.fixture(scope="module")
def comparison() -> strategies_compared.StrategyComparison:
    strategies = tuple(kind + end for kind in KINDS for end in ("", f"+{LOSSY}"))
    return strategies_compared.run(
        strategies_compared.StrategiesPlan(**{**vars(PLAN), "strategies": (*strategies, HALF)})
    )


def test_exact_strategies_agree_to_rounding(comparison: strategies_compared.StrategyComparison) -> None:
    exact = [row for row in comparison.report.rows if "+" not in row.name]
    assert [row.name for row in exact] == list(KINDS)
    for row in exact:
        assert row.weights_off < 1e-6, row.name
        assert row.loss == pytest.approx(exact[0].loss, rel=1e-5)


def test_compressed_strategies_learn_nearly_the_same(comparison: strategies_compared.StrategyComparison) -> None:
    rows = {row.name: row for row in comparison.report.rows}
    for kind in KINDS:
        exact, lossy = rows[kind], rows[f"{kind}+{LOSSY}"]
        assert 0 < lossy.weights_off < 0.01, kind
        assert lossy.loss < 0.98 * lossy.first_loss, kind
        assert lossy.loss == pytest.approx(exact.loss, rel=0.02), kind


def test_sixteen_bits_halve_the_bytes_of_weights(comparison: strategies_compared.StrategyComparison) -> None:
    rows = {row.name: row for row in comparison.report.rows}
    exact, half = rows["wa"], rows[HALF]
    assert exact.weights_bytes == 4 * 4 * 64 * 64
    assert half.weights_bytes == exact.weights_bytes / 2 + 4, "and a byte a layer that says so"
    assert rows["inc"].weights_bytes == 0
    saved = (exact.sent_bytes - half.sent_bytes) / PLAN.workers
    assert saved == pytest.approx(exact.weights_bytes / 2, rel=0.1)
    assert 0 < half.weights_off < 0.01


def test_an_iteration_is_the_sum_of_its_parts(comparison: strategies_compared.StrategyComparison) -> None:
    for name, ranks in comparison.traces.items():
        workers = [rank for rank in ranks if rank.ready]
        assert (len(workers), len(ranks)) == (3, 4 if name.startswith("wa") else 3)
        for rank, part in zip(workers, breakdowns(ranks), strict=True):
            assert part.total == pytest.approx(rank.end - rank.begin, rel=1e-6), name
            assert min(vars(part).values()) >= 0, name
            assert (part.sum > 0) == name.startswith("wa"), name
        layers = set(workers[0].ready)
        assert layers == ({0, 1, 2, 3} if "overlapped" in name else {-1}), name


def test_an_impossible_batch_is_an_error() -> None:
    with pytest.raises(MeasurementError, match="a batch of 5000: each of 3 ranks has 1365 samples of synthetic"):
        strategies_compared.run(strategies_compared.StrategiesPlan(**{**vars(PLAN), "batch": 5000}))
