"""The smart NIC's Fig. 2a: an iteration with and without overlap of the all-reduce, measured over real NICs."""

from __future__ import annotations

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, change, percent
from benchmarks.papers.smartnic import paper, perceptron
from softnic.experiments.train.strategies_compared import StrategyRow


def make(context: Context) -> Item:
    measured = perceptron.measured(context, paper.FIG_2_BATCH, ("inc", "host-overlapped"))
    naive, overlapped = rows = measured.rows
    return Item(
        "the host's all-reduce, naive and overlapped",
        [_comparison(naive, overlapped), perceptron.breakdown(rows)],
        [perceptron.chart(rows)],
        [perceptron.differs(measured.plan)],
        _findings(naive, overlapped),
        perceptron.settings(measured.plan),
    )


def _comparison(naive: StrategyRow, overlapped: StrategyRow) -> ValueTable:
    exposed, share = "exposed all-reduce, naive / overlapped", "exposed all-reduce, share of the naive iteration (%)"
    longer = 100 * (overlapped.backward_s / naive.backward_s - 1)
    rows: list[Row] = [
        [share, 100 * paper.FIG_2_EXPOSED_SHARE, 100 * naive.exchange_s / naive.iteration_s],
        [exposed, paper.FIG_2_EXPOSED_FACTOR, naive.exchange_s / overlapped.exchange_s],
        ["iteration, naive / overlapped", paper.FIG_2_SPEED_UP, naive.iteration_s / overlapped.iteration_s],
        ["backward pass longer by (%)", 100 * paper.FIG_2_SLOWER_BACKWARD, longer],
    ]
    return ValueTable("Fig. 2a", "what | paper [.2f] | here [.2f]", rows)


def _findings(naive: StrategyRow, overlapped: StrategyRow) -> list[str]:
    return [
        f"Naive, an iteration takes {naive.iteration_s / overlapped.iteration_s:.2f} times as long as overlapped; the "
        f"paper has {paper.FIG_2_SPEED_UP}. Overlapped, a backward pass takes "
        f"{change([1 - overlapped.backward_s / naive.backward_s], 0)} time here, where NICs and workers share the "
        f"cores, and {percent(paper.FIG_2_SLOWER_BACKWARD, 0)} more in the paper.",
    ]
