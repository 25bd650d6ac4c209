"""What the results say of INCEPTIONN's claims about time: Fig. 7, Table II and Fig. 12."""

from __future__ import annotations

from softnic.experiments.reproduce.claim import Results, Verdict
from softnic.experiments.reproduce.inceptionn import fig7, paper
from softnic.experiments.reproduce.item import change, span

_FIG_12 = "inceptionn fig12"
_MOST_OF_THE_TIME = 0.7
"""Share of communication that the paper has for all models, about."""


def _factors(results: Results, compressor: str) -> list[float]:
    return [
        results.value("inceptionn fig7", "times Base", model=paper.TITLES[model], compressor=compressor)
        for model in fig7.MODELS
    ]


def software(results: Results) -> str:
    """Return how much longer a training takes with each compressor."""
    found = (f"{name} {' and '.join(f'{each:.2f}' for each in _factors(results, name))}" for name in fig7.OTHERS)
    return f"{', '.join(found)} ({' and '.join(paper.TITLES[model] for model in fig7.MODELS)})"


def software_is_slow(results: Results) -> Verdict:
    factors = [each for name in fig7.OTHERS for each in _factors(results, name)]
    if min(factors) >= paper.FIG_7_SOFTWARE_FACTORS[0]:
        return "confirmed"
    return "in part" if max(factors) > 1 else "refuted"


def shares(results: Results) -> str:
    """Return the shares of communication by model."""
    found = [
        results.value("inceptionn table2", "here %", model=title, step="communicate") for title in paper.TITLES.values()
    ]
    return f"{', '.join(f'{share:.0f}' for share in found)} % ({', '.join(paper.TITLES.values())})"


def less_exchange(results: Results, exchange: str, table: str) -> list[float]:
    """Return the shares of WA's exchange that another one saves, by model."""
    found = results.values(_FIG_12, "less exchange (%)", table, exchange=exchange)
    return [share / 100 for share in found]


def exchanged(results: Results, exchange: str) -> str:
    measured, virtual = (change(less_exchange(results, exchange, table), 0) for table in ("measured", "virtual"))
    return f"{measured} measured; {virtual} in virtual time"


def saves(results: Results, exchange: str) -> Verdict:
    """Return whether an exchange saves time with every model, as measured."""
    saved = [share > 0 for share in less_exchange(results, exchange, "measured")]
    return "confirmed" if all(saved) else "in part" if any(saved) else "refuted"


def _speed_ups(results: Results, table: str) -> list[float]:
    return list(results.values(_FIG_12, "speed-up", table, exchange="INC+C"))


def speed_ups(results: Results) -> str:
    """Return how much faster an iteration of INC+C is than one of WA."""
    measured, virtual = (span(_speed_ups(results, table), ".1f") for table in ("measured", "virtual"))
    return f"{measured} times measured; {virtual} with Table II's computation"


def of_speed_ups(results: Results) -> Verdict:
    found = [each for table in ("measured", "virtual") for each in _speed_ups(results, table)]
    if min(found) >= paper.FIG_12_SPEED_UP_INC_C[0]:
        return "confirmed"
    return "in part" if max(found) > 1 else "refuted"
