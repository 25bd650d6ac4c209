"""More programs for test_preload.py: calls that few programs make. Run as those of preloaded.py."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
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
        _set_linger(client, 1)
        _fill(client)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.read(reader, 1)
            os._exit(_close_s(client) < 1)  # as its parent would
        client.close()
        os.write(writer, b"x")
        assert os.waitpid(child, 0)[1] == 0
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


_CHILD = """if True:
    import errno, os, signal, sys
    results = []
    signal.signal(signal.SIGPIPE, lambda number, frame: results.append("SIGPIPE"))
    for call in (lambda fd: os.write(fd, b"junk"), lambda fd: os.read(fd, 64)):
        try:
            results.append(call(int(sys.argv[1])))
        except OSError as error:
            results.append(errno.errorcode[error.errno])
    print(*results)
"""


def copies(own: str, _other: str) -> None:
    """Nothing is transferred through copies of a descriptor that is not connected, in whatever process they are."""
    with socket.create_server((own, 0)) as listening, socket.socket() as s:
        waiting = socket.create_connection(listening.getsockname(), WAIT_S)
        assert select.select([listening], [], [], WAIT_S)[0]
        for fd in (s.fileno(), listening.fileno()):
            used = os.open(os.devnull, os.O_WRONLY)
            os.write(used, b"x")
            for copy in (os.dup(fd), os.dup2(fd, used)):
                with fails(errno.EPIPE):
                    os.write(copy, b"junk")
                with fails(errno.ENOTCONN):
                    os.read(copy, 64)
                os.close(copy)
            command = [sys.executable, "-S", "-c", _CHILD, str(fd)]
            output = subprocess.check_output(command, pass_fds=[fd], text=True)
            assert output == "EPIPE SIGPIPE ENOTCONN\n", output
        for client in (waiting, s):
            if client is s:
                s.connect(listening.getsockname())
            accepted, _ = listening.accept()
            with client, accepted:
                client.sendall(b"hello")
                command[-1] = str(accepted.fileno())
                output = subprocess.check_output(command, pass_fds=[accepted.fileno()], text=True)
                assert output == "4 b'hello'\n", output
                client.setblocking(True)
                assert os.read(client.fileno(), 64) == b"junk"


SIOCOUTQ, SIOCOUTQNSD = 0x5411, 0x894B


def _queued(s: socket.socket, request: int = SIOCOUTQ) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(s, request, bytes(4)))[0]
    return count


def queued_output(own: str, _other: str) -> None:
    """SIOCOUTQ counts what the peer has not acknowledged, in the descriptor and in the NIC, SIOCOUTQNSD what was never
    sent, because the peer's window is closed.
    """
    with socket.socket() as s:
        assert _queued(s) == _queued(s, SIOCOUTQNSD) == 0
        s.bind((own, 0))
        s.listen()
        for request in (SIOCOUTQ, SIOCOUTQNSD):
            with fails(errno.EINVAL):
                _queued(s, request)
    client, accepted = pair(own)
    with client, accepted:
        _fill(client)
        assert _queued(client) > client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 4
        assert 0 < _queued(client, SIOCOUTQNSD) <= _queued(client)
        client.shutdown(socket.SHUT_WR)
        read_all(accepted)
        deadline = time.monotonic() + WAIT_S
        while _queued(client):
            assert time.monotonic() < deadline
            select.select([], [], [], 0.01)
        assert _queued(client, SIOCOUTQNSD) == 0


def no_descriptors(_own: str, _other: str) -> None:
    """Numbers that are no descriptors' may be closed: programs close all up to their limit, or -1."""
    for number in (-1, 1 << 20, 2_000_000_000, -2_000_000_000):
        assert _LIBRARY.close(number) == -1
        assert ctypes.get_errno() == errno.EBADF
        assert _LIBRARY.dup2(number, 1 << 20) == _LIBRARY.dup3(0, number, 0) == -1


def continued(_own: str, _other: str) -> None:
    """A call that asks the NIC goes on where the process is stopped and continued meanwhile."""
    with socket.socket() as s:
        print("ready", flush=True)
        sys.stdin.readline()
        assert s.getsockname() == ("0.0.0.0", 0)


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
