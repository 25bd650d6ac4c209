"""TCP over IPv4 through a NIC, with the interface of the standard library's `socket` module.

A socket is one end of a Unix stream pair whose other end the NIC has. Its file descriptor is a real one and the kernel
moves the bytes: selectors, asyncio, makefile, ssl and os.sendfile work on it. Everything else (bind, connect, options,
errors) goes over the NIC's control socket.

- A connecting file descriptor is not writable, and errors are the NIC's (softnic/socket/connection.py).
- A change of IP_TOS takes effect exactly between the bytes sent before and after it.

Only AF_INET and SOCK_STREAM are supported. docs/sockets.md lists all differences from the standard module.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import socket as _stdlib
from typing import Any

from softnic.ipc import control, socket_state
from softnic.ipc.control import NIC_BLOCKS as NIC_BLOCKS
from softnic.ipc.control import NIC_CODEC as NIC_CODEC
from softnic.ipc.control import SOL_NIC as SOL_NIC
from softnic.ipc.control import StreamInfo as StreamInfo
from softnic.ipc.socket_state import client
from softnic.socket import addresses, options
from softnic.socket.transfer import TransferSocket

NIC_VARIABLE = "SOFTNIC_NIC"
"""Environment variable with the path of the NIC's control socket."""
_FLAGS = int(_stdlib.SOCK_NONBLOCK) | int(_stdlib.SOCK_CLOEXEC)
"""Flags that may be added to the type of a new socket."""
_GLOBAL_DEFAULT_TIMEOUT: Any = _stdlib._GLOBAL_DEFAULT_TIMEOUT  # type: ignore[attr-defined]
"""Sentinel for the default timeout, under the standard module's name."""


def __getattr__(name: str) -> Any:
    """Returns constants, errors and functions of the standard module."""
    return getattr(_stdlib, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_stdlib.__all__})


class socket(TransferSocket):
    """A TCP socket of a NIC.

    Parameters
    ----------
    family, type, proto, fileno
        As for the standard class. `fileno` is a file descriptor of a NIC's socket in this process.
    nic : path-like, optional
        The NIC's control socket; by default the path in the environment variable SOFTNIC_NIC.

    Raises
    ------
    OSError
        As the standard class does, and ENETDOWN if there is no NIC, ENOTSOCK if `fileno` is not a NIC's socket.

    Notes
    -----
    IP_TOS tags the bytes sent from then on, and SOL_NIC has the options NIC_CODEC (text) and NIC_BLOCKS.
    """

    __slots__ = ()

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None, *,
        nic: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        if family not in (-1, _stdlib.AF_INET):
            raise OSError(errno.EAFNOSUPPORT, "a NIC carries TCP over IPv4 only (AF_INET)")
        if (type != -1 and type & ~_FLAGS != _stdlib.SOCK_STREAM) or proto not in (-1, 0, _stdlib.IPPROTO_TCP):
            raise OSError(errno.EPROTONOSUPPORT, "a NIC carries TCP over IPv4 only (SOCK_STREAM)")
        if fileno is not None:
            fd = operator.index(fileno)
            if fd < 0:
                raise ValueError("negative file descriptor")
            os.fstat(fd)
            state = _state_of(fd, nic)
        else:
            path = os.fspath(nic) if nic is not None else os.environ.get(NIC_VARIABLE, "")
            if not path:
                raise OSError(errno.ENETDOWN, f"no NIC: set {NIC_VARIABLE} to its control socket, or pass nic=path")
            state = socket_state.SocketState(path)
            fd = socket_state.new_pair(state)
        if proto == -1:
            proto = 0 if fileno is None else _stdlib.IPPROTO_TCP
        super().__init__(_stdlib.AF_INET, _stdlib.SOCK_STREAM, proto, fd)
        self._open_state = state
        socket_state.on_attach(fd, state)
        if type != -1 and type & _stdlib.SOCK_NONBLOCK:
            self.setblocking(False)

    def detach(self) -> int:
        fd = super().detach()
        if fd >= 0:
            socket_state.on_detach(fd, self._opened())
            self._open_state = None
        return fd

    def _real_close(self, *arguments: Any) -> None:
        """Closes the file descriptor; the standard class's `close` calls it.

        The port of a listening socket refuses connections from here on, as the kernel's does: the NIC processes the
        close before it answers a request.
        """
        fd, state = self.fileno(), self._open_state
        if fd >= 0:
            socket_state.on_close(fd, self._opened())
        self._open_state = None
        super()._real_close(*arguments)  # type: ignore[misc]
        if fd >= 0 and state is not None and state.listening:
            with contextlib.suppress(OSError):
                client(state.path).call(control.QueryStream(state.stream))
        elif fd >= 0 and state is not None:
            self._linger(state)

    def __repr__(self) -> str:
        """Return the text of the standard class, of what is known without a request to the NIC.

        It is part of the warning of a socket that was not closed, which garbage collection gives amid any code.
        """
        closed = self._closed  # type: ignore[attr-defined]
        name = f"{type(self).__module__}.{type(self).__qualname__}{' [closed]' if closed else ''}"
        text = f"<{name} fd={self.fileno()}, family={self.family}, type={self.type}, proto={self.proto}"
        state = self._open_state
        if state is not None and not closed:
            text += f", laddr={state.local}"
            if state.peer is not None and not self._hung_up():
                text += f", raddr={state.peer}"
        return f"{text}>"

    # -- connecting ---------------------------------------------------------------------------------

    def bind(self, address: Any, /) -> None:
        self._bind(addresses.resolve(address))

    def listen(self, backlog: int = 128, /) -> None:
        state = self._opened()
        if state.peer or state.target:
            raise OSError(errno.EINVAL, "the socket is connected")
        if not state.stream:
            self._bind((addresses.ANY, 0))
        if not -(2**31) <= (backlog := operator.index(backlog)) < 2**31:
            raise OverflowError("the backlog is a 32-bit integer")
        if not state.listening:
            self._block()
        client(state.path).call(control.Listen(state.stream, max(0, min(backlog, 0xFFFF))))
        state.listening = True

    def accept(self) -> tuple[socket, Any]:
        fd, peer = self._accept()
        connection = socket(self.family, self.type, self.proto, fileno=fd)
        if _stdlib.getdefaulttimeout() is None and self.gettimeout():
            connection.setblocking(True)
        return connection, peer

    def connect(self, address: Any, /) -> None:
        self._connect(addresses.resolve(address))

    def connect_ex(self, address: Any, /) -> int:
        target = addresses.resolve(address)
        try:
            self._connect(target)
        except TimeoutError as error:
            return error.errno or errno.EAGAIN
        except OSError as error:
            if error.errno is None:
                raise
            return error.errno
        return 0

    # -- names and options -----------------------------------------------------------------------------------------

    def getsockname(self) -> Any:
        return self._opened().local

    def getpeername(self) -> Any:
        if self._opened().peer is None:
            self._settle()
        if self._opened().peer is None:
            raise OSError(errno.ENOTCONN, "the socket is connecting")
        if self._is_over():
            raise OSError(errno.ENOTCONN, "the socket is not connected any more")
        return self._opened().peer

    def setsockopt(self, level: int, name: int, value: Any, length: int | None = None, /) -> None:
        state, option = self._opened(), (level, name)
        if option in options.NIC_OPTIONS:
            converted = options.to_protocol(level, name, value)
            client(state.path).call(control.SetOption(state.stream, level, name, converted))
            kept = converted if isinstance(converted, str) else control.as_kept(level, name, converted)
            state.options[option] = kept
        elif option in options.REMEMBERED:
            state.options[option] = options.to_protocol(level, name, value)
        elif option == (_stdlib.SOL_SOCKET, _stdlib.SO_SNDBUF):
            state.send_buffer = value
            if state.target is None:  # else the socket would become writable
                super().setsockopt(level, name, value)
        else:
            options.check_supported(level, name)
            super().setsockopt(level, name, value, *(() if length is None else (length,)))

    def getsockopt(self, level: int, name: int, length: int | None = None, /) -> Any:
        state, option = self._opened(), (level, name)
        if option == (_stdlib.IPPROTO_TCP, _stdlib.TCP_INFO):
            return options.tcp_info(info(self))[:length]
        value: int | str
        if option == (_stdlib.SOL_SOCKET, _stdlib.SO_ERROR):
            value = self._pop_error()
        elif option in options.NIC_OPTIONS or option in options.REMEMBERED:
            if state.adopted and option not in state.options:
                state.options[option] = client(state.path).call(control.QueryOption(state.stream, level, name)).value
            value = state.options.get(option, "" if option in options.TEXTS else options.DEFAULTS.get(option, 0))
            if option == options.MAXSEG and state.peer:
                value = info(self).mss
            elif option == options.CONGESTION:
                value = value or client(state.path).info().congestion
        elif option in options.CONSTANT:
            value = options.CONSTANT[option]
        elif option == (_stdlib.SOL_SOCKET, _stdlib.SO_ACCEPTCONN):
            value = int(state.listening)
        else:
            options.check_supported(level, name)
            return super().getsockopt(level, name, *(() if length is None else (length,)))
        return options.from_protocol(level, name, value, length)


def _state_of(fd: int, nic: str | os.PathLike[str] | None) -> socket_state.SocketState:
    """Returns the state of a file descriptor, which another process may have opened. Raises OSError (ENOTSOCK)."""
    try:
        return socket_state.stream_of(fd)
    except OSError:
        path = os.fspath(nic) if nic is not None else os.environ.get(NIC_VARIABLE, "")
        if not path:
            raise
        return socket_state.adopt(fd, path)


def info(connection: _stdlib.socket) -> StreamInfo:
    """Returns the state and statistics of a socket's connection, on the host side and on the wire.

    Parameters
    ----------
    connection : socket.socket
        A NIC's socket, which may be wrapped by ssl.

    Returns
    -------
    StreamInfo
        Times are in seconds, sizes in bytes.

    Raises
    ------
    OSError
        ENOTCONN if the socket was neither bound nor connected, ENOTSOCK if it is not a NIC's, ENETDOWN if the NIC is
        gone.
    """
    state = socket_state.stream_of(connection.fileno())
    if not state.stream:
        raise OSError(errno.ENOTCONN, "the socket is not connected")
    answer = client(state.path).call(control.QueryStream(state.stream))
    assert isinstance(answer, StreamInfo)
    return answer


def fromfd(fd: int, family: int, type: int, proto: int = 0) -> socket:
    """Returns a socket on a duplicate of a NIC socket's file descriptor, which may be inherited by a fork."""
    duplicate = os.dup(fd)
    try:
        return socket(family, type, proto, duplicate)
    except OSError:
        os.close(duplicate)
        raise


def create_connection(
    address: tuple[str | None, int | str],
    timeout: Any = _GLOBAL_DEFAULT_TIMEOUT,
    source_address: Any = None,
    *,
    all_errors: bool = False,
    nic: str | os.PathLike[str] | None = None,
) -> socket:
    """Connects as the standard `create_connection` does, through the NIC `nic`. The host None is the node itself."""
    errors: list[OSError] = []
    for target in addresses.candidates(*address):
        try:
            return _connected(target, timeout, source_address, nic)
        except OSError as error:
            if not all_errors:
                errors.clear()
            errors.append(error)
    try:
        if not errors:
            raise OSError("getaddrinfo returns an empty list")
        if all_errors:
            raise ExceptionGroup("create_connection failed", errors)
        raise errors[0]
    finally:
        errors.clear()  # no reference from an error's frame to itself


def _connected(
    target: tuple[str, int], timeout: Any, source_address: Any, nic: str | os.PathLike[str] | None
) -> socket:
    # A class that an application substitutes for `socket` has no argument `nic`.
    named: dict[str, Any] = {} if nic is None else {"nic": nic}
    connection = socket(_stdlib.AF_INET, _stdlib.SOCK_STREAM, _stdlib.IPPROTO_TCP, **named)
    try:
        if timeout is not _GLOBAL_DEFAULT_TIMEOUT:
            connection.settimeout(timeout)
        if source_address:
            connection.bind(source_address)
        connection.connect(target)
    except BaseException:
        connection.close()
        raise
    return connection


def create_server(
    address: tuple[str, int],
    *,
    family: int = _stdlib.AF_INET,
    backlog: int | None = None,
    reuse_port: bool = False,
    dualstack_ipv6: bool = False,
    nic: str | os.PathLike[str] | None = None,
) -> socket:
    """Listens as the standard `create_server` does, on the NIC `nic`, with SO_REUSEADDR.

    Raises ValueError for `dualstack_ipv6`, which a NIC does not support.
    """
    if dualstack_ipv6:
        raise ValueError("a NIC has no IPv6")
    server = socket(family, nic=nic)
    try:
        server.setsockopt(_stdlib.SOL_SOCKET, _stdlib.SO_REUSEADDR, 1)
        if reuse_port:
            server.setsockopt(_stdlib.SOL_SOCKET, _stdlib.SO_REUSEPORT, 1)
        server.bind(address)
        server.listen(*([] if backlog is None else [backlog]))
    except OSError as error:
        server.close()
        raise OSError(error.errno, f"{error.strerror} (while attempting to bind on address {address!r})") from None
    except BaseException:
        server.close()
        raise
    return server


def has_dualstack_ipv6() -> bool:
    """Returns False: a NIC has no IPv6."""
    return False


try:
    from softnic.socket import tls
except ImportError:  # a Python without OpenSSL
    pass
else:

    class SSLSocket(tls.TlsMixin, socket):  # type: ignore[misc]  # as ssl's, for what it derives from
        """The ssl.SSLSocket that SSLContext.wrap_socket returns for a NIC's socket, with this module's options.

        Notes
        -----
        A tag applies to the encrypted bytes, which the lossless codecs `raw` and `exact` leave intact; with any other
        codec the peer receives corrupt TLS records. Tag floats before wrapping, or after `unwrap`.
        """

    tls.install(SSLSocket)
