"""Connections to a NIC's control socket and the replies on them, with the errors that users see.

The socket is one of `_socket`: libraries such as gevent replace the classes of the module `socket`.
"""

from __future__ import annotations

import _socket
import errno
import socket

import msgspec

from softnic.ipc.control import Reply, decode_reply


def connect(path: str, timeout_s: float) -> _socket.socket:
    """Return a socket connected to the NIC at `path`, with a timeout; 0: non-blocking.

    Raises OSError: ENETDOWN if no NIC answers, EACCES if it belongs to another user.
    """
    connection = _socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except OSError as error:
        connection.close()
        number, hint = errno.ENETDOWN, "is softnicd running?"
        if error.errno in (errno.EACCES, errno.EPERM):
            number, hint = error.errno, "a NIC serves the user it runs as, and root"
        raise OSError(number, f"no NIC answers at {path} ({error.strerror or error}): {hint}") from error
    return connection


def parse_reply(packet: bytes | memoryview, path: str) -> Reply:
    """Return the reply that the NIC at `path` sent. Raises OSError (EPROTO) if it is none."""
    try:
        return decode_reply(packet)
    except msgspec.MsgspecError as error:
        raise OSError(errno.EPROTO, f"the NIC at {path} speaks another protocol: {error}") from error
