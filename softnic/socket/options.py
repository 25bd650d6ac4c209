"""Socket options as programs write them, as the control protocol has them, and TCP_INFO as Linux lays it out."""

from __future__ import annotations

import errno
import operator
import socket
import struct
import sys
from typing import Any

from softnic.ipc import control
from softnic.ipc.control import NIC_BLOCKS, NIC_CODEC, SOL_NIC, TCP_OPTIONS, StreamInfo

NIC_OPTIONS = {
    (socket.IPPROTO_IP, socket.IP_TOS),
    (SOL_NIC, NIC_CODEC),
    (SOL_NIC, NIC_BLOCKS),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    (socket.SOL_SOCKET, socket.SO_LINGER),
    *((socket.IPPROTO_TCP, getattr(socket, name)) for name in TCP_OPTIONS),
}
CONGESTION = (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
TEXTS = {(SOL_NIC, NIC_CODEC), CONGESTION}
"""Options that are texts."""
REMEMBERED = {(socket.SOL_SOCKET, socket.SO_REUSEADDR)}
_UNSUPPORTED = {socket.SO_REUSEPORT, socket.SO_BINDTODEVICE}
"""At SOL_SOCKET: what the descriptor's own kind of socket might take, and would not do."""
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
DEFAULTS: dict[tuple[int, int], int] = {
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): control.KEEPALIVE_IDLE_S,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): control.KEEPALIVE_INTERVAL_S,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): control.KEEPALIVE_COUNT,
}
"""Values of numeric options that are not 0 until they are set."""
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
    """Raises OSError (ENOPROTOOPT) for an option that a NIC has not."""
    if level != socket.SOL_SOCKET or name in _UNSUPPORTED:
        raise OSError(errno.ENOPROTOOPT, f"a NIC has no option {control.option_name(level, name)}")


def to_protocol(level: int, name: int, value: Any) -> int | str:
    """An option's value as the control protocol has it.

    Raises
    ------
    OSError
        EINVAL where bytes are too few, EOPNOTSUPP for an SO_LINGER that waits.
    TypeError
        The value is neither an integer nor bytes (nor a str, where the option is a text).
    """
    if (level, name) in TEXTS:
        text = value if isinstance(value, str) else bytes(value or b"").decode("ascii", "replace")
        return text.rstrip("\0")
    try:
        number = operator.index(value)
    except TypeError:
        return _from_bytes(level, name, bytes(memoryview(value)))
    if (level, name) == _LINGER:
        raise OSError(errno.EINVAL, "SO_LINGER takes two integers: struct.pack('ii', on, seconds)")
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"{control.option_name(level, name)} is a 32-bit integer, not {number}")
    return number


def _from_bytes(level: int, name: int, raw: bytes) -> int:
    if (level, name) == _LINGER:
        if len(raw) < 8:
            raise OSError(errno.EINVAL, "SO_LINGER takes two integers: struct.pack('ii', on, seconds)")
        on, seconds = struct.unpack_from("ii", raw)
        if on and seconds:
            raise OSError(errno.EOPNOTSUPP, "SO_LINGER is off or has 0 seconds here (reset on close)")
        return int(bool(on))
    if len(raw) < 4 and not (raw and level == socket.IPPROTO_IP):  # Linux takes a single byte there
        raise OSError(errno.EINVAL, f"{control.option_name(level, name)} takes an integer of 4 bytes, not {len(raw)}")
    return int.from_bytes(raw[:4], sys.byteorder, signed=len(raw) >= 4)


def from_protocol(level: int, name: int, value: int | str, length: int | None) -> int | bytes:
    """What getsockopt returns: an int where no length is given, or bytes, as the standard method does."""
    if isinstance(value, str):
        return value.encode()[:length]
    if length is None:
        return value
    packed = struct.pack("ii", value, 0) if (level, name) == _LINGER else struct.pack("i", value)
    return packed[:length]


def tcp_info(info: StreamInfo) -> bytes:
    microseconds = [min(round(seconds * 1e6), 0xFFFFFFFF) for seconds in (info.rto, info.srtt, info.rttvar)]
    words = [0] * 24
    words[0], words[15], words[16] = microseconds
    words[2] = words[3] = words[19] = info.mss
    words[4] = -(-info.send_queue // info.mss) if info.mss else 0
    words[18] = info.cwnd // info.mss if info.mss else 0
    words[23] = info.retransmits & 0xFFFFFFFF
    state = _STATE_NUMBERS.get(info.state, 7)
    return _TCP_INFO.pack(state, *[0] * 7, *words, 0, 0, info.bytes_sent, info.bytes_received)
