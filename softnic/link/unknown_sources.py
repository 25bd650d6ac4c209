"""Datagrams from unknown sources: counted in C, and dropped by the kernel while they flood.

A datagram dropped before it is read costs least, and takes no buffer space from those of peers. So when more than FLOOD
datagrams from unknown sources arrive within WINDOW_S, a filter (a classic BPF program, socket(7): SO_ATTACH_FILTER)
that accepts only peers' addresses is attached for HOLD_S. The kernel does not say why it dropped a datagram, so those
are counted together with the ones that found the socket's buffer full.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import Collection

from softnic._native import ffi
from softnic.link.forwarding import LinkPeer

WINDOW_S = 0.1
FLOOD = 1000
"""Datagrams from unknown sources in a window; more are a flood."""
HOLD_S = 10.0

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_MAX_INSTRUCTIONS = 4096
"""Limit of a BPF program (BPF_MAXINSNS)."""
_LOAD_WORD, _LOAD_HALF, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_SOURCE_ADDRESS = 0xFFF00000 + 12
"""Offset in the IPv4 header, which begins at SKF_NET_OFF (linux/filter.h)."""
_SOURCE_PORT = 0
"""Offset in the UDP header, where the program of a UDP socket begins."""
_INSTRUCTION = struct.Struct("HBBI")
_WHOLE, _NOTHING = 0xFFFFFFFF, 0


class UnknownSourceFilter:
    """The kernel filter of one socket."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._window_ends = 0.0
        self._seen = 0
        self._until: float | None = None

    @property
    def active(self) -> bool:
        """Whether the kernel filters."""
        return self._until is not None

    @property
    def ends(self) -> float:
        """When the kernel's filter expires."""
        return math.inf if self._until is None else self._until

    def count(self, datagrams: int, peers: Collection[LinkPeer], now: float) -> bool:
        """Count datagrams from unknown sources. Returns whether this attached the filter."""
        if now >= self._window_ends:
            self._window_ends, self._seen = now + WINDOW_S, 0
        self._seen += datagrams
        if self._seen <= FLOOD or self.active:
            return False
        self._until = now + HOLD_S if self._attach(peers) else None
        return self.active

    def expire(self, now: float) -> None:
        """Detach the filter when its time is over."""
        if self._until is not None and now >= self._until:
            self._until = None
            self._window_ends = now
            with contextlib.suppress(OSError):
                self._wire.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def update(self, peers: Collection[LinkPeer]) -> None:
        """Set the peers that the filter accepts."""
        if self.active and not self._attach(peers):
            self._until = 0.0
            self.expire(0.0)

    def _attach(self, peers: Collection[LinkPeer]) -> bool:
        """Return False if the kernel refuses, or there are too many peers for one program."""
        code = program(peers)
        count = len(code) // _INSTRUCTION.size
        if count > _MAX_INSTRUCTIONS:
            return False
        held = ffi.from_buffer(code)
        try:
            what = struct.pack("HP", count, int(ffi.cast("uintptr_t", held)))
            self._wire.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, what)
        except OSError:
            return False
        return True


def program(peers: Collection[LinkPeer]) -> bytes:
    """Return a BPF program that accepts datagrams from the peers' addresses and ports."""
    ports: dict[int, list[int]] = {}
    for peer in peers:
        ports.setdefault(peer.address, []).append(peer.port)
    steps = [(_LOAD_WORD, 0, 0, _SOURCE_ADDRESS)]
    for address, there in ports.items():
        # A jump spans 255 steps; an address with more ports is compared again.
        for first in range(0, len(there), 100):
            part = there[first : first + 100]
            last = first + 100 >= len(there)
            steps.append((_IF_EQUAL, 0, 2 * len(part) + 2, address))
            steps.append((_LOAD_HALF, 0, 0, _SOURCE_PORT))
            for port in part:
                steps += [(_IF_EQUAL, 0, 1, port), (_RETURN, 0, 0, _WHOLE)]
            steps.append((_RETURN, 0, 0, _NOTHING) if last else (_LOAD_WORD, 0, 0, _SOURCE_ADDRESS))
    steps.append((_RETURN, 0, 0, _NOTHING))
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)
