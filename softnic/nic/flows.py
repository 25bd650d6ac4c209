"""The NIC's state of a connection. It hangs on the connection's flow, which TCP owns (softnic/tcp/flow.py).

Whether both ends compress is agreed by their SYNs (FORMAT.md, "The option"): TCP keeps the peer's offer with the other
options of its SYN, so nothing that arrives later, stray or forged, changes it under a living connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from softnic.nic.adaptive_codec import AdaptiveCodec


@dataclass(slots=True)
class NicFlow:
    """Codec decisions and counts of one connection."""

    adaptive: AdaptiveCodec | None = None
    """State of the last tag sent under, where its codec is one that the NIC may leave out."""
    wire_bytes_sent: int = 0
    wire_bytes_received: int = 0
    offload_original_bytes_sent: int = 0
    offload_encoded_bytes_sent: int = 0
    offload_original_bytes_received: int = 0
    offload_encoded_bytes_received: int = 0


class FlowSlots(Protocol):
    """The fields of a flow that the NIC uses."""

    peer_codecs: int | None
    nic: Any
    rx_placement: Any


@dataclass(slots=True)
class DetachedFlow:
    """The slots of a flow without a TCP connection, to use a NIC alone."""

    peer_codecs: int | None
    nic: Any = None
    rx_placement: Any = None


def attach(flow: FlowSlots) -> NicFlow:
    """Creates the NIC's state of a flow."""
    state = flow.nic = NicFlow()
    return state


def agreed(flow: FlowSlots | None, codecs: int | None) -> int | None:
    """Returns the bitmap of the codecs that both ends have, `codecs` being ours; None: only plain bytes are sent."""
    if flow is None or codecs is None or flow.peer_codecs is None:
        return None
    return flow.peer_codecs & codecs
