"""A2DTWP's claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softnic.experiments.reproduce.a2dtwp.precision import PLANS
from softnic.experiments.reproduce.claim import Claim, Results, Verdict
from softnic.experiments.reproduce.item import change, number
from softnic.experiments.spread import Spread

_ITEM, _ADAPTIVE = "a2dtwp precision", "A2DTWP"
_PROFILE, _NICS, _WHOLE = "a2dtwp table2", "a2dtwp fig4", "a2dtwp fig5"
"""Over NICs."""
_MANY, _SOME = 2.5, 1.25
"""Times fewer bytes that come near the paper's, and that are some."""
_ABOUT_THE_SAME = 0.02
"""Of the error: the paper's own difference of 0.0193 is about the same."""


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


def _sent(results: Results) -> str:
    text = f"times fewer bytes: {_named(results, _BYTES, lambda share: f'{1 / share:.2f}')}"
    if _PROFILE in results:
        [down] = [row for row in results.records(_PROFILE) if row["step"] == "weights down"]
        whole, adaptive, *_ = (number(value) for name, value in down.items() if name.startswith("here "))
        text += f"; over NICs the weights of one network (`a2dtwp table2`) take 1/{whole / adaptive:.2f} of the time"
    return text


def _of_bytes(results: Results) -> Verdict:
    factors = [1 / share for share in _by_model(results, _BYTES)]
    return "confirmed" if min(factors) >= _MANY else "in part" if max(factors) >= _SOME else "not seen"


def _sooner(results: Results) -> str:
    saved = [1 - share for column in _TIMES for share in _by_model(results, column)]
    if not saved:
        return "the baseline's error is not reached by all seeds"
    text = f"{change(saved)} by the paper's profiles, in {len(saved)} of {_cases(results)} cases that reach it"
    shares = list(results.values(_NICS, "A2DTWP, here")) if _NICS in results else []
    if shares:
        text += f"; over NICs {change([1 - Spread(shares).mean])} on average of {len(shares)} cases with three seeds, "
        text += f"{sum(share < 1 for share in shares)} of which take less"
    return text


def _cases(results: Results) -> int:
    return len(_TIMES) * len(_by_model(results, _BYTES))


def _of_time(results: Results) -> Verdict:
    shares = [share for column in _TIMES for share in _by_model(results, column)]
    if len(shares) == _cases(results) and all(share < 1 for share in shares):
        return "confirmed"
    return "in part" if any(share < 1 for share in shares) else "not seen"


def _at_the_end(results: Results) -> str:
    batches = change(1 - share for share in _by_model(results, _BATCH))
    text = f"{batches} by Table II; points of error: {_named(results, _ERROR, lambda more: f'{more:+.2f}')}"
    if _WHOLE in results:
        rows = results.records(_WHOLE)
        last = max(number(row["steps"]) for row in rows)
        saved = [1 - number(row["time, times the baseline's"]) for row in rows if row["steps"] == last]
        text += f"; over NICs (`{_WHOLE}`) {change(saved)}"
    return text


def _more(results: Results) -> list[float]:
    return _by_model(results, _ERROR)


def _of_errors(results: Results) -> Verdict:
    close = [more <= 100 * _ABOUT_THE_SAME for more in _more(results)]
    less = [share < 1 for share in _by_model(results, _BATCH)]
    if all(close) and all(less):
        return "confirmed"
    return "in part" if any(less) or all(close) else "not seen"


_BYTES, _ERROR, _BATCH = "bytes of weights, of 32 bits'", "points more than 32 bits", "batch on x86, of 32 bits'"
_TIMES = ("time to the error on x86", "on POWER")
_WRONG = "#what-does-not-hold"

CLAIMS: Sequence[Claim] = (
    Claim(
        "Algs. 1 to 4, Fig. 1",
        "weights' precision grows during training (AWP); Bitpack removes bytes",
        "method",
        "`softnic.gradients.awp` and the codec `truncate`, in C with threads, AVX2, AVX-512 and NEON",
        "confirmed",
        "",
        "gradients.md",
    ),
    Claim(
        "Alg. 5",
        "GPUs unpack in CUDA kernels, POWER packs with AltiVec",
        "CUDA, AltiVec",
        "out of scope: the NIC or the CPU unpacks, in portable C where it has no SIMD of its own",
        "out of scope",
        "",
        "codecs.md",
    ),
    Claim(
        "Table I",
        "networks, their weights and biases",
        "AlexNet, VGG, ResNet",
        lambda results: results.finding("a2dtwp table1"),
        "confirmed",
        "an eighth of the channels for 28 x 28 images here",
        "#a2dtwp-table1",
    ),
    Claim(
        "Tables II, III",
        "weights take less time to move to the devices",
        "2.94 and 3.20 times less",
        _sent,
        _of_bytes,
        "with T found as the paper finds it, precision is near 32 bits early in these trainings",
        "#a2dtwp-precision",
    ),
    Claim(
        "Figs. 3, 4",
        "a training reaches the same error sooner",
        "6.18 % (x86), 11.91 % (POWER) on average",
        _sooner,
        _of_time,
        "steps and bytes of short trainings, times by the paper's own profiles",
        "#a2dtwp-precision",
    ),
    Claim(
        "Fig. 5",
        "a whole training takes less time at about the same error",
        "errors +1.93 and +0.71 points",
        _at_the_end,
        _of_errors,
        "smaller networks and shorter trainings; by its own profile, few bytes saved do not pay for the norms",
        "#a2dtwp-precision",
    ),
    Claim(
        "abstract",
        "time saved on average",
        "6.18 % (x86), 11.91 % (POWER)",
        "the paper's own rows average 6.17 and 13.66 %",
        "refuted",
        "the average of the nine gains in the text",
        _WRONG,
    ),
)
