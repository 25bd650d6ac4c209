"""What the results say of A2DTWP's claims: the figures that `claims.toml` names."""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.papers.a2dtwp.precision import PLANS
from benchmarks.papers.claim import Figures, Results
from benchmarks.papers.item import change, number
from softnic.measure.spread import Spread

_ITEM, _ADAPTIVE = "a2dtwp precision", "A2DTWP"
_PROFILE, _NICS, _WHOLE = "a2dtwp table2", "a2dtwp fig4", "a2dtwp fig5"
"""Over NICs."""
_BYTES, _ERROR, _BATCH = "bytes of weights, of 32 bits'", "points more than 32 bits", "batch on x86, of 32 bits'"
_TIMES = ("time to the error on x86", "on POWER")
_ABOUT_THE_SAME = 2.0
"""Points of error: the paper's own difference of 1.93 is about the same."""


def _by_model(results: Results, column: str) -> list[float]:
    return list(results.values(_ITEM, column, precision=_ADAPTIVE))


def _named(results: Results, column: str, text: Callable[[float], str]) -> str:
    """Return the figure of each model behind its name."""
    found = {
        plan.title.partition(",")[0]: list(
            results.values(_ITEM, column, precision=_ADAPTIVE, model_and_batch=plan.title)
        )
        for plan in PLANS.values()
    }
    return ", ".join(f"{name} {text(values[0])}" for name, values in found.items() if values)


def times_fewer_bytes(results: Results) -> Figures:
    """Return how many times fewer bytes of weights are sent, by model."""
    return Figures(1 / share for share in _by_model(results, _BYTES))


def models_bytes(results: Results) -> str:
    """Return the same in words."""
    return _named(results, _BYTES, lambda share: f"{1 / share:.2f}")


def weights_over_nics(results: Results) -> str:
    """Return what part of the time the weights of one network take over NICs, if it was measured."""
    if _PROFILE not in results:
        return ""
    [down] = [row for row in results.records(_PROFILE) if row["step"] == "weights down"]
    whole, adaptive, *_ = (number(value) for name, value in down.items() if name.startswith("here "))
    return f"; over NICs the weights of one network (`{_PROFILE}`) take 1/{whole / adaptive:.2f} of the time"


def shares_of_time(results: Results) -> Figures:
    """Return the shares of the baseline's time to the error, infinite where a case does not reach it."""
    shares = [share for column in _TIMES for share in _by_model(results, column)]
    return Figures([*shares, *[math.inf] * (len(_TIMES) * len(_by_model(results, _BYTES)) - len(shares))])


def sooner(results: Results) -> str:
    """Return how much sooner trainings reach the baseline's error, in words."""
    shares = shares_of_time(results)
    saved = [1 - share for share in shares if math.isfinite(share)]
    if not saved:
        return "the baseline's error is not reached by all seeds"
    text = f"{change(saved)} by the paper's profiles, in {len(saved)} of {len(shares)} cases that reach it"
    over_nics = list(results.values(_NICS, "A2DTWP, here")) if _NICS in results else []
    if over_nics:
        text += f"; over NICs {change([1 - Spread(over_nics).mean])} on average of {len(over_nics)} cases with three "
        text += f"seeds, {sum(share < 1 for share in over_nics)} of which take less"
    return text


def saved_of_batch(results: Results) -> Figures:
    """Return the shares of a batch's time that are saved by Table II, by model."""
    return Figures(1 - share for share in _by_model(results, _BATCH))


def models_errors(results: Results) -> str:
    """Return the points of error more than with 32 bits at the end, by model."""
    return _named(results, _ERROR, lambda more: f"{more:+.2f}")


def saved_over_nics(results: Results) -> str:
    """Return what whole trainings save over NICs, if they were measured."""
    if _WHOLE not in results:
        return ""
    rows = results.records(_WHOLE)
    last = max(number(row["steps"]) for row in rows)
    saved = [1 - number(row["time, times the baseline's"]) for row in rows if row["steps"] == last]
    return f"; over NICs (`{_WHOLE}`) {change(saved)}"


def beyond_error_and_time(results: Results) -> Figures:
    """Return the worst model's points of error beyond about the same, then what batches take more than with 32 bits."""
    error = max(_by_model(results, _ERROR)) - _ABOUT_THE_SAME
    return Figures([error, *(-saved for saved in saved_of_batch(results))])
