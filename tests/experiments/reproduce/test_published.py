"""The virtual times in docs/papers.md are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facades.reproduce import add_gamma, fig15, paper, perceptron, smartnic_fig4, smartnic_paper

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "papers.md").read_text()
WORKERS = (4, 8, 16, 32)


def test_exchange_time_with_more_workers() -> None:
    """INCEPTIONN's Fig. 15, of HDC."""
    words = round(paper.MODEL_MB["hdc"] * 2**20 / 4)
    words = min(words, fig15.SAMPLE_WORDS) // 512 * 512
    kinds = (fig15.WA, fig15.INC, fig15.NIC)
    seconds = {
        (kind, workers): fig15.virtual(kind, workers, words, 10e9, add_gamma("hdc"))
        for kind in kinds
        for workers in WORKERS
    }
    base = seconds[fig15.WA, 4]
    for workers in WORKERS:
        cells = [f"{seconds[kind, workers] / base:.2f}" for kind in kinds]
        assert f"| {workers} | {' | '.join(cells)} |" in PAGE
    grows = [f"{seconds[kind, 32] / seconds[kind, 4]:.2f}" for kind in kinds]
    assert f"WA takes {grows[0]} times as long, the rings {grows[1]} and {grows[2]} (" in PAGE


def test_errors_of_the_smart_nics_formulas() -> None:
    """The model of Fig. 4b beside virtual time."""
    errors = {
        (batch, variant): max(
            abs(perceptron.predicted(strategy, nodes, batch) / perceptron.simulated(nodes, batch, codec) - 1)
            for nodes in smartnic_fig4.SIMULATED
        )
        for batch in smartnic_paper.FIG_4_BATCHES
        for variant, strategy in smartnic_fig4.VARIANTS.items()
        if (codec := smartnic_fig4.CODECS.get(strategy)) is not None
    }
    worst = errors.pop((448, "NIC"))
    text = f"| {worst:.1%} at most (batch 448 without BFP), else {max(errors.values()):.1%} |"
    assert text.replace("%", " %") in PAGE
