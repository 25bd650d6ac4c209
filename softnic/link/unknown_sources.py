"""Datagrams from unknown sources: counted in C, and dropped by the kernel while they flood.

A datagram dropped before it is read costs least, and takes no buffer space from those of peers. So when more than FLOOD
datagrams from unknown sources arrive within WINDOW_S, a filter (a classic BPF program, socket(7): SO_ATTACH_FILTER)
that accepts only peers' addresses is attached for HOLD_S. The kernel does not say why it dropped a datagram, so those
are counted together with the ones that found the socket's buffer full.

Where frames are encrypted, a peer may have moved to an unknown address, and is found by what it sends from there. So of
the datagrams that may be a peer's by their first byte, the filter passes a random share: one in SHARE, and less often
while more than FLOOD of them arrive in a window.

A socket of IPv6 may also receive over IPv4: the program looks at the header that a datagram has. The interface of a
link-local address is not in it, and is checked in C alone.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import Collection

from softnic import underlay
from softnic._native import ffi
from softnic.underlay import IPV4, Address

WINDOW_S = 0.1
FLOOD = 1000
"""Datagrams from unknown sources in a window; more are a flood."""
HOLD_S = 10.0
SETTLE_S = 0.2
"""Time for what arrived before a change of the filter to be read."""
SHARE, MAX_SHARE = 8, 1 << 15
"""One in how many of the datagrams that may be a peer's passes the filter, at first and at least; powers of two."""
_KINDS = range(0x10, 0x14)
"""First bytes of datagrams that may be a peer's (native/nic/aead.h)."""

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_MAX_INSTRUCTIONS = 4096
"""Limit of a BPF program (BPF_MAXINSNS)."""
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _SHIFT_RIGHT = 0x20, 0x28, 0x30, 0x74
_JUMP, _IF_EQUAL, _IF_AT_LEAST, _AND, _RETURN = 0x05, 0x15, 0x35, 0x54, 0x06
_RANDOM = 0xFFFFF000 + 56
"""A random word: SKF_AD_OFF + SKF_AD_RANDOM (linux/filter.h)."""
_PAYLOAD = 8
"""Offset of a datagram's first byte behind the UDP header."""
_IP_HEADER = 0xFFF00000
"""Where the IP header begins: SKF_NET_OFF (linux/filter.h)."""
_SOURCE_ADDRESS, _SOURCE_ADDRESS_IPV6 = _IP_HEADER + 12, _IP_HEADER + 8
_SOURCE_PORT = 0
"""Offset in the UDP header, where the program of a UDP socket begins."""
_INSTRUCTION = struct.Struct("HBBI")
_WHOLE, _NOTHING = 0xFFFFFFFF, 0


class UnknownSourceFilter:
    """The kernel filter of one socket. `passes_some`: peers may come from unknown sources."""

    def __init__(self, wire: socket.socket, passes_some: bool = False) -> None:
        self._wire = wire
        self._least_share = self._share = SHARE if passes_some else 0
        self._window_ends = 0.0
        self._seen = 0
        self._until: float | None = None
        self._narrow_at = 0.0

    @property
    def active(self) -> bool:
        """Whether the kernel filters."""
        return self._until is not None

    @property
    def ends(self) -> float:
        """When the kernel's filter expires."""
        return math.inf if self._until is None else self._until

    def count(self, datagrams: int, peers: Collection[Address], now: float) -> bool:
        """Count datagrams from unknown sources. Returns whether this attached the filter."""
        if now >= self._window_ends:
            self._window_ends, self._seen = now + WINDOW_S, 0
        self._seen += datagrams
        if self._seen <= FLOOD:
            return False
        if self.active:
            self._narrow(peers, now)
            return False
        self._until = now + HOLD_S if self._attach(peers) else None
        self._narrow_at = now + SETTLE_S
        return self.active

    def _narrow(self, peers: Collection[Address], now: float) -> None:
        """Pass fewer of the datagrams that may be a peer's, once what waits in the socket is read."""
        if self._share and self._share < MAX_SHARE and now >= self._narrow_at:
            self._share *= 2
            self._narrow_at = now + SETTLE_S
            self.update(peers)

    def expire(self, now: float) -> None:
        """Detach the filter when its time is over."""
        if self._until is not None and now >= self._until:
            self._until = None
            self._window_ends = now
            self._share = self._least_share
            with contextlib.suppress(OSError):
                self._wire.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def update(self, peers: Collection[Address]) -> None:
        """Set the peers that the filter accepts."""
        if self.active and not self._attach(peers):
            self._until = 0.0
            self.expire(0.0)

    def _attach(self, peers: Collection[Address]) -> bool:
        """Return False if the kernel refuses, or there are too many peers for one program."""
        code = program(peers, self._share)
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


_Steps = list[tuple[int, int, int, int]]
"""Operation, steps to jump over if it holds and if not, and operand."""
_REFUSE = (_RETURN, 0, 0, _NOTHING)


def program(peers: Collection[Address], share: int = 0) -> bytes:
    """Return a BPF program that accepts datagrams from the peers' addresses and ports, and of others that may be a
    peer's a random one in `share`, a power of two; 0: none."""
    ports: dict[str, list[int]] = {}
    for host, port in peers:
        ports.setdefault(host, []).append(port)
    accepted: dict[bool, _Steps] = {True: [], False: []}
    for host, there in ports.items():
        is_ipv4 = underlay.family(host) == IPV4
        for first in range(0, len(there), 100):  # a jump spans 255 steps; an address with more ports is compared again
            compared = _if_from_ipv4(host) if is_ipv4 else _if_from_ipv6(host)
            accepted[is_ipv4] += _accept(compared, there[first : first + 100], first + 100 >= len(there))
    ipv4 = [*accepted[True], _REFUSE]
    steps = [
        (_LOAD_BYTE, 0, 0, _IP_HEADER),
        (_SHIFT_RIGHT, 0, 0, 4),  # the version
        (_IF_EQUAL, 1, 0, 4),
        (_JUMP, 0, 0, len(ipv4)),
        *ipv4,
        *accepted[False],
        _REFUSE,
    ]
    if share:
        end = len(steps)
        steps = [
            (_JUMP, 0, 0, end - index - 1) if step == _REFUSE else step for index, step in enumerate(steps)
        ] + _accept_some(share)
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)


def _accept_some(share: int) -> _Steps:
    """Return steps that accept a random one in `share` datagrams that may be a peer's, and refuse all others."""
    return [
        (_LOAD_BYTE, 0, 0, _PAYLOAD),
        (_IF_AT_LEAST, 0, 4, _KINDS.start),
        (_IF_AT_LEAST, 3, 0, _KINDS.stop),
        (_LOAD_WORD, 0, 0, _RANDOM),
        (_AND, 0, 0, share - 1),
        (_IF_EQUAL, 1, 0, 0),
        _REFUSE,
        (_RETURN, 0, 0, _WHOLE),
    ]


def _if_from_ipv4(host: str) -> list[tuple[int, int]]:
    """Return what has to be equal for a source to be this host: places in the packet, and words."""
    return [(_SOURCE_ADDRESS, int.from_bytes(socket.inet_aton(host), "big"))]


def _if_from_ipv6(host: str) -> list[tuple[int, int]]:
    words = struct.unpack("!4I", socket.inet_pton(socket.AF_INET6, host.partition("%")[0]))
    return [(_SOURCE_ADDRESS_IPV6 + 4 * index, word) for index, word in enumerate(words)]


def _accept(compared: list[tuple[int, int]], ports: list[int], is_last: bool) -> _Steps:
    """Return steps that accept these ports of a host, and go on behind themselves if the source is another host, or if
    more ports of it follow."""
    ended: _Steps = [(_LOAD_HALF, 0, 0, _SOURCE_PORT)]
    for port in ports:
        ended += [(_IF_EQUAL, 0, 1, port), (_RETURN, 0, 0, _WHOLE)]
    if is_last:
        ended.append(_REFUSE)
    steps: _Steps = []
    for index, (place, word) in enumerate(compared):
        behind = 2 * (len(compared) - index - 1) + len(ended)
        steps += [(_LOAD_WORD, 0, 0, place), (_IF_EQUAL, 0, behind, word)]
    return steps + ended
