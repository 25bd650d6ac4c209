"""More programs for test_preload.py: servers that change their user or root directory. Run as those of preloaded.py."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable

from tests.daemon.preloaded import WAIT_S, fails, pair

OTHER_USER = 33


def _become_other() -> None:
    os.setgroups([])
    os.setgid(OTHER_USER)
    os.setuid(OTHER_USER)


def _move_root() -> None:
    os.chroot(tempfile.mkdtemp())
    os.chdir("/")


def _in_child(change: Callable[[], None], work: Callable[[], None]) -> int:
    """Run `work` in a child, after `change`. Return the child's process id."""
    child = os.fork()
    if not child:
        try:
            change()
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def _use(s: socket.socket, own: str) -> None:
    """Make each call on a connection that this process has a descriptor of."""
    s.settimeout(WAIT_S)
    assert s.getsockname()[0] == s.getpeername()[0] == own
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01"
    s.sendall(b"from a child")
    s.shutdown(socket.SHUT_WR)


def _serve(change: Callable[[], None], own: str) -> None:
    """A child accepts, uses what it accepted and what it inherited, and opens sockets of its own."""
    inherited, peer = pair(own)
    with socket.create_server((own, 0)) as listening, socket.socket() as unused:

        def work() -> None:
            assert listening.getsockname()[0] == own
            with listening.accept()[0] as accepted:
                _use(accepted, own)
            _use(inherited, own)
            unused.bind((own, 0))
            unused.listen()
            with socket.create_connection(unused.getsockname(), WAIT_S) as client:
                assert client.getpeername() == unused.getsockname()
                unused.accept()[0].close()
            assert socket.gethostbyname(f"node{int(own.rpartition('.')[2]) - 1}") == own
            if not os.geteuid():
                return
            for port in (0, 80):  # as on a kernel
                with socket.socket() as s, fails(errno.EACCES):
                    if not port:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    s.bind((own, port))

        child = _in_child(change, work)
        with socket.create_connection(listening.getsockname(), WAIT_S) as client:
            assert client.recv(100, socket.MSG_WAITALL) == b"from a child"
        assert peer.recv(100, socket.MSG_WAITALL) == b"from a child"
        assert os.waitpid(child, 0)[1] == 0
    for each in (inherited, peer):
        each.close()


def other_user(own: str, _other: str) -> None:
    """As Apache httpd, nginx and vsftpd: workers change their user."""
    _serve(_become_other, own)


def other_root(own: str, _other: str) -> None:
    """As HAProxy: workers change their root directory, and their user."""
    _serve(_move_root, own)

    def both() -> None:
        _move_root()
        _become_other()

    _serve(both, own)


def same_process(own: str, program: str) -> None:
    """As memcached: a server changes its user without a fork, and back; another program is started afterwards."""
    executable = fcntl.fcntl(os.open(program, os.O_RDONLY), fcntl.F_DUPFD_CLOEXEC, 100)
    with socket.create_server((own, 0)) as listening:
        socket.getaddrinfo(own, 1)  # imports, which the other user may not be able to
        for user in (OTHER_USER, 0):
            os.seteuid(user)
            with socket.create_connection(listening.getsockname(), WAIT_S), listening.accept()[0] as accepted:
                _use(accepted, own)
            with socket.socket() as s, fails(errno.EACCES) if user else contextlib.nullcontext():
                s.bind((own, 80))
        reader, writer = os.pipe()

        def execute() -> None:
            os.dup2(writer, 1)
            os.dup2(listening.fileno(), 3)
            os.execve(executable, [program], os.environ)

        child = _in_child(_become_other, execute)
        with socket.create_connection(listening.getsockname(), WAIT_S) as client:
            assert client.recv(1) == b""
        assert os.waitpid(child, 0)[1] == 0
        port = listening.getsockname()[1]
        assert os.read(reader, 100) == f"{port} {port} 1\n".encode()


def not_inherited(own: str, _other: str) -> None:
    """What a process has no descriptor of is out of its reach, and it gets no other rights than those of streams."""
    first, second = pair(own)

    def work() -> None:
        name = os.dup(first.fileno())
        first.close()
        with socket.socket(socket.AF_UNIX, fileno=name) as stolen:
            assert stolen.getsockname() is not None
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as direct, fails(errno.EACCES):
            direct.connect(os.environ["SOFTNIC_NIC"])
        shared = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, 499)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(shared, [b'{"type":"Inherit"}'], [theirs.fileno()])
        theirs.close()
        ours.settimeout(WAIT_S)
        for text in (
            '{"type":"QueryStats"}',
            '{"type":"QueryStream","stream":1}',
            '{"type":"ShareConnection"}',
            '{"type":"AddPeer","ip":"10.77.0.9","host":"127.0.0.1","port":9}',
        ):
            ours.send(text.encode())
            assert b'"Failed"' in ours.recv(4096), text
        ours.send(b"what is no request")
        assert b'"Failed"' in ours.recv(4096)
        assert ours.recv(1) == b""

    child = _in_child(_become_other, work)
    assert os.waitpid(child, 0)[1] == 0
    for each in (first, second):
        each.close()


def restarted(own: str, _other: str) -> None:
    """Children have what their server has opened at a NIC that was started again."""
    with socket.create_server((own, 0)):
        print("ready", flush=True)
        sys.stdin.readline()
    _serve(_become_other, own)


def other_nic(own: str, other: str) -> None:
    """A program that is given another NIC than the one that started it: its children have that one's sockets."""
    if socket.gethostname() == f"node{int(own.rpartition('.')[2]) - 1}":
        socket.create_server((own, 0)).close()
        other_path = os.environ["SOFTNIC_NIC"].replace("node0", "node1")
        command = [sys.executable, "-S", "-m", "tests.daemon.preloaded_users", "other_nic", own, other]
        os.execve(sys.executable, command, os.environ | {"SOFTNIC_NIC": other_path})
    _serve(_become_other, other)


def lingering(own: str, _other: str) -> None:
    """A reset on close, set by a child of another user."""
    client, accepted = pair(own)

    def work() -> None:
        client.close()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    child = _in_child(_become_other, work)
    assert os.waitpid(child, 0)[1] == 0
    accepted.close()
    client.setblocking(True)
    with fails(errno.ECONNRESET):
        client.recv(1)
    with contextlib.suppress(OSError):
        client.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("done")
