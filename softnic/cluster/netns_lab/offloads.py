"""Switches the offloads of network devices by the ioctl of ethtool(8) (linux/ethtool.h)."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_COMMANDS = {"tx": 0x17, "gro": 0x2C}
"""ETHTOOL_STXCSUM, transmit checksums; ETHTOOL_SGRO, generic receive offload."""


def set_offload(device: str, offload: str, on: bool) -> None:
    """Switch an offload, as `ethtool -K DEVICE OFFLOAD on|off`, in the thread's namespace. Raises OSError."""
    value = ctypes.create_string_buffer(struct.pack("=II", _COMMANDS[offload], on))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
