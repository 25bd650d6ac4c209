"""Socket options as programs write them, as the control protocol has them, and TCP_INFO as Linux lays it out."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

from softnic.control import NIC_BLOCKS, NIC_CODEC, SOL_NIC, TCP_OPTIONS, StreamInfo

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


def option(level: int, name: int, value: Any) -> int | str:
    """An option's value as the control protocol has it."""
    if (level, name) in TEXTS:
        text = value if isinstance(value, str) else bytes(value or b"").decode("ascii", "replace")
        return text.rstrip("\0")
    if (level, name) == (socket.SOL_SOCKET, socket.SO_LINGER):
        on, seconds = struct.unpack("ii", value)
        if on and seconds:
            raise OSError(errno.EOPNOTSUPP, "SO_LINGER is off or has 0 seconds here (reset on close)")
        return int(bool(on))
    return int(value) if isinstance(value, int) else int.from_bytes(bytes(value)[:4], "little")


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
