"""What the results say of INCEPTIONN's claims: the figures that `claims.toml` names."""

from __future__ import annotations

import math

from benchmarks.papers.claim import Figures, Results
from benchmarks.papers.inceptionn import fig7, paper
from benchmarks.papers.inceptionn.lossy import TITLES

_FIG_12, _FIG_13 = "inceptionn fig12", "inceptionn fig13"
_TABLES = ("measured", "virtual")
"""Of Fig. 12: over NICs, and in virtual time with Table II's computation."""
_RING, _COMPRESSED = "INC", "INC+C"
_PRECISIONS = {"kept": "weights, as kept", "sent": "weights, as sent", "gradients": "gradients"}


def hierarchies(results: Results) -> dict[str, float]:
    """Return milliseconds of an exchange with 32 workers, by organisation."""
    organisations = {"a": "(a) aggregators", "b": "(b) rings under an aggregator", "c": "(c) rings"}
    return {
        letter: results.value("inceptionn fig1", "ms", workers=32, organisation=organisation)
        for letter, organisation in organisations.items()
    }


def times_the_bound(results: Results) -> Figures:
    """Return the codec's largest error in multiples of the bound, by k."""
    return Figures(results.value("inceptionn table3", "times 2^-k", "swept", k=k) for k in paper.BOUNDS)


def lost(results: Results) -> dict[str, Figures]:
    """Return the points that each model loses without 24 of 32 bits, by what loses them."""
    return {
        name: Figures(-value for value in results.values("inceptionn fig4", f"{what}: points", dropped="24b-T"))
        for name, what in _PRECISIONS.items()
    }


def more_by_weights(results: Results) -> Figures:
    """Return the points that weights lose more than gradients, by model."""
    found = lost(results)
    return Figures(kept - other for kept, other in zip(found["kept"], found["gradients"], strict=True))


def outside_1(results: Results) -> Figures:
    """Return percent of the gradients outside -1 and 1, by stage."""
    return Figures(results.values("inceptionn fig5", "from 1 on (%)"))


def software(results: Results) -> dict[str, Figures]:
    """Return how many times as long a training takes with each compressor, by model."""
    return {
        compressor: Figures(
            results.value("inceptionn fig7", "times Base", model=paper.TITLES[model], compressor=compressor)
            for model in fig7.MODELS
        )
        for compressor in fig7.OTHERS
    }


def communication(results: Results) -> Figures:
    """Return percent of an iteration, by model."""
    return Figures(
        results.value("inceptionn table2", "here %", model=title, step="communicate") for title in paper.TITLES.values()
    )


def two_bits(results: Results) -> Figures:
    """Return percent of the words that become two bits at 2^-10."""
    return Figures(results.values("inceptionn table3", "2-bit", bound="2^-10"))


def saved_by_ring(results: Results) -> dict[str, Figures]:
    """Return shares of WA's exchange that INC saves, by model."""
    return _saved(results, _RING)


def saved_by_compressed_ring(results: Results) -> dict[str, Figures]:
    """Return shares of WA's exchange that INC+C saves, by model."""
    return _saved(results, _COMPRESSED)


def _saved(results: Results, exchange: str) -> dict[str, Figures]:
    return {
        table: Figures(share / 100 for share in results.values(_FIG_12, "less exchange (%)", table, exchange=exchange))
        for table in _TABLES
    }


def ring_outside(results: Results) -> Figures:
    """Return by how much INC's savings are outside of the paper's range, the farthest model's, measured and virtual."""
    published = paper.FIG_12_LESS_COMMUNICATION_INC.values()
    return outside(saved_by_ring(results), min(published), max(published))


def compressed_ring_outside(results: Results) -> Figures:
    """Return the same of INC+C."""
    return outside(saved_by_compressed_ring(results), *paper.FIG_12_LESS_COMMUNICATION_INC_C)


def outside(saved: dict[str, Figures], low: float, high: float) -> Figures:
    """Return by how much shares are outside of a range, the farthest of each table; nothing is outside up to 0."""
    return Figures(max(max(low - share, share - high) for share in shares) for shares in saved.values())


def packets(results: Results) -> dict[str, float]:
    """Return the least percent of WA's time that the ring saves, by what NICs do with freed space."""
    column = "less than WA, exact (%)"
    return {
        mode: min(results.values("inceptionn packets", column, exchange=_RING, mode=mode))
        for mode in ("fill", "packet")
    }


def speed_ups(results: Results) -> dict[str, Figures]:
    """Return how many times as fast an iteration of INC+C is as one of WA, by model."""
    return {table: Figures(results.values(_FIG_12, "speed-up", table, exchange=_COMPRESSED)) for table in _TABLES}


def extra_epochs(results: Results) -> dict[str, float]:
    """Return the epochs more than WA that INC+C needs, by model; infinite where not every seed reaches the accuracy."""
    found = {}
    for title in TITLES.values():
        if list(results.values(_FIG_13, "points of the target", model=title, exchange=_COMPRESSED)):
            more = list(results.values(_FIG_13, "more than WA", model=title, exchange=_COMPRESSED))
            found[title] = more[0] if more else math.inf
    return found


def epochs(results: Results) -> str:
    """Return the same in words, with the accuracy that is missing."""
    parts = []
    for title, more in extra_epochs(results).items():
        if math.isfinite(more):
            parts.append(f"{title} {more:+.2f} epochs")
            continue
        short, deviation = (
            results.value(_FIG_13, column, model=title, exchange=_COMPRESSED)
            for column in ("points of the target", "±")
        )
        parts.append(f"{title} not with every seed, at best {short:+.2f} ± {deviation:.2f} points of the target")
    return "; ".join(parts)


def ratios_at_10(results: Results) -> Figures:
    """Return compression ratios with the narrowest bound."""
    return Figures(results.values("inceptionn table3", "ratio", bound="2^-10"))


def ratios_at_6(results: Results) -> Figures:
    """Return compression ratios with the widest bound."""
    return Figures(results.values("inceptionn table3", "ratio", bound="2^-6"))


def lost_at_6(results: Results) -> dict[str, float]:
    """Return the points that each network loses with the widest bound."""
    rows = {
        title: list(results.values("inceptionn bounds", "points", model=title, exchange="INC(2^-6)"))
        for title in TITLES.values()
    }
    return {title: -points[0] for title, points in rows.items() if points}


def networks_at_6(results: Results) -> str:
    """Return the same in words."""
    return ", ".join(f"{title} {points:.2f}" for title, points in lost_at_6(results).items())


def longer_at_6(results: Results) -> str:
    """Return what HDC loses in Fig. 14's longer trainings, if they were made."""
    if "inceptionn fig14" not in results:
        return ""
    more, deviation = (
        results.value("inceptionn fig14", column, "accuracy", codec="INC(2^-6)") for column in ("points", "±")
    )
    return f"; longer trainings of HDC {-more:.2f} ± {deviation:.2f}"


def growth(results: Results) -> dict[str, float]:
    """Return how many times as long HDC's exchange takes with 32 workers as with 4."""
    found = {}
    for kind in ("WA", _RING):
        first, last = (results.value("inceptionn fig15", kind, "hdc", workers=workers) for workers in (4, 32))
        found[kind] = last / first
    return found
