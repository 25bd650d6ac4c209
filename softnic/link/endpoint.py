"""Addresses of peers as C has them: `sn_endpoint` (native/nic/batch_io.h), the name that a socket has for them."""

from __future__ import annotations

import socket
import struct

from softnic import underlay
from softnic.underlay import IPV4, Address

_NAME_BYTES = 28
_FAMILY, _PORT, _NUMBER = struct.Struct("=H"), struct.Struct("!H"), struct.Struct("=I")


def packed(address: Address, family: int) -> bytes:
    """Return the `sn_endpoint` of an IP address and port for sockets of a family. Raises OSError."""
    name = underlay.socket_address(address, family)
    data = _FAMILY.pack(family) + _PORT.pack(name[1])
    if len(name) == 2:
        data += socket.inet_aton(name[0]) + bytes(8)
    else:
        data += _NUMBER.pack(name[2]) + socket.inet_pton(family, name[0]) + _NUMBER.pack(name[3])
    return data.ljust(_NAME_BYTES, b"\0") + _NUMBER.pack(len(data))


def unpacked(endpoint: bytes) -> Address:
    """Return the IP address and port of an `sn_endpoint`."""
    (family,), (port,) = _FAMILY.unpack_from(endpoint), _PORT.unpack_from(endpoint, 2)
    if family == IPV4:
        return socket.inet_ntoa(endpoint[4:8]), port
    (scope,) = _NUMBER.unpack_from(endpoint, 24)
    return underlay.of_socket((socket.inet_ntop(family, endpoint[8:24]), port, 0, scope))
