"""State of keepalive probes (RFC 1122, section 4.2.3.6): settings, next deadline, probes without an answer.

timers.py sends the probes.
"""

from __future__ import annotations

from softnic.tcp.flow import NEVER, Flow


def set_keepalive(c: Flow, settings: tuple[float, float, int] | None, now: float) -> None:
    """Sets (idle seconds, interval seconds, probes), all positive; None switches keepalive off.

    Raises
    ------
    ValueError
        A setting is zero or negative.
    """
    if settings is not None and min(settings) <= 0:
        raise ValueError("keepalive times and counts are positive")
    c.keepalive = settings
    c.keepalive_probes = 0
    c.keepalive_at = NEVER if settings is None or c.ended else now + settings[0]
    c.tcp.schedule(c)


def on_heard(c: Flow) -> None:
    """The peer has answered."""
    c.keepalive_probes = 0


def on_probe(c: Flow, at: float) -> None:
    """A probe was sent; the next one is due at `at`."""
    c.keepalive_probes += 1
    c.keepalive_at = at


def postpone(c: Flow, at: float) -> None:
    """Moves the deadline; NEVER stops the timer."""
    c.keepalive_at = at
