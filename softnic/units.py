"""Rates, times, sizes and probabilities as users write them: 1gbit, 50us, 1mb, 0.1%."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z%]*)\s*")
_RATE = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SIZE = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def _parse(text: str, units: dict[str, float] | dict[str, int], quantity: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{text!r} is not a {quantity}: a number and one of {', '.join(units)} is expected")
    value = float(match[1]) * units[match[2].lower()]
    if value == float("inf"):
        raise ValueError(f"{text[:20]!r}... is not a {quantity}: it is too large")
    return value


def rate_bps(text: str) -> float:
    """Return bits per second of `1gbit`. Raises ValueError."""
    return _parse(text, _RATE, "rate")


def time_s(text: str) -> float:
    """Return seconds of `50us`. Raises ValueError."""
    return _parse(text, _TIME, "time")


def size_bytes(text: str) -> int:
    """Return bytes of `1mb` (decimal) or `1MiB`. Raises ValueError."""
    return round(_parse(text, _SIZE, "size"))


def probability(text: str) -> float:
    """Return a probability, 0..1, of `0.1%` or `0.001`. Raises ValueError."""
    value = _parse(text, {"%": 0.01, "": 1.0}, "probability")
    if value > 1:
        raise ValueError(f"{text!r} is not a probability: it is more than 100%")
    return value


def text_bytes(count: float) -> str:
    """Format a number of bytes as `1.2 MB`, decimal."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def text_rate(bps: float) -> str:
    """Format a rate as `1.2 Gbit/s`."""
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if abs(bps) >= scale:
            return f"{bps / scale:.3g} {unit}"
    return f"{bps:.3g} bit/s"


def text_time(seconds: float) -> str:
    """Format a time as `1.2 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
