"""INCEPTIONN's Fig. 7: training time with compression in software, on the hosts' CPUs.

Each compressor is measured on one core of this machine, on real gradients. With it, a worker encodes its gradients, the
aggregator decodes one vector after the other, and the leg of the gradients, half of Table II's communication, takes
less time by the ratio; the rest is Table II's. softnic's codecs are listed beside, as if they ran on the hosts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.item import Item, Row, ValueTable, span
from benchmarks.papers.over_nics import QUICK_BYTES, gradients_of, sample
from softnic import codecs
from softnic.bench.compressors import COMPRESSORS, Prepared, ours
from softnic.codecs.threads import at_most
from softnic.experiments.data import Floats
from softnic.extras import not_installed
from softnic.measure.plot import Bars
from softnic.measure.timing import ONE_CORE, seconds_a_call

MODELS = ("alexnet", "hdc")
"""The models in the paper's figure."""
OTHERS = ("Snappy", "SZ3")
"""The paper's lossless and lossy one; its SZ is SZ 1.4."""
OWN = {"16b-T": "truncate:16", "22b-T": "truncate:10", "24b-T": "truncate:8"} | {
    name: name for name in ("inceptionn:10", "bounded:10")
}
BOUND = 2.0**-10
SAMPLE_BYTES = 16 << 20
"""Largest sample of a model's gradients."""
SLICE_S = 0.3
_COLUMNS = (
    "model | compressor | ratio [.2f] | encode GB/s [.2f] | decode GB/s [.2f] | iteration s [.4f] | times Base [.2f]"
)


@dataclass(frozen=True)
class Speed:
    """Speed and ratio of a compressor on one core."""

    ratio: float
    encode_s: float
    """Seconds a byte of floats."""
    decode_s: float


def measured(prepared: Prepared, nbytes: int, slice_s: float) -> Speed:
    used = prepared.encode()
    prepared.decode()
    encode_s, decode_s = (seconds_a_call(work, slice_s, ONE_CORE) for work in (prepared.encode, prepared.decode))
    return Speed(nbytes / used, encode_s / nbytes, decode_s / nbytes)


def iteration_s(model: str, speed: Speed) -> float:
    """Table II's iteration with this compressor on the hosts."""
    table, n = paper.TABLE_2[model], paper.MODEL_MB[model] * 2**20
    leg_s = table.communicate / paper.TABLE_2_ITERATIONS / 2
    base_s = table.total / paper.TABLE_2_ITERATIONS
    return base_s - leg_s + leg_s / speed.ratio + n * speed.encode_s + paper.WORKERS * n * speed.decode_s


def make(context: Context) -> Item:
    rows: list[Row] = []
    factors: dict[str, dict[str, float]] = {}
    missing: set[str] = set()
    for model in context.only(MODELS):
        floats = sample(context.stages(model)[-1].floats, 1, QUICK_BYTES if context.quick else SAMPLE_BYTES).rows[0]
        base = paper.TABLE_2[model].total / paper.TABLE_2_ITERATIONS
        factors[model] = {"Base": 1.0}
        for name, prepare in _compressors(floats).items():
            context.progress(f"fig7: {name} on {paper.TITLES[model]}")
            try:
                speed = _kept(context, model, name, prepare, floats.nbytes)
            except ImportError as error:
                missing.add(f"{name} was left out: {not_installed(str(error.name))}")
                continue
            seconds = iteration_s(model, speed)
            factors[model][name] = seconds / base
            rates = (1e-9 / speed.encode_s, 1e-9 / speed.decode_s)
            rows.append([paper.TITLES[model], name, speed.ratio, *rates, seconds, seconds / base])
    names = list(dict.fromkeys(name for each in factors.values() for name in each))
    series = {paper.TITLES[model]: [each.get(name) for name in names] for model, each in factors.items()}
    return Item(
        "compression by software on the hosts",
        [ValueTable("One core of this machine; the rest of an iteration as in Table II", _COLUMNS, rows)],
        [Bars("Training time, times that without compression", "times Base", names, series)],
        [
            "The paper ran them on a Xeon E5-2640; here it is one core of this machine. Its SZ is an earlier version, "
            "and it does not say how its truncation packs bits.",
            *context.gradients_differ(),
            *sorted(missing),
        ],
        _findings(factors, rows),
        {"models": list(factors)},
    )


def _kept(context: Context, model: str, name: str, prepare: Callable[[], Prepared], nbytes: int) -> Speed:
    """Return a compressor's speed as the item's file keeps it. Raises ImportError without its package."""
    slice_s = 0.01 if context.quick else SLICE_S

    def measure() -> Speed:
        with at_most(1):
            return measured(prepare(), nbytes, slice_s)

    settings = {**gradients_of(context), "bytes": nbytes, "slice_s": slice_s, "bound": BOUND}
    return context.kept.once(f"{paper.TITLES[model]}, {name}", settings, measure, Speed)


def _compressors(floats: Floats) -> dict[str, Callable[[], Prepared]]:
    """Functions that prepare each compressor, by name. Those of absent packages raise ImportError."""
    others = {each.name: partial(each.prepare, floats, BOUND) for each in COMPRESSORS if each.name in OTHERS}
    made: dict[str, Callable[[], Prepared]] = {name: others[name] for name in OTHERS}
    return made | {name: partial(ours, codecs.get(codec), floats) for name, codec in OWN.items()}


def _findings(factors: Mapping[str, Mapping[str, float]], rows: list[Row]) -> list[str]:
    def factor(name: str) -> str:
        return span((each[name] for each in factors.values() if name in each), ".2f")

    low, high = paper.FIG_7_SOFTWARE_FACTORS
    lines = [
        f"{name}: training takes {factor(name)} times as long; the paper has {low:g} to {high:g} times."
        for name in OTHERS
        if any(name in each for each in factors.values())
    ]
    ratios = [float(row[2] or 0) for row in rows if row[1] == "Snappy"]
    if ratios:
        lines.append(f"Snappy: the paper has a ratio of about {paper.SNAPPY_RATIO}; here {span(ratios, '.2f')}.")
    return [
        *lines,
        f"Truncation in software: {factor('16b-T')}, {factor('22b-T')} and {factor('24b-T')} times Base; the paper "
        "calls the gain slight, since packing bits burdens its CPUs. With SIMD kernels it does not.",
    ]
