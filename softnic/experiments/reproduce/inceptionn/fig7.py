"""INCEPTIONN's Fig. 7: what compression in software, on the hosts' CPUs, makes of training time.

Each compressor is measured on one core of this machine, on real gradients. With it, a worker encodes its gradients, the
aggregator decodes one vector after the other, and the leg of the gradients, half of Table II's communication, takes
that much less time; all else is Table II's. softnic's codecs stand beside, as if they ran on the hosts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from softnic import codecs
from softnic.bench.codec import ours
from softnic.bench.compressors import COMPRESSORS, Prepared
from softnic.codecs.threads import at_most
from softnic.experiments.data import Floats
from softnic.experiments.measure import ONE_CORE, seconds_a_call
from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.exchange import sample
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.report import Item, span
from softnic.extras import not_installed

MODELS = ("alexnet", "hdc")
"""Those of the figure."""
OTHERS = ("Snappy", "SZ3")
"""The paper's lossless and lossy one; its SZ is SZ 1.4."""
OWN = {
    "16b-T": "truncate:16",
    "22b-T": "truncate:10",
    "24b-T": "truncate:8",
    "inceptionn:10": "inceptionn:10",
    "bounded:10": "bounded:10",
}
BOUND = 2.0**-10
SAMPLE_BYTES = 16 << 20
"""Of a model's gradients, at most, from all over them."""
QUICK_BYTES = 1 << 18
SLICE_S = 0.3


@dataclass(frozen=True)
class Speed:
    """On one core, of the floats' bytes."""

    ratio: float
    encode_s: float
    """Seconds a byte."""
    decode_s: float


def measured(prepared: Prepared, nbytes: int, slice_s: float) -> Speed:
    used = prepared.encode()
    prepared.decode()
    encode_s = seconds_a_call(prepared.encode, slice_s, ONE_CORE)
    decode_s = seconds_a_call(prepared.decode, slice_s, ONE_CORE)
    return Speed(nbytes / used, encode_s / nbytes, decode_s / nbytes)


def iteration_s(model: str, speed: Speed) -> float:
    """Table II's iteration with this compressor on the hosts."""
    table, n = paper.TABLE_2[model], paper.MODEL_MB[model] * 2**20
    leg_s = table.communicate / paper.TABLE_2_ITERATIONS / 2
    base_s = table.total / paper.TABLE_2_ITERATIONS
    return base_s - leg_s + leg_s / speed.ratio + n * speed.encode_s + paper.WORKERS * n * speed.decode_s


def make(context: Context) -> Item:
    rows: list[list[Value]] = []
    factors: dict[str, dict[str, float]] = {}
    missing: set[str] = set()
    for model in context.only(MODELS):
        stage = context.stages(model)[-1]
        floats = sample(stage.floats, 1, QUICK_BYTES if context.quick else SAMPLE_BYTES).rows[0]
        base = paper.TABLE_2[model].total / paper.TABLE_2_ITERATIONS
        factors[model] = {"Base": 1.0}
        for name, prepare in _compressors(floats).items():
            context.progress(f"fig7: {name} on {paper.TITLES[model]}")
            try:
                with at_most(1):
                    speed = measured(prepare(), floats.nbytes, 0.01 if context.quick else SLICE_S)
            except ImportError as error:
                missing.add(f"{name} was left out: {not_installed(str(error.name))}")
                continue
            factors[model][name] = iteration_s(model, speed) / base
            rates = [1e-9 / speed.encode_s, 1e-9 / speed.decode_s]
            rows.append(
                [paper.TITLES[model], name, speed.ratio, *rates, iteration_s(model, speed), factors[model][name]]
            )
    names = list(dict.fromkeys(name for each in factors.values() for name in each))
    series = {paper.TITLES[model]: [each.get(name) for name in names] for model, each in factors.items()}
    return Item(
        "inceptionn",
        "fig7",
        "compression by software on the hosts",
        [ValueTable("One core of this machine; the rest of an iteration as in Table II", _COLUMNS, rows)],
        [Bars("Training time, times that without compression", "times Base", names, series)],
        [
            "The paper ran them on a Xeon E5-2640; here it is one core of this machine. Its SZ is an earlier version, "
            "and how its truncation packs bits it does not say.",
            *context.gradients_differ(),
            *sorted(missing),
        ],
        _findings(factors, rows),
        {"models": list(factors), "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("model"),
    ValueColumn("compressor"),
    ValueColumn("ratio", ".2f"),
    ValueColumn("encode GB/s", ".2f"),
    ValueColumn("decode GB/s", ".2f"),
    ValueColumn("iteration s", ".4f"),
    ValueColumn("times Base", ".2f"),
]


def _compressors(floats: Floats) -> dict[str, Callable[[], Prepared]]:
    """By name: what prepares one. Raises ImportError only when it is called."""
    others = {each.name: each for each in COMPRESSORS if each.name in OTHERS}
    made: dict[str, Callable[[], Prepared]] = {name: partial(others[name].prepare, floats, BOUND) for name in OTHERS}
    return made | {name: partial(ours, codecs.get(codec), floats) for name, codec in OWN.items()}


def _findings(factors: Mapping[str, Mapping[str, float]], rows: list[list[Value]]) -> list[str]:
    def factor(name: str) -> str:
        return span((each[name] for each in factors.values() if name in each), "{:.2f}".format)

    low, high = paper.FIG_7_SOFTWARE_FACTORS
    lines = []
    for name in (name for name in OTHERS if any(name in each for each in factors.values())):
        lines.append(f"{name}: training takes {factor(name)} times as long; the paper has {low:g} to {high:g} times.")
    ratios = [float(row[2] or 0) for row in rows if row[1] == "Snappy"]
    if ratios:
        found = span(ratios, "{:.2f}".format)
        lines.append(f"Snappy: the paper has a ratio of about {paper.SNAPPY_RATIO}; here {found}.")
    lines.append(
        f"Truncation in software: {factor('16b-T')}, {factor('22b-T')} and {factor('24b-T')} times Base; the paper "
        "calls the gain slight, for packing bits burdens its CPUs. With SIMD kernels it does not."
    )
    return lines
