"""Transfers of bytes on a NIC's socket: the standard methods, with the NIC's errors.

On the way of the data: `sendall` writes to the socket pair here, and `recv` reads from it.
"""

from __future__ import annotations

import errno
import functools
import socket
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from softnic.socket.connection import NicSocket

P = ParamSpec("P")
R = TypeVar("R")

_MSG_OOB = int(socket.MSG_OOB)


def _is_empty(size_or_buffer: object = None) -> bool:
    """Whether a receive of this size, or into this buffer, returns at once whatever has arrived."""
    return isinstance(size_or_buffer, int | bytearray | memoryview) and not size_or_buffer


def _transfer(
    plain: Callable[Concatenate[Any, P], R], ends: bool = False, flags_at: int = 99
) -> Callable[Concatenate[TransferSocket, P], R]:
    """Wraps a method that moves bytes: it needs a connection, and raises the NIC's error for the pair's.

    With `ends`, a result of no bytes may be the end of the stream, which is checked for an error. `flags_at` is the
    index of the argument with flags.
    """

    @functools.wraps(plain)
    def transfer(self: TransferSocket, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._opened().peer is None:
            self._settle()
        flags = args[flags_at] if len(args) > flags_at else kwargs.get("flags", 0)
        if isinstance(flags, int) and flags & _MSG_OOB:
            raise OSError(errno.EOPNOTSUPP, "a NIC has no urgent data, MSG_OOB (RFC 6093 advises against it)")
        try:
            moved = plain(self, *args, **kwargs)
        except ConnectionError as error:
            if not ends:
                raise self._nic_error(error) from None
            self._check_end()
            moved = plain(self, *args, **kwargs)  # the end of the stream: the reset concerned bytes written before
        if ends and not _is_empty(*args[:1]) and not (moved[0] if isinstance(moved, tuple) else moved):
            self._raise_if_failed()
        return moved

    return cast("Callable[Concatenate[TransferSocket, P], R]", transfer)


_send = _transfer(socket.socket.send, flags_at=1)


class TransferSocket(NicSocket):
    """A NIC's socket with the methods that move bytes."""

    __slots__ = ()

    recv = _transfer(socket.socket.recv, ends=True, flags_at=1)
    recv_into = _transfer(socket.socket.recv_into, ends=True, flags_at=2)
    recvmsg = _transfer(socket.socket.recvmsg, ends=True, flags_at=2)
    recvmsg_into = _transfer(socket.socket.recvmsg_into, ends=True, flags_at=2)
    recvfrom = _transfer(socket.socket.recvfrom, ends=True, flags_at=1)
    recvfrom_into = _transfer(socket.socket.recvfrom_into, ends=True, flags_at=2)
    send = _send
    sendall = _transfer(socket.socket.sendall, flags_at=1)
    sendmsg = _transfer(socket.socket.sendmsg, flags_at=2)
    sendfile = _transfer(socket.socket.sendfile)

    def sendto(self, data: Any, *arguments: Any) -> int:
        """Sends as `send` does: the address, the last argument, is ignored on a connection."""
        if not 1 <= len(arguments) <= 2:
            raise TypeError(f"sendto() takes 2 or 3 arguments ({1 + len(arguments)} given)")
        return _send(self, data, *arguments[:-1])

    def shutdown(self, how: int, /) -> None:
        if self._opened().peer is None and not self._opened().listening:
            self._settle()
        super().shutdown(how)
