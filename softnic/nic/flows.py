"""The NIC's state of a connection. It hangs on the connection's flow, which TCP owns (softnic/tcp/flow.py).

Whether both ends compress is agreed by their SYNs (FORMAT.md, "The option"): TCP keeps the peer's offer with the other
options of its SYN, so nothing that arrives later, stray or forged, changes it under a living connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from softnic._fields import Memory, NicFlowFields
from softnic.nic.adaptive_codec import AdaptiveCodec


class NicFlow(NicFlowFields):
    """Codec decisions and counts of one connection."""

    __slots__ = ("adaptive",)

    wire_bytes_sent: int
    wire_bytes_received: int
    offload_original_bytes_sent: int
    """Of all bytes once, as is `offload_encoded_bytes_sent`: what was sent again does not count."""
    offload_encoded_bytes_sent: int
    offload_original_bytes_received: int
    offload_encoded_bytes_received: int
    path_until: float
    """Until when the path is valid, as long as the turn's `path_epoch` is this one."""
    path_epoch: int
    destination: int
    """MAC address."""
    peer: int
    """Place in the turn's list of peers, where the wire is UDP."""
    gso: bool
    is_loopback: bool
    peer_codecs: int
    """Bitmap of the codecs that both ends have; -1: none is to be used."""
    tag: int
    """Number of the tag that the codec is for; -1: none."""
    codec: int
    parameter: int

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.adaptive: AdaptiveCodec | None = None
        """State of the last tag sent under, where its codec is one that the NIC may leave out."""


class FlowSlots(Protocol):
    """The fields of a flow that the NIC uses."""

    peer_codecs: int | None
    nic: Any

    @property
    def memory(self) -> Memory | None:
        """Memory of the flow's fields; None: its NicFlow has memory of its own."""


class AdaptiveSlot(Protocol):
    """What a NIC keeps of a flow whose codec it may leave out."""

    adaptive: AdaptiveCodec | None


@dataclass(slots=True)
class DetachedFlow:
    """The slots of a flow without a TCP connection, to use a NIC alone."""

    peer_codecs: int | None
    nic: Any = None
    memory: None = None


def attach(flow: FlowSlots) -> NicFlow:
    """Creates the NIC's state of a flow."""
    state = flow.nic = NicFlow(memory=flow.memory)
    return state


def agreed(flow: FlowSlots | None, codecs: int | None) -> int | None:
    """Returns the bitmap of the codecs that both ends have, `codecs` being ours; None: only plain bytes are sent."""
    if flow is None or codecs is None or flow.peer_codecs is None:
        return None
    return flow.peer_codecs & codecs
