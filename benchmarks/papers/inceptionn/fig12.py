"""INCEPTIONN's Fig. 12: training time with and without compression, worker-aggregator against ring.

Made twice. Measured: computed on this machine, exchanged over real NICs. In the paper's proportions: Table II's
forward, backward, copy and update, with an exchange in virtual time on links of 10 Gbit/s, through NICs and hosts
that take no time except for sums, which take as long as Table II's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import compute, paper
from benchmarks.papers.item import Item, Row, ValueTable, change, number, percent, span
from benchmarks.papers.over_nics import (
    RATE,
    STRATEGIES,
    TIMES,
    Sample,
    gradients_of,
    over_nics,
    sample_bytes,
    sample_of,
    sample_size,
)
from benchmarks.papers.virtual import add_gamma, in_virtual_time
from softnic.measure.plot import Bars
from softnic.units import rate_bps

_COLUMNS = (
    "model | exchange | compute s [.4f] | exchange s [.4f] | time / WA [.3f] | speed-up [.2f] | "
    "less exchange (%) [.1f] | paper: time / WA [.3f] | paper: less communication (%)"
)


@dataclass(frozen=True)
class Times:
    """Seconds of an iteration."""

    compute_s: float
    exchange_s: float
    """Communication and sums."""

    @property
    def total_s(self) -> float:
        return self.compute_s + self.exchange_s


ByStrategy = Mapping[str, Times]


def here(context: Context, model: str) -> ByStrategy:
    """Return times on this machine, exchanged over NICs. Raises MeasurementError, ClusterError."""
    own = compute.measured(model, context).total_s
    exchanged = sample_size(context, model)
    times = {}
    for name, strategy in STRATEGIES.items():
        context.progress(f"{paper.TITLES[model]}, {name}: {exchanged.megabytes:.1f} MB over NICs")
        part = over_nics(context, model, strategy)
        times[name] = Times(own, part.exchange + part.sum)
    return times


def in_proportion(context: Context, model: str) -> ByStrategy:
    """Return times with Table II's computation, links of 10 Gbit/s and gradients of the paper's size."""
    table = paper.TABLE_2[model]
    own = (table.total - table.communicate - table.gradient_sum) / paper.TABLE_2_ITERATIONS
    row_bytes = sample_size(context, model).row_bytes
    times = {}
    settings = {**gradients_of(context), "rate": paper.LINK, "bytes": row_bytes}
    for name, strategy in STRATEGIES.items():
        title = f"{paper.TITLES[model]}, {name}, in virtual time"
        context.progress(title)

        def measure(strategy: str = strategy) -> float:
            whole = Sample(sample_of(context, model).rows, paper.MODEL_MB[model] * 2**20 / row_bytes)
            return in_virtual_time(whole, strategy, rate_bps(paper.LINK), add_gamma(model))

        times[name] = Times(own, context.shared(TIMES).once(title, settings, measure, float))
    return times


def make(context: Context) -> Item:
    measured: dict[str, ByStrategy] = {}
    virtual: dict[str, ByStrategy] = {}
    for model in context.models:
        measured[model] = here(context, model)
        virtual[model] = in_proportion(context, model)
    return Item(
        "training time of WA, WA+C, INC, INC+C",
        [
            _table("Table II's computation, exchange in virtual time at 10 Gbit/s", virtual, "virtual"),
            _table(f"Measured on this machine, over NICs on links of {RATE}", measured, "measured"),
        ],
        [
            _chart("Table II and virtual time", virtual),
            _chart(f"measured, {RATE}", measured),
            _beside_paper(virtual, measured),
        ],
        [
            f"C is {paper.FIG_12_CODEC}. Virtual time leaves out what codecs, NICs and hosts take; the paper, too, "
            "computed the time of compressed exchanges from that of exact ones and the ratio (section VII-C).",
            f"Measured: links of {RATE}; NICs, workers and aggregator share this machine's cores; of large models "
            f"{sample_bytes(context) / 1e6:.1f} MB were exchanged, and the time scaled up.",
            *context.gradients_differ(),
        ],
        [*_findings(virtual, "virtual time"), *_findings(measured, "measured")],
        {"rate": RATE, "models": list(context.models)},
    )


def _table(title: str, by_model: Mapping[str, ByStrategy], name: str) -> ValueTable:
    rows: list[Row] = []
    for model, times in by_model.items():
        base = times["WA"]
        for strategy, own in times.items():
            ratio, saved = own.total_s / base.total_s, 100 * (1 - own.exchange_s / base.exchange_s)
            ours = (own.compute_s, own.exchange_s, ratio, 1 / ratio, saved)
            rows.append([paper.TITLES[model], strategy, *ours, *_published(model, strategy)])
    return ValueTable(title, _COLUMNS, rows, name)


def _published(model: str, strategy: str) -> Row:
    """Return the published time relative to WA's, and the share of its communication that is saved."""
    speed_up = paper.FIG_13_SPEED_UP.get(model)
    return {
        "WA": (1.0, None),
        "WA+C": (None, f"about {100 * paper.FIG_12_LESS_COMMUNICATION_WA_C:.1f}"),
        "INC": (
            1 - paper.FIG_12_LESS_TRAINING_INC[model],
            f"{100 * paper.FIG_12_LESS_COMMUNICATION_INC[model]:.0f}",
        ),
        "INC+C": (
            1 / speed_up if speed_up else None,
            " to ".join(f"{100 * saved:.1f}" for saved in paper.FIG_12_LESS_COMMUNICATION_INC_C),
        ),
    }[strategy]


def _chart(title: str, by_model: Mapping[str, ByStrategy]) -> Bars:
    bars = [(model, name, own, times["WA"].total_s) for model, times in by_model.items() for name, own in times.items()]
    parts = {
        "compute": [own.compute_s / base for _, _, own, base in bars],
        "exchange": [own.exchange_s / base for _, _, own, base in bars],
    }
    return Bars(title, "times WA", [f"{paper.TITLES[model]} {name}" for model, name, _, _ in bars], parts, stacked=True)


def _beside_paper(virtual: Mapping[str, ByStrategy], measured: Mapping[str, ByStrategy]) -> Bars:
    shown = [(model, strategy) for model in virtual for strategy in ("INC", "INC+C")]

    def times(by_model: Mapping[str, ByStrategy]) -> list[float | None]:
        return [by_model[model][strategy].total_s / by_model[model]["WA"].total_s for model, strategy in shown]

    published = [_published(model, strategy)[0] for model, strategy in shown]
    series = {
        "paper": [None if each is None else number(each) for each in published],
        "Table II and virtual time": times(virtual),
        f"measured, {RATE}": times(measured),
    }
    groups = [f"{paper.TITLES[model]} {strategy}" for model, strategy in shown]
    return Bars("An iteration beside the paper's", "times WA", groups, series)


def _findings(by_model: Mapping[str, ByStrategy], what: str) -> list[str]:
    def less(strategy: str, base: str = "WA") -> str:
        return change(1 - times[strategy].exchange_s / times[base].exchange_s for times in by_model.values())

    speed_ups = span((times["WA"].total_s / times["INC+C"].total_s for times in by_model.values()), ".1f")
    low, high = paper.FIG_12_SPEED_UP_INC_C
    published = span(paper.FIG_12_LESS_COMMUNICATION_INC.values())
    formula = percent(1 - (paper.WORKERS - 1) / paper.WORKERS**2)
    return [
        f"{what}: INC's exchange takes {less('INC')} time than WA's; the paper says {published} less. Bytes alone, "
        f"2 (p-1)/p n on each link against 2 p n on the aggregator's, make it {formula} less.",
        f"{what}: WA+C's exchange takes {less('WA+C')} time than WA's (paper: "
        f"{percent(paper.FIG_12_LESS_COMMUNICATION_WA_C)} less; half is the most, as weights are not compressed), "
        f"INC+C's {less('INC+C')} (paper: {span(paper.FIG_12_LESS_COMMUNICATION_INC_C)} less), which is "
        f"{less('INC+C', 'INC')} than INC's (paper: {percent(paper.FIG_12_LESS_COMMUNICATION_INC_C_TO_INC)} less).",
        f"{what}: an iteration of INC+C is {speed_ups} times as fast as WA's; the paper has {low} to {high}.",
    ]
