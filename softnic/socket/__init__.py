"""The application's side: TCP over IPv4 through a NIC, shaped like the standard library's `socket` module.

Strategy. A socket here is one end of a Unix stream pair whose other end the NIC holds, so the descriptor is a real
one and the kernel moves the bytes: selectors, asyncio, makefile, ssl, os.sendfile work on it. What is not bytes
(bind, connect, options, errors) goes over the NIC's control socket. Rules:

- A connecting descriptor is not writable, and errors are those that the NIC has: softnic/socket/connection.py says how.
- The NIC sees a tag change between the same two bytes as the program made it, however these were written.

Unlike the standard module: only AF_INET/SOCK_STREAM; SO_LINGER only off or with 0 seconds (reset on close).
docs/sockets.md has the whole list.
"""

from __future__ import annotations

import array
import contextlib
import errno
import functools
import operator
import os
import socket as _stdlib
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from softnic.ipc import control, socket_state
from softnic.ipc.control import NIC_BLOCKS as NIC_BLOCKS
from softnic.ipc.control import NIC_CODEC as NIC_CODEC
from softnic.ipc.control import SOL_NIC as SOL_NIC
from softnic.ipc.control import StreamInfo as StreamInfo
from softnic.ipc.socket_state import client
from softnic.socket import addresses, options
from softnic.socket.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")

NIC_VARIABLE = "SOFTNIC_NIC"
"""The environment variable with the path of the NIC's control socket."""
_MSG_OOB = int(_stdlib.MSG_OOB)
_FLAGS = int(_stdlib.SOCK_NONBLOCK) | int(_stdlib.SOCK_CLOEXEC)
"""What a program may add to the type of a new socket."""
_GLOBAL_DEFAULT_TIMEOUT: Any = _stdlib._GLOBAL_DEFAULT_TIMEOUT  # type: ignore[attr-defined]
"""The timeout of new sockets, by the name that the standard library uses."""


def __getattr__(name: str) -> Any:
    """Constants, errors and functions that are the standard module's."""
    return getattr(_stdlib, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_stdlib.__all__})


def _asks_for_nothing(asked: object = None) -> bool:
    """Whether a receive of this size, or into this buffer, is over at once, whatever has arrived."""
    return isinstance(asked, int | bytearray | memoryview) and not asked


def _transfer(
    plain: Callable[Concatenate[Any, P], R], ends: bool = False, flags_at: int = 99
) -> Callable[Concatenate[socket, P], R]:
    """A method that moves bytes: only when connected, and with the NIC's error where the descriptor has a bare one.

    `ends` says that moving nothing may be the end of the stream, and a reset what ended it, unless nothing was asked
    for; `flags_at` which argument has the flags of something sent.
    """

    @functools.wraps(plain)
    def transfer(self: socket, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._state.peer is None:
            self._settle()
        if len(args) > flags_at and cast("int", args[flags_at]) & _MSG_OOB:
            raise OSError(errno.EOPNOTSUPP, "a NIC sends no urgent data (RFC 6093 advises against it)")
        try:
            moved = plain(self, *args, **kwargs)
        except ConnectionError as error:
            if not ends:
                raise self._reason(error) from None
            self._check_end()
            moved = plain(self, *args, **kwargs)  # the end: what failed was what this program had written
        if ends and not _asks_for_nothing(*args[:1]) and not (moved[0] if isinstance(moved, tuple) else moved):
            self._end()
        return moved

    return cast("Callable[Concatenate[socket, P], R]", transfer)


_send = _transfer(_stdlib.socket.send, flags_at=1)


class socket(Connection):
    """A TCP socket on the NIC at `nic`, or at the path in SOFTNIC_NIC.

    Raises OSError as the standard class does, and with ENETDOWN if there is no NIC.
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
            descriptor = operator.index(fileno)
            if descriptor < 0:
                raise ValueError("negative file descriptor")
            os.fstat(descriptor)
            state = socket_state.stream_of(descriptor)
        else:
            path = os.fspath(nic) if nic is not None else os.environ.get(NIC_VARIABLE, "")
            if not path:
                raise OSError(errno.ENETDOWN, f"no NIC: set {NIC_VARIABLE} to its control socket, or give nic=path")
            state = socket_state.State(path)
            descriptor = socket_state.new_pair(state)
        if proto == -1:
            proto = 0 if fileno is None else _stdlib.IPPROTO_TCP
        super().__init__(_stdlib.AF_INET, _stdlib.SOCK_STREAM, proto, descriptor)
        self._open_state = state
        socket_state.attach(descriptor, state)
        if type != -1 and type & _stdlib.SOCK_NONBLOCK:
            self.setblocking(False)

    def detach(self) -> int:
        descriptor = super().detach()
        if descriptor >= 0:
            socket_state.detach(descriptor, self._state)
            self._open_state = None
        return descriptor

    def _real_close(self, *arguments: Any) -> None:
        """What the standard class's `close` ends in. The port of a listening socket refuses from here on, as with a
        kernel's: a request makes the NIC look at its descriptors before it answers."""
        descriptor, state = self.fileno(), self._open_state
        if descriptor >= 0:
            socket_state.close(descriptor, self._state)
        self._open_state = None
        super()._real_close(*arguments)  # type: ignore[misc]
        if descriptor >= 0 and state is not None and state.listening:
            with contextlib.suppress(OSError):
                client(state.path).call(control.Hello())

    # -- the way to a connection ---------------------------------------------------------------------------------

    def bind(self, address: Any, /) -> None:
        self._bind(addresses.resolve(address))

    def listen(self, backlog: int = 128, /) -> None:
        state = self._state
        if state.peer or state.target:
            raise OSError(errno.EINVAL, "the socket is connected")
        if not state.stream:
            self._bind((addresses.ANY, 0))
        if not -(2**31) <= (backlog := operator.index(backlog)) < 2**31:
            raise OverflowError("the backlog is a 32-bit integer")
        client(state.path).call(control.Listen(state.stream, max(0, min(backlog, 0xFFFF))))
        if not state.listening:
            self._fill()
            state.listening = True

    def accept(self) -> tuple[socket, Any]:
        state = self._state
        if not state.listening:
            raise OSError(errno.EINVAL, "the socket is not listening")
        try:
            super().recv(1, _stdlib.MSG_PEEK)  # waits
            os.close(os.dup(self.fileno()))  # without a free descriptor the connection stays in the backlog
            record, ancillary, _, _ = super().recvmsg(
                control.ACCEPTED.size, _stdlib.CMSG_LEN(array.array("i").itemsize), _stdlib.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:  # the end of a descriptor in which something was left
            record = b""
        if not record:
            self._end()
            raise OSError(errno.EINVAL, "the listening socket was shut down")
        if not ancillary:
            raise OSError(errno.EMFILE, "too many open files to accept a connection")
        number, host, port = control.ACCEPTED.unpack(record)
        descriptor = array.array("i", ancillary[0][2])[0]
        local = (state.local[0] if state.local[0] != "0.0.0.0" else client(state.path).info().ip, state.local[1])
        peer = (_stdlib.inet_ntoa(host), port)
        accepted = socket_state.State(state.path, number, local=local, peer=peer, options=dict(state.options))
        socket_state.register(descriptor, accepted)
        connection = socket(self.family, self.type, self.proto, fileno=descriptor)
        _stdlib.socket.recv(connection, len(control.ACCEPT_MARK), _stdlib.MSG_DONTWAIT)
        if state.send_buffer:
            connection.setsockopt(_stdlib.SOL_SOCKET, _stdlib.SO_SNDBUF, state.send_buffer)
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

    # -- bytes -----------------------------------------------------------------------------------------------------

    recv = _transfer(_stdlib.socket.recv, ends=True)
    recv_into = _transfer(_stdlib.socket.recv_into, ends=True)
    recvmsg = _transfer(_stdlib.socket.recvmsg, ends=True)
    recvmsg_into = _transfer(_stdlib.socket.recvmsg_into, ends=True)
    recvfrom = _transfer(_stdlib.socket.recvfrom, ends=True)
    recvfrom_into = _transfer(_stdlib.socket.recvfrom_into, ends=True)
    send = _send
    sendall = _transfer(_stdlib.socket.sendall, flags_at=1)
    sendmsg = _transfer(_stdlib.socket.sendmsg, flags_at=2)
    sendfile = _transfer(_stdlib.socket.sendfile)

    def sendto(self, data: Any, *arguments: Any) -> int:
        """As send: the address, which comes last, does not count on a connection."""
        if not 1 <= len(arguments) <= 2:
            raise TypeError(f"sendto() takes 2 or 3 arguments ({1 + len(arguments)} given)")
        return _send(self, data, *arguments[:-1])

    def shutdown(self, how: int, /) -> None:
        if self._state.peer is None and not self._state.listening:
            self._settle()
        super().shutdown(how)

    # -- names and options -----------------------------------------------------------------------------------------

    def getsockname(self) -> Any:
        return self._state.local

    def getpeername(self) -> Any:
        if self._state.peer is None:
            self._settle()
        if self._state.peer is None:
            raise OSError(errno.ENOTCONN, "the socket is connecting")
        if self._is_over():
            raise OSError(errno.ENOTCONN, "the socket is not connected any more")
        return self._state.peer

    def setsockopt(self, level: int, name: int, value: Any, length: int | None = None, /) -> None:
        state, option = self._state, (level, name)
        if option in options.NIC_OPTIONS:
            converted = options.to_protocol(level, name, value)
            client(state.path).call(control.SetOption(state.stream, level, name, converted))
            state.options[option] = converted
        elif option in options.REMEMBERED:
            state.options[option] = options.to_protocol(level, name, value)
        elif option == (_stdlib.SOL_SOCKET, _stdlib.SO_SNDBUF):
            state.send_buffer = value
            if state.target is None:  # it would open the gate
                super().setsockopt(level, name, value)
        else:
            options.check_supported(level, name)
            super().setsockopt(level, name, value, *(() if length is None else (length,)))

    def getsockopt(self, level: int, name: int, length: int | None = None, /) -> Any:
        state, option = self._state, (level, name)
        if option == (_stdlib.IPPROTO_TCP, _stdlib.TCP_INFO):
            return options.tcp_info(info(self))[:length]
        value: int | str
        if option == (_stdlib.SOL_SOCKET, _stdlib.SO_ERROR):
            value = self._error()
        elif option in options.NIC_OPTIONS or option in options.REMEMBERED:
            value = state.options.get(option, "" if option in options.TEXTS else options.DEFAULTS.get(option, 0))
            if option == options.CONGESTION:
                value = value or client(state.path).info().congestion
        elif option in options.CONSTANT:
            value = options.CONSTANT[option]
        elif option == (_stdlib.SOL_SOCKET, _stdlib.SO_ACCEPTCONN):
            value = int(state.listening)
        else:
            options.check_supported(level, name)
            return super().getsockopt(level, name, *(() if length is None else (length,)))
        return options.from_protocol(level, name, value, length)


def info(connection: _stdlib.socket) -> StreamInfo:
    """What happened to a socket's connection, on the wire too. Of a socket wrapped by ssl as well.

    Raises OSError: ENOTCONN where there was no bind or connect, ENOTSOCK where the socket is not a NIC's.
    """
    state = socket_state.stream_of(connection.fileno())
    if not state.stream:
        raise OSError(errno.ENOTCONN, "the socket is not connected")
    answer = client(state.path).call(control.Status(state.stream))
    assert isinstance(answer, StreamInfo)
    return answer


def fromfd(fd: int, family: int, type: int, proto: int = 0) -> socket:
    """A socket on a duplicate of a descriptor that this process, or one that it was forked from, has from a NIC."""
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
    """As the standard `create_connection`, over the NIC. The host None is the node itself."""
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
    named: dict[str, Any] = (
        {} if nic is None else {"nic": nic}
    )  # a class that a program puts in the place of `socket` has no such word
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
    """As the standard `create_server`, over the NIC: bound with SO_REUSEADDR, and listening."""
    if reuse_port or dualstack_ipv6:
        raise ValueError("a NIC has neither SO_REUSEPORT nor IPv6")
    server = socket(family, nic=nic)
    try:
        server.setsockopt(_stdlib.SOL_SOCKET, _stdlib.SO_REUSEADDR, 1)
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
    """A NIC has no IPv6."""
    return False


try:
    from softnic.socket import tls
except ImportError:  # a Python without OpenSSL
    pass
else:

    class SSLSocket(tls.TlsMixin, socket):  # type: ignore[misc]  # as ssl's, for what it derives from
        """What SSLContext.wrap_socket makes of a NIC's socket: an ssl.SSLSocket with this module's names and options.

        A tag on it marks bytes that are encrypted, which only the codec `raw` leaves intact: with any other the peer
        finds a record that was altered. Tag floats before wrapping, or after `unwrap`.
        """

    tls.install(SSLSocket)
