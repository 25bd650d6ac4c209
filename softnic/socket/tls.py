"""TLS on a NIC's socket: ssl's SSLSocket, derived from softnic's socket class as well as from the standard one.

`ssl.SSLContext.sslsocket_class`, ssl's hook for the class that wrap_socket returns, is set for all contexts. Sockets
that are not a NIC's are wrapped by the standard class, as before. A program that sets a class of its own on a context
derives it from `softnic.socket.SSLSocket` where it wraps a NIC's sockets.
"""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from softnic.socket.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")


def _explained(plain: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method in which OpenSSL moves bytes: raises the NIC's error for the bare one that the descriptor gave.

    OpenSSL sees the end of the descriptor for a reset too, which it would report as the end of the stream.
    """

    @functools.wraps(plain)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return plain(self, *args, **kwargs)
        except ssl.SSLEOFError:
            self._end()
            raise
        except ConnectionError as error:
            raise self._reason(error) from None

    return method


class TlsMixin(ssl.SSLSocket):
    """The part of a NIC's SSLSocket that goes before ssl's: errors of the connection, and what is wrapped by whom."""

    @classmethod
    def _create(cls, sock: socket.socket, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """What SSLContext.wrap_socket calls."""
        wrapper: Any = super() if isinstance(sock, Connection) else ssl.SSLSocket
        return cast("ssl.SSLSocket", wrapper._create(sock, *args, **kwargs))

    def read(self: Any, len: int = 1024, buffer: Any = None) -> Any:
        """As ssl's, but the end of a connection that failed is its error and not an end of stream."""
        try:
            return self._read(len, buffer)
        except ssl.SSLEOFError:
            if not self.suppress_ragged_eofs:
                raise
            return b"" if buffer is None else 0

    def _read(self: Any, size: int, buffer: Any) -> Any:
        if self._sslobj is None:
            raise ValueError("Read on closed or unwrapped SSL socket.")
        arguments = (size,) if buffer is None else (size, buffer)
        try:
            return self._sslobj.read(*arguments)
        except ssl.SSLEOFError:
            self._end()
            raise
        except ConnectionError:
            self._check_end()
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol") from None

    write = _explained(ssl.SSLSocket.write)
    do_handshake = _explained(ssl.SSLSocket.do_handshake)
    unwrap = _explained(ssl.SSLSocket.unwrap)


def install(cls: type[ssl.SSLSocket]) -> None:
    """Makes a class derived from TlsMixin the one that SSLContext.wrap_socket returns for a NIC's sockets."""
    ssl.SSLContext.sslsocket_class = cls
