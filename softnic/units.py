"""Rates, times, sizes and probabilities as users write them: 1gbit, 50us, 1mb, 0.1%.

Names of units are tc(8)'s, in upper or lower case. What readers would take for different quantities is refused with a
suggestion: rates of bytes (tc's `mbps` are megabytes), sizes without a `b`, and numbers without a unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Zµμ%/]*)\s*")
_RATE = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_BINARY_RATE = {"kibit": 2.0**10, "mibit": 2.0**20, "gibit": 2.0**30, "tibit": 2.0**40}
_SHORT_RATE = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
"""As iperf3 and NIC vendors write rates: 10G."""
_RATES = {
    **_SHORT_RATE,
    **{f"{unit}{end}": bps for unit, bps in (_RATE | _BINARY_RATE).items() for end in ("", "s", "/s", "s/s", "ps")},
}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIMES = {
    **_TIME,
    **{f"{prefix}sec{end}": seconds for prefix, seconds in (("", 1.0), ("m", 1e-3), ("u", 1e-6)) for end in ("", "s")},
    "µs": 1e-6,
    "μs": 1e-6,
}
_SIZE = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_MINUTES = {"m": 60, "min": 60, "mins": 60, "h": 3600}
_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PROBABILITY = {"%": 0.01, "": 1.0}
_BYTE_RATE = re.compile(r"([kmgt]?)(i?)(?:b|bps|b/s|bytes?|bytes?/s)")
_BITS = re.compile(r"([kmg]?)(i?)bits?")


def _parse(
    text: str,
    units: Mapping[str, float],
    quantity: str,
    wanted: str,
    suggestion: Callable[[float, str], str],
) -> float:
    """Return the value of a number with one of the units. `suggestion`: what to write instead, if that can be told."""
    match = _NUMBER.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in units:
        hint = suggestion(float(match[1]), unit) if match else ""
        raise ValueError(f"{text!r} is not a {quantity}: {hint or wanted}")
    value = float(match[1]) * units[unit]
    if value == float("inf"):
        raise ValueError(f"{text[:20]!r}... is not a {quantity}: it is too large")
    return value


def _one_of(units: Iterable[str]) -> str:
    return f"a number and one of {', '.join(units)} is expected"


def _rate_suggestion(number: float, unit: str) -> str:
    if not unit:
        return f"the unit is missing, as in {number:g}mbit"
    if match := _BYTE_RATE.fullmatch(unit):
        prefix = match[1] + match[2]
        return f"is it bits or bytes? Write {number:g}{prefix}bit or {8 * number:g}{prefix}bit"
    return ""


def _time_suggestion(number: float, unit: str) -> str:
    if not unit:
        return f"the unit is missing, as in {number:g}ms"
    return f"write {number * _MINUTES[unit]:g}s" if unit in _MINUTES else ""


def _size_suggestion(number: float, unit: str) -> str:
    if not unit:
        return f"the unit is missing, as in {number:g}kb"
    if unit in ("k", "m", "g"):
        return f"write {number:g}{unit}b (decimal) or {number:g}{unit}ib (binary)"
    match = _BITS.fullmatch(unit)
    return f"it is bits: write {number / 8:g}{match[1]}{match[2]}b" if match else ""


def _no_suggestion(_number: float, _unit: str) -> str:
    return ""


def rate_bps(text: str) -> float:
    """Return bits per second of `1gbit`, `1Gbit/s` or `1G`. Raises ValueError."""
    return _parse(text, _RATES, "rate", _one_of(_RATE), _rate_suggestion)


def time_s(text: str) -> float:
    """Return seconds of `50us`. Raises ValueError."""
    return _parse(text, _TIMES, "time", _one_of(_TIME), _time_suggestion)


def duration_s(text: str) -> int:
    """Return seconds of `24h`, a time of whole seconds, minutes, hours or days. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time: a number and one of s, m, h, d is expected, as in 24h")
    return int(match[1]) * _SECONDS[match[2]]


def size_bytes(text: str) -> int:
    """Return bytes of `1mb` (decimal) or `1MiB`. Raises ValueError."""
    return round(_parse(text, _SIZE, "size", _one_of(_SIZE), _size_suggestion))


def probability(text: str) -> float:
    """Return a probability, 0..1, of `0.1%` or `0.001`. Raises ValueError."""
    wanted = "a number from 0 to 1 or a percentage is expected, as in 0.1%"
    value = _parse(text, _PROBABILITY, "probability", wanted, _no_suggestion)
    if value > 1:
        raise ValueError(f"{text!r} is not a probability: it is more than 100%")
    return value


def text_bytes(count: float) -> str:
    """Format a number of bytes as `1.2 MB`, decimal."""
    if abs(round(count)) < 1000:
        return f"{count:.0f} B"
    return _in_unit(count, (("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)), lambda value: f"{value:.1f}")


def text_rate(bps: float) -> str:
    """Format a rate as `1.2 Gbit/s`."""
    scales = (("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12))
    return _in_unit(bps, scales, _three_digits)


def text_time(seconds: float) -> str:
    """Format a time as `1.2 ms`."""
    return _in_unit(seconds, (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)), _three_digits)


def counted(number: int, noun: str) -> str:
    """Return a number of things, as in `1 round` or `3 rounds`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def medians_of(number: int, noun: str) -> str:
    """Return what figures are: `medians of 3 rounds`, or `one round`."""
    return f"medians of {counted(number, noun)}" if number > 1 else f"one {noun}"


def _three_digits(value: float) -> str:
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text else text


def _in_unit(value: float, scales: Sequence[tuple[str, float]], form: Callable[[float], str]) -> str:
    """Format a value in the smallest unit in which it is less than 1000 as printed, or in the last one."""
    for (unit, scale), _ in pairwise(scales):
        text = form(value / scale)
        if abs(float(text)) < 1000:
            return f"{text} {unit}"
    unit, scale = scales[-1]
    return f"{form(value / scale)} {unit}"
