"""Programs for test_preload.py, which use the standard library's sockets as if the NIC were the kernel.

`python -S -m tests.daemon.preloaded NAME OWN_IP OTHER_IP` runs a function of this name. The interpreter stands for any
program that calls the C library.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

WAIT_S = 60.0


@contextlib.contextmanager
def fails(number: int) -> Iterator[None]:
    found = 0
    try:
        yield
    except OSError as error:
        found = error.errno or -1
    assert found == number, errno.errorcode.get(found, found)


def pair(ip: str) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection of this node with itself, the client's first."""
    with socket.create_server((ip, 0)) as listening:
        client = socket.create_connection(listening.getsockname(), WAIT_S)
        accepted, _ = listening.accept()
        accepted.settimeout(WAIT_S)
        return client, accepted


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def names(own: str, other: str) -> None:
    """Addresses are the NIC's, before and after binding and connecting."""
    with socket.socket() as s:
        assert s.getsockname() == ("0.0.0.0", 0)
        for call in (
            s.getpeername,
            lambda: s.shutdown(socket.SHUT_WR),
            lambda: s.recv(1),
            lambda: os.read(s.fileno(), 1),
        ):
            with fails(errno.ENOTCONN):
                call()
        for call in (lambda: s.send(b"x"), lambda: os.write(s.fileno(), b"x")):
            with fails(errno.EPIPE):
                call()
        with fails(errno.EADDRNOTAVAIL):
            s.bind((other, 0))
        s.bind(("", 0))
        with fails(errno.EINVAL):
            s.bind(("", 0))
        address, port = s.getsockname()
        assert (address, port > 0) == ("0.0.0.0", True)
        assert not s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        s.listen()
        with fails(errno.ENOTCONN):
            s.recv(1)
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        with fails(errno.EISCONN):
            s.connect((own, port))
        with socket.socket() as second, fails(errno.EADDRINUSE):
            second.bind((own, port))
    client, accepted = pair(own)
    with client, accepted:
        assert client.getsockname() == accepted.getpeername()
        assert client.getpeername() == accepted.getsockname() == (own, client.getpeername()[1])
        assert os.get_inheritable(accepted.fileno()) is False


def loopback(own: str, _other: str) -> None:
    """A node's name, `localhost` and its loopback addresses lead to itself."""
    number = int(own.rpartition(".")[2]) - 1
    assert socket.gethostname() == f"node{number}"
    for name, address in (
        (f"node{number}", own),
        (f"node{number}.softnic", own),
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
    ):
        assert {info[4][0] for info in socket.getaddrinfo(name, 80)} == {address} == {socket.gethostbyname(name)}
        client, accepted = pair(name)
        with client, accepted:
            assert client.getpeername()[0] == client.getsockname()[0] == accepted.getpeername()[0] == address


def tags(own: str, _other: str) -> None:
    """SOFTNIC_TAGS tags connections by port; a program's own choice stays."""
    os.environ["SOFTNIC_TAGS"] = "x,7001=bounded:10,7002=bfp:7"
    numbers = array.array("f", [0.001 * each for each in range(4096)])
    with socket.create_server((own, 7001)) as listening:
        client = socket.create_connection((own, 7001), WAIT_S)
        accepted, _ = listening.accept()
        with client, accepted:
            client.setblocking(True)
            for sender, receiver in ((client, accepted), (accepted, client)):
                assert sender.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x28
                sender.sendall(numbers)
                received = array.array("f", receiver.recv(numbers.itemsize * len(numbers), socket.MSG_WAITALL))
                assert received != numbers
                assert max(abs(a - b) for a, b in zip(received, numbers, strict=True)) <= 2**-10
    with socket.socket() as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
        s.bind((own, 7002))
        s.listen()
        assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x10
    client, accepted = pair(own)
    with client, accepted:
        assert not client.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)


def ignored(own: str, _other: str) -> None:
    """A descriptor that softnic.socket keeps to itself is the kernel's, until it is another file's."""
    library = ctypes.CDLL(None)
    with socket.socket() as s:
        s.bind((own, 0))
        library.softnic_preload_ignore(s.fileno())
        with socket.socket(fileno=os.dup(s.fileno())) as copy:
            assert copy.getsockname()[0] == own
        name = socket.socket(socket.AF_UNIX, fileno=os.dup(s.fileno()))
        library.softnic_preload_ignore(name.fileno())
        with name:
            assert str(name.getsockname()).startswith("b'\\x00softnic/")
        fd = s.fileno()
    with socket.socket() as s:
        assert s.fileno() == fd
        s.bind((own, 0))
        assert s.getsockname()[0] == own


def transfers(own: str, _other: str) -> None:
    """Bytes, the end of the stream and a reset arrive as from the kernel's TCP."""
    client, accepted = pair(own)
    with client, accepted:
        data = os.urandom(3 << 20)
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        accepted.setblocking(True)
        assert accepted.recv(len(data), socket.MSG_WAITALL) == data
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert read_all(accepted) == b""
        assert os.write(accepted.fileno(), b"back") == 4
        with fails(errno.EOPNOTSUPP):
            accepted.send(b"!", socket.MSG_OOB)
        accepted.close()
        assert read_all(client) == b"back"
    for receive in (
        lambda s: (
            select.select([s], [], [], WAIT_S)[0] and s.send(b"x")
        ),  # the first call has the error, whichever it is
        lambda s: s.recv(1),
        lambda s: s.recv_into(bytearray(1)),
        lambda s: s.recvmsg(1),
        lambda s: s.recvfrom(1),
        lambda s: os.read(s.fileno(), 1),
        lambda s: os.readv(s.fileno(), [bytearray(1)]),
    ):
        reset(own, receive)


def reset(own: str, receive: Callable[[socket.socket], object]) -> None:
    client, accepted = pair(own)
    with client:
        client.setblocking(True)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with fails(errno.ECONNRESET):
            receive(client)
        with fails(errno.EPIPE):
            client.send(b"x")


def nonblocking(own: str, other: str) -> None:
    """A connecting descriptor is not writable; its outcome is SO_ERROR's, or that of another connect."""
    with socket.create_server((own, 0)) as listening, socket.socket() as s:
        listening.setblocking(False)
        with fails(errno.EAGAIN):
            listening.accept()
        s.setblocking(False)
        poll = select.epoll()
        poll.register(s, select.EPOLLOUT | select.EPOLLET)
        assert s.connect_ex(listening.getsockname()) == errno.EINPROGRESS
        assert any(mask & select.EPOLLOUT for _, mask in poll.poll(WAIT_S))
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert s.connect_ex(listening.getsockname()) == errno.EISCONN
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 1 << 16
        assert select.select([listening], [], [], WAIT_S)[0]
        listening.accept()[0].close()
        poll.close()
    with socket.socket() as s:
        address = (own, 9)
        assert s.connect_ex(address) == errno.ECONNREFUSED
        s.setblocking(False)
        assert s.connect_ex(address) == errno.EINPROGRESS
        assert select.select([], [s], [], WAIT_S)[1]
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    for transfer in (lambda: s.recv(1), lambda: s.send(b"x")):
        with socket.socket() as s:
            s.setblocking(False)
            assert s.connect_ex(address) == errno.EINPROGRESS
            assert select.select([], [s], [], WAIT_S)[1]
            with fails(errno.ECONNREFUSED):
                transfer()
    with socket.create_server((own, 0)) as listening, socket.socket() as s:
        copy = os.dup(s.fileno())
        s.setblocking(False)
        s.connect_ex(listening.getsockname())
        select.select([], [s], [], WAIT_S)
        assert s.send(b"at once") == 7  # without asking for SO_ERROR
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 1 << 16
        accepted = listening.accept()[0]
        with accepted:
            assert accepted.recv(7) == b"at once"
            accepted.sendall(b"back")
        s.setblocking(True)
        assert os.read(copy, 4) == b"back"
        os.close(copy)
    with socket.socket() as s:
        s.settimeout(0.2)
        try:
            s.connect((other.rpartition(".")[0] + ".200", 9))  # no such node
        except TimeoutError:
            pass
        else:
            raise AssertionError("connected to nobody")


def options(own: str, _other: str) -> None:
    client, accepted = pair(own)
    with client, accepted:
        for level, name, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 11),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
            (socket.IPPROTO_IP, socket.IP_TOS, 0x10),
            (socket.IPPROTO_IP, socket.IP_TTL, 33),
            (socket.IPPROTO_TCP, socket.TCP_CORK, 1),
            (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1),
            (socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 3),
        ):
            client.setsockopt(level, name, value)
            assert client.getsockopt(level, name) == value
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
        with fails(errno.ENOPROTOOPT):
            client.setsockopt(socket.IPPROTO_TCP, 9999, 1)
        with fails(errno.EINVAL):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, b"")
        with fails(errno.EINVAL):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'"')
        with fails(errno.ENOENT):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"nothing")
        information = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        assert (information[0], len(information)) == (1, 104)
        assert struct.unpack_from("I", information, 16)[0] == client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        for linger in ((1, 0), (1, 7), (0, 0)):
            packed = struct.pack("ii", *linger)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, packed)
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == packed
        for name, value in (
            (socket.SO_TYPE, socket.SOCK_STREAM),
            (socket.SO_DOMAIN, socket.AF_INET),
            (socket.SO_PROTOCOL, socket.IPPROTO_TCP),
        ):
            assert client.getsockopt(socket.SOL_SOCKET, name) == value
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1000))
        accepted.setblocking(True)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1000))
        with fails(errno.EAGAIN):
            accepted.recv(1)


def shared_ports(own: str, _other: str) -> None:
    """SO_REUSEPORT shares a port between listening sockets; TCP_MAXSEG is what was asked for until it is agreed."""
    with socket.socket() as first, socket.socket() as second, socket.socket() as alone:
        for each in (first, second):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind((own, 0))
        second.bind(first.getsockname())
        with fails(errno.EADDRINUSE):
            alone.bind(first.getsockname())
        first.listen()
        second.listen()
        clients = [socket.create_connection(first.getsockname(), WAIT_S) for _ in range(8)]
        accepted = 0
        while accepted < len(clients):
            for each in select.select([first, second], [], [], WAIT_S)[0]:
                each.accept()[0].close()
                accepted += 1
        for client in clients:
            assert client.recv(1) == b""
            client.close()
        assert alone.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == 536
        alone.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        assert alone.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == 1000


def processes(own: str, _other: str) -> None:
    """A stream is the same after dup, fork, exec and SCM_RIGHTS, and when the program closes what it does not know."""
    client, accepted = pair(own)
    with client, accepted:
        peer = client.getpeername()
        child = os.fork()
        if not child:
            with socket.socket() as fresh:
                fresh.bind(("", 0))
            os._exit(client.getpeername() != peer)
        assert os.waitpid(child, 0)[1] == 0
        with socket.socket(fileno=os.dup(client.fileno())) as copy:
            assert copy.getpeername() == peer
        code = f"""if True:
            import socket
            s = socket.socket(fileno={client.fileno()})
            assert (s.family, s.getpeername()) == (socket.AF_INET, {peer!r})
            s.sendall(b"from a child")
            s.shutdown(socket.SHUT_WR)"""
        client.set_inheritable(True)
        subprocess.run([sys.executable, "-S", "-c", code], close_fds=False, check=True)
        assert read_all(accepted) == b"from a child"
        a, b = socket.socketpair()
        with a, b:
            socket.send_fds(a, [b"."], [accepted.fileno()])
            with socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0]) as received:
                assert received.getsockname() == peer
        os.closerange(400, 1100)  # among them the library's connection to the NIC
        with Path(os.devnull).open() as null:
            os.dup2(null.fileno(), 500)  # its number is another file's now
            assert client.getpeername() == peer
            assert os.path.sameopenfile(null.fileno(), 500)


def threads(own: str, _other: str) -> None:
    """Calls of several threads do not take each other's replies, and leave a thread's signals as they were."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    socket.socket().close()
    assert signal.pthread_sigmask(signal.SIG_SETMASK, before) == before | {signal.SIGUSR1}
    was_disabled = ctypes.c_int(-1)
    assert ctypes.CDLL(None).pthread_setcancelstate(0, ctypes.byref(was_disabled)) == 0
    assert was_disabled.value == 0
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                client, accepted = pair(own)
                with client, accepted:
                    client.sendall(b"x" * 1000)
                    client.shutdown(socket.SHUT_WR)
                    assert len(read_all(accepted)) == 1000
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


def both_families(own: str, _other: str) -> None:
    """A listening socket of IPv6 for all addresses takes the NIC's connections; one of its own goes to the kernel."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        port = listening.getsockname()[1]
        assert listening.getsockname()[0] == "::"
        with socket.create_connection((own, port), WAIT_S) as four:
            accepted, peer = listening.accept()
            with accepted:
                assert peer == (f"::ffff:{own}", four.getsockname()[1], 0, 0) == accepted.getpeername()
        with socket.socket(socket.AF_INET6) as six:
            six.connect((f"::ffff:{own}", port))
            assert six.getpeername()[:2] == (f"::ffff:{own}", port)
            assert six.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET6
            with fails(errno.EISCONN):
                six.connect((f"::ffff:{own}", port))


def others(_own: str, _other: str) -> None:
    """UDP, Unix sockets and pipes are the kernel's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as a, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as b:
        a.bind(("127.0.0.1", 0))
        b.connect(a.getsockname())
        b.send(b"datagram")
        assert a.recvfrom(100) == (b"datagram", b.getsockname())
        assert a.sendto(b"", b.getsockname()) == 0
        assert b.recv(1) == b""
    first, second = socket.socketpair()
    first.sendmsg([b"rights"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    assert second.recv(6) == b"rights"
    first.close()
    assert second.recv(1) == b""
    with fails(errno.EPIPE):
        second.send(b"x")
    second.close()
    reader, writer = os.pipe()
    os.close(reader)
    with fails(errno.EPIPE):
        os.write(writer, b"x")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("done")
