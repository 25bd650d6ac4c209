"""More programs for test_preload.py: calls that few programs make. Run as those of preloaded.py."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import sys
import tempfile
import time

from tests.daemon.preloaded import WAIT_S, fails, pair, read_all

_LIBRARY = ctypes.CDLL(None, use_errno=True)


def _set_linger(s: socket.socket, seconds: int) -> None:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))


def _fill(s: socket.socket) -> None:
    """Send until the peer, which does not read, has closed its window."""
    s.setblocking(False)
    while select.select([], [s], [], 1)[1]:
        with contextlib.suppress(BlockingIOError):
            s.send(bytes(1 << 20))


def _close_s(s: socket.socket) -> float:
    started = time.monotonic()
    s.close()
    return time.monotonic() - started


def lingering(own: str, _other: str) -> None:
    """With SO_LINGER, the last close waits for the peer's acknowledgement, or as long as the option says."""
    client, accepted = pair(own)
    with accepted:
        _set_linger(client, 600)
        _fill(client)
        child = os.fork()
        if not child:
            client.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with socket.socket(fileno=os.dup(client.fileno())) as copy:
            assert _close_s(copy) < WAIT_S
        _set_linger(client, 1)
        assert _close_s(client) >= 1
    client, accepted = pair(own)
    with accepted:
        _set_linger(client, 600)
        client.sendall(b"last words")
        assert _close_s(client) < WAIT_S
        assert read_all(accepted) == b"last words"


class _Message(ctypes.Structure):
    """struct mmsghdr, of one part."""

    _fields_ = (
        *(("name", ctypes.c_void_p), ("name_size", ctypes.c_uint32), ("parts", ctypes.c_void_p)),
        *(("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_size", ctypes.c_size_t)),
        *(("flags", ctypes.c_int), ("padding", ctypes.c_int), ("size", ctypes.c_uint)),
    )


def _messages(s: socket.socket, name: str, space: ctypes.Array[ctypes.c_char], *more: object) -> int:
    """Call sendmmsg or recvmmsg with two messages, the halves of `space`. Returns the first one's bytes, or -errno."""
    half = len(space) // 2
    parts = (ctypes.c_size_t * 4)(ctypes.addressof(space), half, ctypes.addressof(space) + half, half)
    messages = (_Message * 2)()
    for index, message in enumerate(messages):
        message.parts, message.count = ctypes.addressof(parts) + index * 2 * ctypes.sizeof(ctypes.c_size_t), 1
    ctypes.set_errno(0)
    if getattr(_LIBRARY, name)(s.fileno(), messages, 2, 0, *more) < 0:
        return -ctypes.get_errno()
    return int(messages[0].size)


def rare_transfers(own: str, _other: str) -> None:
    """sendfile, splice, sendmmsg and recvmmsg move bytes, with TCP's errors."""
    client, accepted = pair(own)
    for each in (client, accepted):
        each.setblocking(True)
    with client, accepted, tempfile.TemporaryFile() as file:
        file.write(b"of a file")
        file.flush()
        assert os.sendfile(client.fileno(), file.fileno(), 0, 100) == 9
        reader, writer = os.pipe()
        assert os.splice(accepted.fileno(), writer, 100) == 9
        assert os.read(reader, 100) == b"of a file"
        os.write(writer, b"of a pipe")
        assert os.splice(reader, client.fileno(), 100) == 9
        assert accepted.recv(100) == b"of a pipe"
        assert _messages(client, "sendmmsg", ctypes.create_string_buffer(b"onetwo", 6)) == 3
        space = ctypes.create_string_buffer(6)
        assert _messages(accepted, "recvmmsg", space, None) == 3
        assert space.raw == b"onetwo"
        with fails(errno.EOPNOTSUPP):
            client.sendto(b"x", socket.MSG_FASTOPEN, (own, 9))
        _set_linger(accepted, 0)
        accepted.close()
        assert select.select([client], [], [], WAIT_S)[0]
        with fails(errno.ECONNRESET):
            os.splice(client.fileno(), writer, 100)
        os.write(writer, b"x")
        with fails(errno.EPIPE):
            os.splice(reader, client.fileno(), 100)
        with fails(errno.EPIPE):
            os.sendfile(client.fileno(), file.fileno(), 0, 100)
        assert _messages(client, "sendmmsg", space) == -errno.EPIPE
    with socket.socket() as s, tempfile.TemporaryFile() as file:
        file.write(b"x")
        file.flush()
        with fails(errno.EPIPE):
            os.sendfile(s.fileno(), file.fileno(), 0, 1)
        with fails(errno.ENOTCONN):
            os.splice(s.fileno(), writer, 1)


def resolving(own: str, _other: str) -> None:
    """Names of nodes are resolved as the hints say, and addresses of nodes have names."""
    name = f"node{int(own.rpartition('.')[2]) - 1}"
    four = {(socket.AF_INET, (own, 80))}
    for family, flags, found in (
        (0, 0, four),
        (socket.AF_INET, 0, four),
        (socket.AF_INET6, socket.AI_V4MAPPED, {(socket.AF_INET6, (f"::ffff:{own}", 80, 0, 0))}),
    ):
        answers = socket.getaddrinfo(name, 80, family, socket.SOCK_STREAM, 0, flags)
        assert {(answer[0], answer[4]) for answer in answers} == found
    assert socket.getaddrinfo(name, 80, flags=socket.AI_CANONNAME)[0][3] == name
    with fails(socket.EAI_NONAME):
        socket.getaddrinfo(name, 80, flags=socket.AI_NUMERICHOST)
    full = f"{name}.softnic"
    assert socket.gethostbyaddr(own) == (full, [], [own])
    assert socket.getnameinfo((own, 80), socket.NI_NUMERICSERV) == (full, "80")
    assert socket.getnameinfo((own, 80), socket.NI_NOFQDN | socket.NI_NUMERICSERV) == (name, "80")
    assert socket.getnameinfo((own, 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == (own, "80")
    _LIBRARY.gethostbyaddr.restype = ctypes.POINTER(ctypes.c_char_p)
    assert _LIBRARY.gethostbyaddr(socket.inet_aton(own), 4, socket.AF_INET)[0] == full.encode()


def six_options(own: str, _other: str) -> None:
    """Options of IPv6 apply to a socket for both families."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        assert listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 0
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x10)
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 9)
        with socket.create_connection((own, listening.getsockname()[1]), WAIT_S):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) == 0x10
                assert accepted.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) == 9


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("done")
