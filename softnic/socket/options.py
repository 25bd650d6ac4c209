"""Socket options: conversion between setsockopt's values and the control protocol, and Linux's layout of TCP_INFO."""

from __future__ import annotations

import errno
import operator
import socket
import struct
import sys
from typing import Any

from softnic.ipc import control
from softnic.ipc.control import NIC_BLOCKS, NIC_CODEC, NIC_LANE, SOL_NIC, TCP_OPTIONS, StreamInfo

NIC_OPTIONS = {
    (socket.IPPROTO_IP, socket.IP_TOS),
    (SOL_NIC, NIC_CODEC),
    (SOL_NIC, NIC_BLOCKS),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    (socket.SOL_SOCKET, socket.SO_LINGER),
    (socket.SOL_SOCKET, socket.SO_REUSEPORT),
    (socket.IPPROTO_IP, socket.IP_TTL),
    (socket.IPPROTO_IP, control.IP_MTU_DISCOVER),
    (socket.IPPROTO_IP, control.IP_RECVERR),
    *((socket.IPPROTO_TCP, getattr(socket, name)) for name in TCP_OPTIONS),
}
CONGESTION = (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
TEXTS = {(SOL_NIC, NIC_CODEC), CONGESTION}
"""Options with text values."""
LANE = (SOL_NIC, NIC_LANE)
REMEMBERED = {(socket.SOL_SOCKET, socket.SO_REUSEADDR), LANE}
"""Options that are passed with the requests that they concern."""
_UNSUPPORTED = {socket.SO_BINDTODEVICE}
"""At SOL_SOCKET: options that a Unix socket would accept without effect."""
MAXSEG = (socket.IPPROTO_TCP, socket.TCP_MAXSEG)
_TTL = (socket.IPPROTO_IP, socket.IP_TTL)
_DEFAULT_TTL = 64
IN_SYN = {MAXSEG, _TTL}
"""Options that concern the first packet of a connection."""
LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
DEFAULTS: dict[tuple[int, int], int] = {
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): control.KEEPALIVE_IDLE_S,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): control.KEEPALIVE_INTERVAL_S,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): control.KEEPALIVE_COUNT,
    (socket.IPPROTO_TCP, socket.TCP_SYNCNT): control.SYN_COUNT,
    (socket.IPPROTO_TCP, socket.TCP_LINGER2): control.LINGER2_S,
    (socket.IPPROTO_IP, control.IP_MTU_DISCOVER): control.MTU_DISCOVER,
    MAXSEG: 536,
    LANE: -1,
    _TTL: _DEFAULT_TTL,
}
"""Defaults of numeric options other than 0."""
CONSTANT = {
    (socket.SOL_SOCKET, socket.SO_TYPE): int(socket.SOCK_STREAM),
    (socket.SOL_SOCKET, socket.SO_PROTOCOL): socket.IPPROTO_TCP,
    (socket.SOL_SOCKET, socket.SO_DOMAIN): int(socket.AF_INET),
}
_TCP_INFO = struct.Struct("=8B24I4Q")
"""The start of Linux's struct tcp_info, up to tcpi_bytes_received."""
_STATE_NUMBERS = {
    "ESTABLISHED": 1, "SYN-SENT": 2, "SYN-RECEIVED": 3, "FIN-WAIT-1": 4, "FIN-WAIT-2": 5, "TIME-WAIT": 6,
    "CLOSED": 7, "CLOSE-WAIT": 8, "LAST-ACK": 9, "LISTEN": 10, "CLOSING": 11,
}  # fmt: skip


def check_supported(level: int, name: int) -> None:
    """Raises OSError (ENOPROTOOPT) for an option that a NIC does not have."""
    if level != socket.SOL_SOCKET or name in _UNSUPPORTED:
        raise OSError(errno.ENOPROTOOPT, f"a NIC has no option {control.option_name(level, name)}")


def to_protocol(level: int, name: int, value: Any) -> int | str:
    """Converts an option's value for the control protocol.

    Raises
    ------
    OSError
        EINVAL if there are too few bytes.
    TypeError
        The value is neither an integer nor bytes (nor, for an option with a text value, a str).
    """
    if (level, name) in TEXTS:
        text = value if isinstance(value, str) else bytes(value or b"").decode("ascii", "replace")
        return text.rstrip("\0")
    try:
        number = operator.index(value)
    except TypeError:
        return _from_bytes(level, name, bytes(memoryview(value)))
    if (level, name) == LINGER:
        raise OSError(errno.EINVAL, "SO_LINGER takes two integers: struct.pack('ii', on, seconds)")
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"{control.option_name(level, name)} is a 32-bit integer, not {number}")
    return _DEFAULT_TTL if (level, name) == _TTL and number == -1 else number  # ip(7): -1 means the default


def _from_bytes(level: int, name: int, raw: bytes) -> int:
    if (level, name) == LINGER:
        if len(raw) < 8:
            raise OSError(errno.EINVAL, "SO_LINGER takes two integers: struct.pack('ii', on, seconds)")
        on, seconds = struct.unpack_from("iI", raw)
        return min(seconds + 1, 2**31 - 1) if on else 0
    if len(raw) < 4 and not (raw and level == socket.IPPROTO_IP):  # Linux accepts a single byte there
        raise OSError(errno.EINVAL, f"{control.option_name(level, name)} takes an integer of 4 bytes, not {len(raw)}")
    return int.from_bytes(raw[:4], sys.byteorder, signed=len(raw) >= 4)


def from_protocol(level: int, name: int, value: int | str, length: int | None) -> int | bytes:
    """Converts to getsockopt's result: an int if no length is given, else bytes, as the standard method does."""
    if isinstance(value, str):
        return value.encode()[:length]
    if length is None:
        return value
    packed = struct.pack("ii", value > 0, max(0, value - 1)) if (level, name) == LINGER else struct.pack("i", value)
    return packed[:length]


def tcp_info(info: StreamInfo) -> bytes:
    """Packs the start of Linux's struct tcp_info (linux/tcp.h); fields that a NIC does not have are 0."""
    microseconds = [min(round(seconds * 1e6), 0xFFFFFFFF) for seconds in (info.rto, info.srtt, info.rttvar)]
    words = [0] * 24
    words[0], words[15], words[16] = microseconds
    words[2] = words[3] = words[19] = info.mss
    words[4] = -(-info.send_queue // info.mss) if info.mss else 0
    words[18] = info.cwnd // info.mss if info.mss else 0
    words[23] = info.retransmits & 0xFFFFFFFF
    state = _STATE_NUMBERS.get(info.state, 7)
    return _TCP_INFO.pack(state, *[0] * 7, *words, 0, 0, info.bytes_sent, info.bytes_received)
