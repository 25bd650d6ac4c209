"""Shares and ranges as text, for findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def percent(share: float, digits: int = 1) -> str:
    """Format a share: `20.9 %`."""
    return f"{share * 100:.{digits}f} %"


def change(saved: Iterable[float], digits: int = 1) -> str:
    """Format savings that may be losses: `20.9 % less`, `3.0 to 20.9 % less`, `15.3 % more`.

    Parameters
    ----------
    saved
        Shares of the whole that were saved; negative where it took more.
    """

    def amount(share: float) -> str:
        return percent(abs(share), digits)

    ordered = sorted(saved)
    low, high = ordered[0], ordered[-1]
    if low >= 0 or high <= 0:
        text = span((abs(low), abs(high)), amount).replace(" % to", " to")
        return f"{text} {'less' if low >= 0 else 'more'}"
    return f"{amount(low)} more to {amount(high)} less"


def points(lost: float) -> str:
    """Format accuracy that was lost, or gained if negative: `0.25 points lower`."""
    return f"{abs(100 * lost):.2f} points {'lower' if lost >= 0 else 'higher'}"


def span(values: Iterable[float], text: str | Callable[[float], str] = percent) -> str:
    """Format the range of values, `low to high`; one figure where both ends read the same. `text` formats a value."""
    show = (lambda value: format(value, text)) if isinstance(text, str) else text
    ordered = sorted(values)
    low, high = show(ordered[0]), show(ordered[-1])
    return low if low == high else f"{low} to {high}"
