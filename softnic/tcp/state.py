"""Connection states (RFC 9293, section 3.3.2), their groups and transitions."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    CLOSED = "CLOSED"
    LISTEN = "LISTEN"
    SYN_SENT = "SYN-SENT"
    SYN_RECEIVED = "SYN-RECEIVED"
    ESTABLISHED = "ESTABLISHED"
    FIN_WAIT_1 = "FIN-WAIT-1"
    FIN_WAIT_2 = "FIN-WAIT-2"
    CLOSE_WAIT = "CLOSE-WAIT"
    CLOSING = "CLOSING"
    LAST_ACK = "LAST-ACK"
    TIME_WAIT = "TIME-WAIT"

    __hash__ = object.__hash__  # members are single objects; Enum hashes their names, slowly


HANDSHAKE = frozenset({State.SYN_SENT, State.SYN_RECEIVED})
"""Not synchronized yet on both sides."""

SENDING = frozenset({State.ESTABLISHED, State.CLOSE_WAIT, State.FIN_WAIT_1, State.CLOSING, State.LAST_ACK})
"""Data or a FIN may have to be sent or retransmitted."""

WRITABLE = frozenset({*HANDSHAKE, State.ESTABLISHED, State.CLOSE_WAIT})
"""This side's direction is not closed."""

RECEIVING = frozenset({State.ESTABLISHED, State.FIN_WAIT_1, State.FIN_WAIT_2})
"""The peer's FIN was not received: its data is accepted."""

AFTER_PEERS_FIN = {
    State.ESTABLISHED: State.CLOSE_WAIT,
    State.FIN_WAIT_1: State.CLOSING,  # our FIN is not acknowledged, or the state would be FIN_WAIT_2 already
    State.FIN_WAIT_2: State.TIME_WAIT,
}
AFTER_OUR_FIN = {State.ESTABLISHED: State.FIN_WAIT_1, State.CLOSE_WAIT: State.LAST_ACK}
AFTER_FIN_ACKNOWLEDGED = {
    State.FIN_WAIT_1: State.FIN_WAIT_2,
    State.CLOSING: State.TIME_WAIT,
    State.LAST_ACK: State.CLOSED,
}
