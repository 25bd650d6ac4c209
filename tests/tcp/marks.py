"""News of an acknowledgement, and losses, as tests give them to what takes them."""

from __future__ import annotations

from softnic._native import ffi, lib
from softnic.tcp.scoreboard import Ack, Scoreboard, SentRange


def new_ack(now: float, flight_size: int) -> Ack:
    ack = Ack()
    ack.begin(now, flight_size)
    return ack


def mark_lost(scoreboard: Scoreboard, sent: SentRange) -> None:
    """Marks a range in flight as lost."""
    lib.sn_scoreboard_mark_lost(ffi.cast("sn_scoreboard *", scoreboard.address), sent)
