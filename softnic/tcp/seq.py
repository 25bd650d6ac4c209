"""Sequence arithmetic modulo 2^32 (RFC 9293, section 3.4): the only place that knows sequence numbers wrap.

Inside the stack a byte of a stream has a *position*, an integer that never wraps: the SYN has position 0, the
first data byte 1, and the FIN the position after the last data byte. `snd_una`, `rcv_nxt` and their kin hold
positions, so they compare like any integers. Sequence numbers exist in segments alone; the two functions below
stand at that border.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_HALF = 1 << 31


def number(initial: int, position: int) -> int:
    """The sequence number of a position in a stream whose initial sequence number is given."""
    return (initial + position) & _MASK


def position(initial: int, sequence: int, near: int) -> int:
    """The position with this sequence number that lies nearest to `near`; may be negative for a hostile number."""
    return near + ((sequence - initial - near + _HALF) & _MASK) - _HALF


def after(first: int, second: int) -> bool:
    """Whether 32-bit number `first` (a sequence number, a timestamp) is later than `second`."""
    return 0 < (first - second) & _MASK < _HALF


def elapsed(later: int, earlier: int) -> int:
    """Ticks from one 32-bit timestamp to another, taken as not negative."""
    return (later - earlier) & _MASK
