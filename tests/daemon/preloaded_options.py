"""More programs for test_preload.py: options and rare states as Linux has them. Run as those of preloaded.py."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
from collections.abc import Callable

from tests.daemon.preloaded import WAIT_S, fails, pair, read_all

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_IP_MTU_DISCOVER, _IP_RECVERR = 10, 11
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_TIME = struct.pack("ll", 7, 500_000)
_KEPT: tuple[tuple[int, int, int | bytes], ...] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    (*_LINGER, struct.pack("ii", 1, 0)),
    (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
    (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 3),
    (socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIME),
    (socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME),
    (socket.IPPROTO_IP, socket.IP_TOS, 0x28),
    (socket.IPPROTO_IP, socket.IP_TTL, 33),
    (socket.IPPROTO_IP, _IP_MTU_DISCOVER, 2),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 11),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 12),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 9000),
    (socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno"),
    (socket.IPPROTO_TCP, socket.TCP_SYNCNT, 3),
)


def _value(s: socket.socket, level: int, name: int, like: int | bytes) -> int | bytes:
    if isinstance(like, int):
        return s.getsockopt(level, name)
    found = s.getsockopt(level, name, 16)
    return found.rstrip(b"\0") if (level, name) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION) else found[: len(like)]


def kept_options(own: str, _other: str) -> None:
    """What was set on a socket of IPv6 stays when it becomes the NIC's, by connect and by bind."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        port = listening.getsockname()[1]
        client = socket.socket(socket.AF_INET6)
        for level, name, value in _KEPT:
            client.setsockopt(level, name, value)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000)
        client.connect((f"::ffff:{own}", port))
        with listening.accept()[0] as accepted:
            for level, name, value in _KEPT:
                assert _value(client, level, name, value) == value, (level, name, value)
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 60_000
            client.close()
            accepted.settimeout(WAIT_S)
            with fails(errno.ECONNRESET):
                accepted.recv(1)
    with socket.socket(socket.AF_INET6) as listening:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x10)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        listening.bind(("::", 0))
        assert listening.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x10
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) == 1
        with fails(errno.EINVAL):
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    with socket.socket(socket.AF_INET6) as only:
        only.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        with fails(errno.EINVAL):
            only.bind((f"::ffff:{own}", 0))
        with fails(errno.ENETUNREACH):
            only.connect((f"::ffff:{own}", 9))


def options_of_linux(_own: str, _other: str) -> None:
    """Options that have no effect on a NIC are kept, with Linux's defaults and limits."""
    tcp, ip = socket.IPPROTO_TCP, socket.IPPROTO_IP
    for level, name, default, kept, refused in (
        (tcp, socket.TCP_SYNCNT, 6, {1: 1, 127: 127}, (0, 128)),
        (tcp, socket.TCP_LINGER2, 60, {-2: -1, 0: 60, 1: 1, 200: 120}, ()),
        (tcp, socket.TCP_WINDOW_CLAMP, 0, {1: 1152, 3000: 3000, 0: 0}, ()),
        (tcp, socket.TCP_NOTSENT_LOWAT, 0, {100_000: 100_000, -1: -1}, ()),
        (ip, _IP_MTU_DISCOVER, 1, {0: 0, 2: 2, 5: 5}, (-1, 6)),
        (ip, _IP_RECVERR, 0, {255: 1, 0: 0}, ()),
    ):
        with socket.socket() as s:
            assert s.getsockopt(level, name) == default, name
            for value, found in kept.items():
                s.setsockopt(level, name, value)
                assert s.getsockopt(level, name) == found, (name, value)
            for value in refused:
                with fails(errno.EINVAL):
                    s.setsockopt(level, name, value)


def accepted_options(own: str, _other: str) -> None:
    """An accepted connection has the options of the listening socket, those of the descriptor too."""
    names = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO, socket.SO_OOBINLINE, socket.SO_RCVLOWAT)
    values = (_TIME, _TIME, struct.pack("i", 1), struct.pack("i", 5))
    with socket.socket() as listening:
        for name, value in zip(names, values, strict=True):
            listening.setsockopt(socket.SOL_SOCKET, name, value)
        for name in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            listening.setsockopt(socket.SOL_SOCKET, name, 40_000)
        listening.bind((own, 0))
        listening.listen()
        with socket.create_connection(listening.getsockname(), WAIT_S), listening.accept()[0] as accepted:
            for name, value in zip(names, values, strict=True):
                assert accepted.getsockopt(socket.SOL_SOCKET, name, len(value)) == value, name
            for name in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                assert accepted.getsockopt(socket.SOL_SOCKET, name) == 80_000, name


def _call(name: str, s: socket.socket, address: bytes) -> int:
    ctypes.set_errno(0)
    return 0 if getattr(_LIBRARY, name)(s.fileno(), address, len(address)) == 0 else ctypes.get_errno()


def no_family(own: str, _other: str) -> None:
    """AF_UNSPEC: bind takes it for any address, and connect ends what the socket does, with a reset."""
    unspecified = struct.pack("H14x", socket.AF_UNSPEC)
    with socket.socket() as s:
        assert _call("connect", s, unspecified) == 0
        assert _call("bind", s, unspecified) == 0
        assert s.getsockname()[1] > 0
    with socket.socket() as s:
        assert _call("bind", s, struct.pack("HH", socket.AF_UNSPEC, 0) + socket.inet_aton(own) + bytes(8)) == (
            errno.EAFNOSUPPORT
        )
    client, accepted = pair(own)
    with client, accepted, socket.create_server((own, 0)) as listening:
        client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
        assert _call("connect", client, unspecified) == 0
        with fails(errno.ECONNRESET):
            accepted.recv(1)
        with fails(errno.ENOTCONN):
            client.getpeername()
        client.connect(listening.getsockname())
        assert client.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x10
        assert client.getsockopt(*_LINGER, 8) == bytes(8)
        with listening.accept()[0] as again:
            client.sendall(b"again")
            assert again.recv(5, socket.MSG_WAITALL) == b"again"


def send_buffers(own: str, _other: str) -> None:
    """SO_SNDBUF is what the program has set, or the usual size, whatever the socket did before."""

    def size(s: socket.socket) -> int:
        return s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    unspecified = struct.pack("H14x", socket.AF_UNSPEC)
    client, accepted = pair(own)
    usual, usual_accepted = size(client), size(accepted)
    for each in (client, accepted):
        each.close()
    with socket.create_server((own, 0)) as listening, socket.socket() as unused:
        address = listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)
        with fails(errno.ECONNREFUSED):
            unused.connect(address)
        listening.listen()
        for wanted in (0, 40_000):
            for way in ("refused", "dissolved"):
                with socket.socket() as s:
                    if wanted:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted)
                    if way == "refused":
                        with fails(errno.ECONNREFUSED):
                            s.connect(unused.getsockname())
                    else:
                        s.setblocking(False)
                        with fails(errno.EINPROGRESS):
                            s.connect(("10.77.0.200", 80))
                        assert _call("connect", s, unspecified) == 0
                        s.setblocking(True)
                    s.connect(address)
                    assert size(s) == (2 * wanted or usual), (wanted, way)
                    with listening.accept()[0] as accepted:
                        assert size(accepted) == usual_accepted


def restarted(own: str, _other: str) -> None:
    """A socket whose NIC was started again can be used anew."""
    client, accepted = pair(own)
    print("ready", flush=True)
    sys.stdin.readline()
    with client, accepted, socket.create_server((own, 0)) as listening:
        assert _call("connect", client, struct.pack("H14x", socket.AF_UNSPEC)) == 0
        client.connect(listening.getsockname())
        listening.accept()[0].close()


def states(own: str, _other: str) -> None:
    """A listening socket that was shut down listens again; nothing listens at port 0."""
    with socket.create_server((own, 0)) as listening:
        address = listening.getsockname()
        listening.shutdown(socket.SHUT_WR)  # no effect
        with fails(errno.EINVAL):
            listening.shutdown(7)
        for how in (socket.SHUT_RD, socket.SHUT_RDWR):
            with socket.create_connection(address, WAIT_S), listening.accept()[0]:
                pass
            listening.shutdown(how)
            with fails(errno.EINVAL):
                listening.accept()
            with socket.socket() as s:
                assert s.connect_ex(address) == errno.ECONNREFUSED
            listening.listen()
            assert listening.getsockname() == address
        with socket.create_connection(address, WAIT_S), listening.accept()[0]:
            pass
    with socket.socket() as s, fails(errno.ECONNREFUSED):
        s.connect((own, 0))


def empty_parts(own: str, _other: str) -> None:
    """A reset is an error for a receive whose first buffer is empty, and none for one without space."""
    receives: tuple[tuple[Callable[[socket.socket], object], int], ...] = (
        (lambda s: s.recvmsg_into([bytearray(0), bytearray(9)]), errno.ECONNRESET),
        (lambda s: os.readv(s.fileno(), [bytearray(0), bytearray(9)]), errno.ECONNRESET),
        (lambda s: s.recvmsg_into([bytearray(0), bytearray(0)]), 0),
        (lambda s: os.readv(s.fileno(), [bytearray(0)]), 0),
        (lambda s: s.recvmsg_into([]), 0),
    )
    for receive, number in receives:
        client, accepted = pair(own)
        with client:
            client.setblocking(True)
            accepted.setsockopt(*_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            assert select.select([client], [], [], WAIT_S)[0]
            if number:
                with fails(number):
                    receive(client)
            else:
                receive(client)
                with fails(errno.ECONNRESET):
                    client.recv(1)


class _Interface(ctypes.Structure):
    """struct ifaddrs."""


_Interface._fields_ = (
    *(("next", ctypes.POINTER(_Interface)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint)),
    *(("address", ctypes.POINTER(ctypes.c_ubyte * 16)), ("mask", ctypes.POINTER(ctypes.c_ubyte * 16))),
    *(("destination", ctypes.c_void_p), ("data", ctypes.c_void_p)),
)


class _Allocated(ctypes.Structure):
    """struct mallinfo2."""

    _fields_ = (("numbers", ctypes.c_size_t * 10),)


def _bytes_allocated() -> int:
    """Bytes that malloc has given to this process."""
    _LIBRARY.mallinfo2.restype = _Allocated
    return int(_LIBRARY.mallinfo2().numbers[7])


def interfaces(own: str, _other: str) -> None:
    """The node's address is that of an interface, by getifaddrs and ioctl, beside the kernel's own."""
    _LIBRARY.freeifaddrs.restype = None
    for _ in range(3):
        first = ctypes.POINTER(_Interface)()
        assert _LIBRARY.getifaddrs(ctypes.byref(first)) == 0
        found = {}
        at = first
        while at:
            if at.contents.address and at.contents.address.contents[0] == socket.AF_INET:
                found[at.contents.name] = bytes(at.contents.address.contents)[4:8], at.contents.flags & 1
            at = at.contents.next
        assert found[b"softnic0"] == (socket.inet_aton(own), 1)
        assert found[b"lo"] == (socket.inet_aton("127.0.0.1"), 1)
        _LIBRARY.freeifaddrs(first)
    _LIBRARY.freeifaddrs(None)
    before = _bytes_allocated()
    for _ in range(200):
        first = ctypes.POINTER(_Interface)()
        assert _LIBRARY.getifaddrs(ctypes.byref(first)) == 0
        _LIBRARY.freeifaddrs(first)
    assert _bytes_allocated() - before < 200 * 100  # an entry alone has more
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as s:
            for name, address, mask in (("softnic0", own, "255.255.255.0"), ("lo", "127.0.0.1", "255.0.0.0")):
                asked = struct.pack("16s24x", name.encode())
                assert fcntl.ioctl(s, _SIOCGIFADDR, asked)[20:24] == socket.inet_aton(address)
                assert fcntl.ioctl(s, _SIOCGIFNETMASK, asked)[20:24] == socket.inet_aton(mask)
                assert fcntl.ioctl(s, _SIOCGIFFLAGS, asked)[16] & 1
            with fails(errno.ENODEV):
                fcntl.ioctl(s, _SIOCGIFADDR, struct.pack("16s24x", b"nothing0"))


def reconnected(own: str, _other: str) -> None:
    """A socket that connects again has its options."""
    client, accepted = pair(own)
    with client, socket.create_server((own, 0)) as listening:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 99)
        accepted.setsockopt(*_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        client.setblocking(True)
        with fails(errno.ECONNRESET):
            read_all(client)
        for call in (client.getpeername, lambda: client.shutdown(socket.SHUT_WR)):
            with fails(errno.ENOTCONN):
                call()
        client.connect(listening.getsockname())
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 99
        assert client.getpeername() == listening.getsockname()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("done")
