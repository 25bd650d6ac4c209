"""Python programs that know nothing of softnic: the standard module's IPv4 streams become a NIC's sockets.

    import softnic; softnic.install()           # the first line of the program

For programs of any language, and where nothing can be added to the program, `softnic exec` does the same from outside
(softnic/preload.py). Under it, `install` has nothing left to do.

The class `socket.socket` is replaced by one whose objects are either a NIC's sockets or the kernel's: IPv4 streams are
the NIC's, everything else (Unix, UDP, IPv6) is the kernel's, with the standard methods. The functions of name
resolution are replaced by those of names.py.

Connections of programs that know nothing of tags are tagged by port: SOFTNIC_TAGS, as in `5000=bounded:10,6000=bfp:7`,
applies to connections to these ports, and to those that are accepted at them.
"""

from __future__ import annotations

import errno
import functools
import importlib.abc
import importlib.util
import os
import socket as _stdlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from softnic import socket as _nic_sockets
from softnic.ipc.control import NIC_CODEC, SOL_NIC
from softnic.ipc.socket_state import SocketState, is_preloaded
from softnic.socket import names

TAGS_VARIABLE = "SOFTNIC_TAGS"
"""Environment variable with the codecs of ports."""
TAG = 0x28
_Plain: Any = _stdlib.socket
_Nic: Any = _nic_sockets.socket
_TOS, _CODEC = (_stdlib.IPPROTO_IP, _stdlib.IP_TOS), (SOL_NIC, NIC_CODEC)
_FLAGS = int(_stdlib.SOCK_NONBLOCK) | int(_stdlib.SOCK_CLOEXEC)
_METHODS = (
    *("bind", "listen", "_accept", "accept", "connect", "connect_ex", "shutdown", "detach", "_real_close"),
    *("getsockname", "getpeername", "setsockopt", "getsockopt", "send", "sendall", "sendmsg", "sendto", "sendfile"),
    *("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "__repr__"),
)


def tags() -> dict[int, str]:
    """The codecs of ports, from SOFTNIC_TAGS. Raises ValueError."""
    return parse_tags(filter(None, os.environ.get(TAGS_VARIABLE, "").split(",")))


def parse_tags(texts: Any) -> dict[int, str]:
    """The codecs of ports from texts as `5000=bounded:10`. Raises ValueError."""
    found = {}
    for text in texts:
        port, equals, codec = text.partition("=")
        if not equals or not codec or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
            raise ValueError(f"{text!r} is not PORT=CODEC, as in 5000=bounded:10")
        found[int(port)] = codec
    return found


def _is_tcp(family: int, type: int, proto: int) -> bool:
    if family not in (-1, _stdlib.AF_INET) or proto not in (-1, 0, _stdlib.IPPROTO_TCP):
        return False
    return type == -1 or type & ~_FLAGS == _stdlib.SOCK_STREAM


class InstalledSocket(_Nic):  # type: ignore[misc]
    """The class `socket.socket` after `install`: a NIC's socket if it is an IPv4 stream, else the kernel's."""

    __slots__ = ()

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None, *,
        nic: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self._open_state: SocketState | None = None  # type: ignore[misc]  # a slot of a base class
        if _is_tcp(family, type, proto):
            try:
                super().__init__(family, type, proto, fileno, nic=nic)
                return
            except OSError as error:
                if fileno is None or error.errno != errno.ENOTSOCK:
                    raise
        _Plain.__init__(self, family, type, proto, fileno)

    def _tag(self, port: object) -> None:
        """Tags a connection to this port, or those that are accepted at it, unless the program has set a tag."""
        codec = tags().get(port) if isinstance(port, int) else None
        if codec is not None and not {_TOS, _CODEC} & self._opened().options.keys():
            self.setsockopt(*_TOS, TAG)
            self.setsockopt(*_CODEC, codec)

    def _connect(self, target: tuple[str, int]) -> None:
        if self._opened().target is None:
            self._tag(target[1])
        super()._connect(target)


def _either(name: str) -> Callable[..., Any]:
    nic, plain = getattr(_Nic, name), getattr(_Plain, name)

    @functools.wraps(plain)
    def method(self: InstalledSocket, /, *args: Any, **kwargs: Any) -> Any:
        return (plain if self._open_state is None else nic)(self, *args, **kwargs)

    return method


for _name in _METHODS:
    setattr(InstalledSocket, _name, _either(_name))


def _listen(self: InstalledSocket, /, *args: Any) -> None:
    if self._open_state is None:
        _Plain.listen(self, *args)
    else:
        self._tag(self._open_state.local[1])
        _Nic.listen(self, *args)


InstalledSocket.listen = functools.wraps(_Plain.listen)(_listen)
InstalledSocket.__name__ = InstalledSocket.__qualname__ = "socket"
InstalledSocket.__module__ = "socket"


def install(nic: str | os.PathLike[str] | None = None) -> None:
    """Make the standard module's IPv4 streams sockets of a NIC, in this process.

    Call it before other modules are imported: a module that has imported the class `socket.socket` keeps the kernel's.
    Under `softnic exec` it does nothing.

    Parameters
    ----------
    nic : path-like, optional
        The NIC's control socket. Default: the environment variable SOFTNIC_NIC, which is set otherwise.

    Raises
    ------
    OSError
        ENETDOWN if no NIC is named.
    ValueError
        If SOFTNIC_TAGS is not a list of PORT=CODEC.
    """
    if nic is not None:
        os.environ[_nic_sockets.NIC_VARIABLE] = os.fspath(nic)
    if not os.environ.get(_nic_sockets.NIC_VARIABLE):
        why = f"no NIC: set {_nic_sockets.NIC_VARIABLE} to its control socket, or pass nic=path"
        raise OSError(errno.ENETDOWN, why)
    tags()
    if _stdlib.socket is InstalledSocket or is_preloaded():
        return
    standard: Any = _stdlib
    standard.socket = InstalledSocket
    standard.has_dualstack_ipv6 = _nic_sockets.has_dualstack_ipv6
    for function in names.FUNCTIONS:
        setattr(standard, function.__name__, function)
    setattr(_nic_sockets, "socket", InstalledSocket)  # noqa: B010  # mypy refuses the assignment to a class
    _install_tls()
    if (reduction := sys.modules.get("multiprocessing.reduction")) is not None:
        reduction.register(InstalledSocket, reduction._reduce_socket)
    adapted = ((_GEVENT, _install_gevent), (_GEVENT_RESOLVER, _install_gevent_resolver), (_UVLOOP, _warn_of_uvloop))
    for name, adapt in adapted:
        if (loaded := sys.modules.get(name)) is not None:
            adapt(loaded)
        else:
            sys.meta_path.insert(0, _AfterImport(name, adapt))


def _install_tls() -> None:
    try:
        from softnic.socket import tls
    except ImportError:  # a Python without OpenSSL
        return

    class SSLSocket(tls.TlsMixin, InstalledSocket):
        """The ssl.SSLSocket of a NIC's socket."""

    SSLSocket.__module__ = "ssl"
    tls.install(SSLSocket)


_GEVENT = "gevent._socket3"
_UVLOOP = "uvloop"
_GEVENT_RESOLVER = "gevent.resolver.thread"


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Adapts a module when a program imports it."""

    def __init__(self, name: str, adapt: Callable[[Any], None]) -> None:
        self._name = name
        self._adapt = adapt

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None  # noqa: ARG002
    ) -> ModuleSpec | None:  # fmt: skip
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(fullname)
        if found is None or found.loader is None:
            return None
        self._loader = found.loader
        found.loader = self
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._adapt(module)


def _install_gevent(module: Any) -> None:
    """gevent's sockets are its own class, with objects of a class below `socket.socket` within."""
    module.socket._gevent_sock_class = InstalledSocket


def _warn_of_uvloop(_module: Any) -> None:
    """Its sockets are made in C: they stay the kernel's."""
    text = "uvloop's sockets are the kernel's after softnic.install(): run the program under `softnic exec`"
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _install_gevent_resolver(module: Any) -> None:
    """It calls the functions of `_socket` in threads."""
    functions = {function.__name__: function for function in names.FUNCTIONS}
    module._socket = SimpleNamespace(**functions, gaierror=_stdlib.gaierror, herror=_stdlib.herror)
