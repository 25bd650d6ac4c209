"""Parts of figures: samples of gradients, formulas, and exchanges in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.inceptionn import fig7, fig15, paper
from benchmarks.papers.inceptionn.fig7 import Speed
from benchmarks.papers.inceptionn.fig13 import ToAccuracy, outcome, reaches
from benchmarks.papers.item import Item, span
from benchmarks.papers.over_nics import PIECE_WORDS, STRATEGIES, Sample, sample
from benchmarks.papers.smartnic import fig2b as smartnic_fig2b
from benchmarks.papers.smartnic import fig4b as smartnic_fig4b
from benchmarks.papers.smartnic import paper as smartnic_paper
from benchmarks.papers.virtual import add_gamma, in_virtual_time
from softnic.model.costs import Costs

RATE = 10e9


def test_a_sample_is_spread_over_the_whole_and_differs_by_worker() -> None:
    floats = np.repeat(np.arange(64, dtype=np.float32), PIECE_WORDS)
    given = sample(floats, workers=4, most_bytes=8 * 4 * PIECE_WORDS)
    assert given.rows.shape == (4, 8 * PIECE_WORDS)
    assert given.scale == 8
    assert given.scale * given.rows[0].nbytes == floats.nbytes
    pieces = given.rows.reshape(4, 8, PIECE_WORDS)[:, :, 0]
    assert pieces[0].tolist() == [0, 8, 16, 24, 32, 40, 48, 56]
    assert len(set(pieces.ravel().tolist())) == 32


def test_small_gradients_are_exchanged_whole() -> None:
    floats = np.repeat(np.arange(5, dtype=np.float32), PIECE_WORDS)
    given = sample(floats, workers=4, most_bytes=1 << 20)
    assert given.scale == 1
    for row in given.rows:
        assert sorted(set(row.tolist())) == [0, 1, 2, 3, 4]


def test_virtual_exchanges_take_the_time_of_their_bytes() -> None:
    rows = np.random.default_rng(1).standard_normal((4, 1 << 18), np.float32) * np.float32(0.01)
    seconds = {name: in_virtual_time(Sample(rows, 2.0), how, RATE, 0.0) for name, how in STRATEGIES.items()}
    one = 2 * 8 * rows[0].nbytes / RATE
    assert seconds["WA"] == pytest.approx(8 * one, rel=0.15)
    assert seconds["INC"] == pytest.approx(1.5 * one, rel=0.35)
    assert 4 * one < seconds["WA+C"] < 0.8 * seconds["WA"]
    assert seconds["INC+C"] < 0.6 * seconds["INC"]


def test_gamma_is_that_of_table_2() -> None:
    three_sums = 3 * paper.MODEL_MB["alexnet"] * 2**20 * add_gamma("alexnet")
    assert three_sums == pytest.approx(paper.TABLE_2["alexnet"].gradient_sum / 100)


def test_software_compression_saves_by_its_ratio_and_costs_its_time() -> None:
    base = paper.TABLE_2["alexnet"].total / 100
    leg = paper.TABLE_2["alexnet"].communicate / 200
    n = paper.MODEL_MB["alexnet"] * 2**20
    assert fig7.iteration_s("alexnet", Speed(1.0, 0.0, 0.0)) == pytest.approx(base)
    assert fig7.iteration_s("alexnet", Speed(4.0, 0.0, 0.0)) == pytest.approx(base - 0.75 * leg)
    assert fig7.iteration_s("alexnet", Speed(1.0, 1 / n, 2 / n)) == pytest.approx(base + 1 + 4 * 2)


def test_epochs_to_an_accuracy() -> None:
    path = [(0.5, 0.8), (1.0, 0.9), (1.5, 0.89), (2.0, 0.95)]
    assert [reaches(path, accuracy) for accuracy in (0.5, 0.9, 0.95, 0.99)] == [0.5, 1.0, 2.0, None]
    late = outcome("INC+bounded:8", path, 0.95, [(1.0, 0.96)], {}, {})
    assert (late.epochs, late.more, late.virtual) == (2.0, 1.0, None)
    assert outcome("INC+C", path, 0.99, path, {}, {}) == ToAccuracy("INC+C", None, None, 0.95)


def test_wa_grows_and_the_ring_does_not() -> None:
    words = 1 << 16
    seconds = {kind: [fig15.virtual(kind, p, words, RATE, 0.0) for p in (4, 8)] for kind in (fig15.WA, fig15.INC)}
    assert seconds[fig15.WA][1] / seconds[fig15.WA][0] == pytest.approx(2, rel=0.1)
    given = Costs(0.0, 8 / RATE, 0.0)
    aggregator, ring = fig15.FORMULAS[fig15.WA], fig15.FORMULAS[fig15.INC]
    assert seconds[fig15.WA][0] > aggregator(4, 4 * words, given).total_s
    assert ring(8, 1e6, given).total_s / ring(4, 1e6, given).total_s == pytest.approx(7 / 6)


def test_scaling_by_formula() -> None:
    assert smartnic_fig2b.throughput("ring", 1) == pytest.approx(1)
    ring, binomial = (smartnic_fig2b.throughput(scheme, 32) for scheme in ("ring", "binomial gather/scatter"))
    assert binomial < ring < 32


@pytest.mark.slow
def test_the_model_is_as_close_to_virtual_time_as_the_papers_to_its_prototype(everything: dict[str, Item]) -> None:
    [scaling] = [table for table in everything["smartnic fig4b"].tables if table.name == "scaling"]
    errors = [float(row[5]) for row in scaling.rows if row[5] is not None]
    assert len(errors) == len(smartnic_fig4b.CODECS) * len(smartnic_paper.FIG_4_BATCHES) * len(
        smartnic_fig4b.QUICK_SIMULATED
    )
    assert max(map(abs, errors)) < 100 * smartnic_paper.FIG_4_MODEL_ERROR


def test_spans() -> None:
    assert span([0.5]) == "50.0 %"
    assert span(iter([0.7, 0.1, 0.3])) == "10.0 % to 70.0 %"
