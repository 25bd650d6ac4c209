"""The smart NIC's Fig. 4a over real NICs: an iteration with the host's all-reduce, the NIC's, the NIC's with BFP."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, change, percent
from benchmarks.papers.smartnic import paper, perceptron
from benchmarks.papers.smartnic.perceptron import BFP
from softnic.experiments.train.strategies_compared import StrategyRow


def make(context: Context) -> Item:
    strategies = ("host-overlapped", "nic-overlapped", f"nic-overlapped+{BFP}")
    measured = perceptron.measured(context, paper.FIG_4_BATCH, strategies)
    rows = measured.rows
    return Item(
        "all-reduce by the host, by NICs, by NICs with BFP",
        [_comparison(rows), perceptron.breakdown(rows)],
        [perceptron.chart(rows)],
        [perceptron.differs(measured.plan)],
        _findings(rows),
        perceptron.settings(measured.plan),
    )


def _comparison(rows: Sequence[StrategyRow]) -> ValueTable:
    base, nic, bfp = rows

    def row(what: str, published: float, before: float, after: float) -> Row:
        return [what, 100 * published, 100 * (1 - after / before)]

    shown = [
        row("NIC: exposed all-reduce", paper.FIG_4_LESS_EXPOSED, base.exchange_s, nic.exchange_s),
        row("NIC: backward pass", paper.FIG_4_LESS_BACKWARD, base.backward_s, nic.backward_s),
        row("NIC: iteration", paper.FIG_4_LESS_TOTAL, base.iteration_s, nic.iteration_s),
        row("NIC+BFP: exposed all-reduce", paper.FIG_4_LESS_EXPOSED_BFP, base.exchange_s, bfp.exchange_s),
        row("NIC+BFP: iteration", paper.FIG_4_LESS_TOTAL_BFP, base.iteration_s, bfp.iteration_s),
    ]
    return ValueTable("Fig. 4a", "less than overlapped by the host (%) | paper [.0f] | here [.0f]", shown)


def _findings(rows: Sequence[StrategyRow]) -> list[str]:
    base, nic, bfp = rows
    return [
        f"Exposed all-reduce: {change([1 - nic.exchange_s / base.exchange_s], 0)} by NICs, "
        f"{change([1 - bfp.exchange_s / base.exchange_s], 0)} with BFP; the paper has "
        f"{percent(paper.FIG_4_LESS_EXPOSED, 0)} and {percent(paper.FIG_4_LESS_EXPOSED_BFP, 0)} less.",
    ]
