"""TLS on a NIC's socket: an SSLSocket derived from softnic's socket class as well as from the standard one.

`ssl.SSLContext.sslsocket_class`, ssl's hook for the class that wrap_socket returns, is set for all contexts. Sockets
that are not a NIC's are wrapped by the standard class, as before. An application that sets its own class on a context
must derive it from `softnic.socket.SSLSocket` to wrap a NIC's sockets.
"""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def _with_nic_error(plain: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Wraps a method in which OpenSSL moves bytes: raises the NIC's error instead of the file descriptor's.

    OpenSSL takes a reset for the end of the stream, since the file descriptor ends in both cases.
    """

    @functools.wraps(plain)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return plain(self, *args, **kwargs)
        except ssl.SSLEOFError:
            self._raise_if_failed()
            raise
        except ConnectionError as error:
            raise self._nic_error(error) from None

    return method


class TlsMixin(ssl.SSLSocket):
    """Overrides ssl.SSLSocket's methods: errors are the NIC's, and only a NIC's sockets are wrapped by this class."""

    @classmethod
    def _create(cls, sock: socket.socket, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Creates the wrapper; SSLContext.wrap_socket calls it."""
        wrapper: Any = super() if getattr(sock, "_open_state", None) is not None else ssl.SSLSocket
        return cast("ssl.SSLSocket", wrapper._create(sock, *args, **kwargs))

    def read(self: Any, len: int = 1024, buffer: Any = None) -> Any:
        """Reads as ssl's method does, but raises the error of a connection that failed.

        A reset is an end of stream without close_notify, as for ssl's method with a kernel's socket.
        """
        try:
            return self._read(len, buffer)
        except (ssl.SSLEOFError, ConnectionResetError):
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
            self._raise_if_failed()
            raise
        except ConnectionError:
            self._check_end()
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol") from None

    write = _with_nic_error(ssl.SSLSocket.write)
    do_handshake = _with_nic_error(ssl.SSLSocket.do_handshake)
    unwrap = _with_nic_error(ssl.SSLSocket.unwrap)


def install(cls: type[ssl.SSLSocket]) -> None:
    """Makes SSLContext.wrap_socket return `cls`, which is derived from TlsMixin, for a NIC's sockets."""
    ssl.SSLContext.sslsocket_class = cls
