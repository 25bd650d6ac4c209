"""The daemon: start and stop, access control, and robustness against any input."""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import random
import re
import select
import signal
import socket as plain
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softnic import socket
from softnic.ipc import control
from tests import needs
from tests.daemon.nics import WAIT_S, Nic, free_port, pair, read_all, running, until


@pytest.fixture
def couple() -> Iterator[list[Nic]]:
    """Two nodes for a test that stops them."""
    with running(2) as started:
        yield started


DOWN = r"softnicd running|is gone"


def raw(nic: Nic, packet: bytes, *descriptors: int) -> control.Reply:
    """Return the reply of the control socket to these bytes."""
    with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as s:
        s.settimeout(WAIT_S)
        s.setsockopt(plain.SOL_SOCKET, plain.SO_SNDBUF, 1 << 20)
        s.connect(nic.path)
        rights = [(plain.SOL_SOCKET, plain.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        s.sendmsg([packet], rights)
        answer = s.recv(control.MAX_MESSAGE)
    assert answer, "the daemon hung up"
    return control.decode_reply(answer)


def refusal(nic: Nic, packet: bytes, *descriptors: int) -> int:
    reply = raw(nic, packet, *descriptors)
    assert isinstance(reply, control.Failed), reply
    assert reply.message
    return reply.errno


def ask_for_ever(s: plain.socket) -> None:
    while True:
        s.send(control.encode(control.QueryNic()))


def open_streams(nic: Nic) -> int:
    with nic.client() as client:
        return len(client.call(control.QueryStats()).streams)


# -- input of the control socket


def test_a_packet_that_is_no_request_gets_one_clear_error(nics: list[Nic]) -> None:
    before = nics[0].counters()
    packets = [b"{}", b"not json", b"\xff\x00", b"[]", b'{"type": "Launch"}', b'{"type": "QueryNic", "version": "x"}']
    packets += [b'{"type": "Listen"}', b'{"type":"Connect","address":1,"port":2}', b"[" * 5000, b" " * 300_000]
    packets += [b'{"type":"QueryNic","more":' + b"[" * 100_000]
    for packet in packets:
        assert refusal(nics[0], packet) == errno.EBADMSG
    after = nics[0].counters()
    assert after["control_malformed"] - before["control_malformed"] == len(packets)
    assert after["control_refused"] - before["control_refused"] == len(packets)


def test_invalid_requests_are_refused(nics: list[Nic]) -> None:
    ours, theirs = plain.socketpair()
    pipe, other_pipe = os.pipe()
    with ours, theirs, nics[0].server() as listening, plain.socket(plain.AF_INET, plain.SOCK_STREAM) as inet:
        stream = socket.info(listening).stream
        end = theirs.fileno()
        cases: list[tuple[control.Request, tuple[int, ...], int]] = [
            (control.QueryNic(version=99), (), errno.EPROTO),
            (control.QueryNic(), (end,), errno.EINVAL),
            (control.Bind("10.77.0.1", 0), (), errno.EINVAL),
            (control.Bind("10.77.0.1", 0), (pipe,), errno.ENOTSOCK),
            (control.Bind("10.77.0.1", 0), (inet.fileno(),), errno.EINVAL),
            (control.Bind("10.77.0.1", -1), (end,), errno.EINVAL),
            (control.Bind("10.77.0.1", 1 << 40), (end,), errno.EINVAL),
            (control.Bind("nobody", 0), (end,), errno.EINVAL),
            (control.Bind("10.77.0.2", 0), (end,), errno.EADDRNOTAVAIL),
            (control.Open(), (), errno.EINVAL),
            (control.Bind("10.77.0.1", 0, stream=stream), (), errno.EINVAL),
            (control.Bind("10.77.0.1", 0, stream=stream), (end,), errno.EINVAL),
            (control.Bind("10.77.0.1", 0, stream=12345), (), errno.EBADF),
            (control.QueryOption(12345, socket.IPPROTO_IP, socket.IP_TOS), (), errno.EBADF),
            (control.QueryOption(stream, 1, 2000), (), errno.ENOPROTOOPT),
            (control.Listen(0, 5), (), errno.EBADF),
            (control.Listen(stream, -1), (), errno.EINVAL),
            (control.Listen(stream, 1 << 40), (), errno.EINVAL),
            (control.Connect("10.77.0.2", 0), (end,), errno.ECONNREFUSED),
            (control.Connect("0.0.0.0", 5), (end,), errno.EADDRNOTAVAIL),
            (control.Connect("10.77.0.2", 5, stream), (), errno.EISCONN),
            (control.Connect("10.77.0.2", 5, stream), (end,), errno.EINVAL),
            (control.SetOption(stream, 1, 2000, 3), (), errno.ENOPROTOOPT),
            (control.SetOption(stream, socket.IPPROTO_IP, socket.IP_TOS, "x"), (), errno.EINVAL),
            (control.SetOption(stream, socket.SOL_NIC, socket.NIC_CODEC, 5), (), errno.EINVAL),
            (control.SetOption(12345, socket.IPPROTO_IP, socket.IP_TOS, 0), (), errno.EBADF),
            (control.QueryStream(12345), (), errno.EBADF),
            (control.Capture(0, 1), (), errno.EINVAL),
            (control.Capture(0, 1), (pipe,), errno.ENOTSOCK),
            (control.Capture(-7, 1), (end,), errno.EINVAL),
        ]
        for request, descriptors, number in cases:
            assert refusal(nics[0], control.encode(request), *descriptors) == number, request
        assert socket.info(listening).state == "LISTEN"
    os.close(pipe)
    os.close(other_pipe)


def test_random_bytes_and_mutated_requests_do_no_harm(nics: list[Nic]) -> None:
    rng = random.Random(3)
    samples = [control.encode(control.Connect("10.77.0.2", 5)), control.encode(control.SetOption(1, 2, 3, "x"))]
    with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as s:
        s.settimeout(WAIT_S)
        s.connect(nics[0].path)
        for _ in range(500):
            packet = bytearray(rng.choice(samples) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 200)))
            for _ in range(rng.randrange(4)):
                packet[rng.randrange(len(packet))] = rng.randrange(256)
            s.send(packet)
            assert s.recv(control.MAX_MESSAGE)
    a, b = pair(nics)
    with a, b:
        a.sendall(b"alive")
        assert read_all(b, 5) == b"alive"


def test_a_client_that_never_reads_replies_is_disconnected(nics: list[Nic]) -> None:
    with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as s:
        s.settimeout(WAIT_S)
        s.connect(nics[0].path)
        with pytest.raises(ConnectionError):
            ask_for_ever(s)
    assert nics[0].counters()["control_overflow"] >= 1


def test_unusable_descriptors_end_only_their_own_stream(nics: list[Nic], tmp_path: Path) -> None:
    """Unix stream sockets that are not of a pair, and one that its program makes blocking again."""
    before = open_streams(nics[0])
    with nics[1].server() as listening, nics[0].client() as client:
        host, port = listening.getsockname()
        with plain.socket(plain.AF_UNIX) as alone, plain.socket(plain.AF_UNIX) as bound:
            bound.bind(str(tmp_path / "bound"))
            bound.listen()
            for strange in (alone, bound):
                client.call(control.Connect(host, port), strange.fileno())
        ours, theirs = plain.socketpair()
        with ours, theirs:
            client.call(control.Connect(host, port), theirs.fileno())
            accepted, _ = listening.accept()
            theirs.setblocking(True)
            with accepted:
                accepted.settimeout(0.2)
                with contextlib.suppress(TimeoutError):  # nobody reads `ours`
                    accepted.sendall(bytes(32 << 20))
            assert client.call(control.QueryNic()) == client.info()
    until(lambda: open_streams(nics[0]) <= before)


def test_streams_are_listed_in_pages(nics: list[Nic]) -> None:
    with nics[0].client() as client, nics[1].server(backlog=129) as listening:  # which admits one more
        before = open_streams(nics[0])
        opened = [nics[0].connect(listening.getsockname()) for _ in range(130)]
        numbers = {socket.info(s).stream for s in opened}
        assert len(numbers) == 130
        seen: list[int] = []
        after, more = 0, True
        while more:
            page = client.call(control.QueryStats(after))
            seen += [info.stream for info in page.streams]
            after, more = seen[-1], page.more
        assert len(seen) == len(set(seen)) == 130 + before
        assert numbers <= set(seen)
        for s in opened:
            s.close()


# -- start and stop


@needs.root
def test_only_the_owner_reaches_the_control_socket(couple: list[Nic]) -> None:
    path = Path(couple[0].path)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.parent.chmod(0o755)
    assert as_nobody(path) == "PermissionError"
    path.chmod(0o666)  # without the mode, the credentials of the connection decide
    assert "a NIC serves the user it runs as, and root" in as_nobody(path)
    assert couple[0].counters()["control_other_users"] == 1


def as_nobody(path: Path) -> str:
    """Return what a process of another user gets from the control socket."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.chdir(path.parent)  # parent directories may be inaccessible to others
            os.setuid(65534)
            with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as s:
                s.settimeout(WAIT_S)
                s.connect(path.name)
                os.write(theirs, s.recv(1000) or b"nothing")
        except OSError as error:
            os.write(theirs, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        return answer.read()


def test_a_clean_stop_resets_connections_and_removes_the_socket(couple: list[Nic]) -> None:
    a, b = pair(couple)
    with a, b:
        a.sendall(b"before")
        assert read_all(b, 6) == b"before"
        assert couple[0].stop() == 0
        with pytest.raises(ConnectionResetError, match=re.escape(couple[0].ip)):
            b.recv(1)
        with pytest.raises(OSError, match=DOWN) as caught:
            a.recv(1)
        assert caught.value.errno == errno.ENETDOWN
    assert not Path(couple[0].path).exists()


def test_a_killed_nic_is_an_error_in_its_programs_and_can_be_restarted(couple: list[Nic]) -> None:
    a, b = pair(couple)
    waiting, listening = socket.socket(nic=couple[0].path), couple[0].server()
    with a, b, waiting, listening:
        waiting.setblocking(False)
        assert waiting.connect_ex(("10.77.0.99", 1)) == errno.EINPROGRESS
        couple[0].stop(signal.SIGKILL)
        down: list[Callable[[], object]] = [
            lambda: a.recv(1),
            lambda: a.sendall(b"x"),
            lambda: listening.accept(),
            lambda: couple[0].connect(("10.77.0.2", 1)),
        ]
        for action in down:
            with pytest.raises(OSError, match=DOWN) as caught:
                action()
            assert caught.value.errno == errno.ENETDOWN
        poll = select.poll()
        poll.register(waiting, select.POLLOUT)
        assert poll.poll(WAIT_S * 1000)
        assert waiting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ENETDOWN
        assert Path(couple[0].path).exists()
        couple[0].start()  # over the socket file left behind
        with pytest.raises(ConnectionResetError):
            a.recv(1)  # the new NIC knows nothing of it
        b.settimeout(WAIT_S)
        with pytest.raises((ConnectionResetError, TimeoutError)) as reset:
            b.recv(1)  # reset by the new NIC, unless it took longer than b's peer timeout
        assert couple[0].ip in str(reset.value)
        c, d = pair(couple)
        with c, d:
            c.sendall(b"again")
            assert read_all(d, 5) == b"again"


def test_a_second_nic_on_the_same_socket_is_refused(nics: list[Nic]) -> None:
    command = list(nics[0].command)
    command[command.index("--wire") + 1] = f"127.0.0.1:{free_port()}"
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert second.returncode == 1
    assert second.stderr == f"softnicd: a NIC answers at {nics[0].path} already\n"
    assert nics[0].counters()["control_requests"] > 0


@pytest.mark.parametrize("taken", ["wire", "control"])
def test_an_error_at_start_is_one_line(nics: list[Nic], tmp_path: Path, taken: str) -> None:
    command = list(nics[0].command)
    path = tmp_path / "node.sock"
    command[command.index("--control") + 1] = str(path)
    if taken == "control":
        path.write_text("not a socket")
        command[command.index("--wire") + 1] = f"127.0.0.1:{free_port()}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert ("is not a socket" if taken == "control" else "cannot bind") in done.stderr
    assert path.exists() == (taken == "control")


def test_systemd_is_notified(tmp_path: Path) -> None:
    with plain.socket(plain.AF_UNIX, plain.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(WAIT_S)
        nic = Nic(tmp_path, 0, [free_port()])
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen(nic.command, env=environment) as nic.process:
            assert notify.recv(100) == b"READY=1"
            with nic.client() as client:
                info = client.info()
            assert (info.name, info.ip, info.mac, info.pid) == (
                "node0", "10.77.0.1", "02:53:4e:4d:00:01", nic.process.pid,
            )  # fmt: skip
            assert json.loads(control.encode(info))["offloads"] == {"0x28": "bounded:10"}
            assert nic.stop(signal.SIGINT) == 0
            assert notify.recv(100) == b"STOPPING=1"


def test_an_idle_nic_uses_no_cpu(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b, nics[0].server():
        a.sendall(b"x")
        read_all(b, 1)
        b.shutdown(socket.SHUT_WR)
        assert a.recv(1) == b""
        before = [cpu_ticks(nic) for nic in nics]
        select.select([], [], [], 0.5)
        assert [cpu_ticks(nic) - ticks for nic, ticks in zip(nics, before, strict=True)] <= [2, 2]


def cpu_ticks(nic: Nic) -> int:
    assert nic.process is not None
    fields = Path(f"/proc/{nic.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_frames_from_unknown_addresses_are_counted_and_dropped(nics: list[Nic]) -> None:
    """Malformed frames from peers are tested in tests/nic and tests/link."""
    host, _, port = nics[0].command[nics[0].command.index("--wire") + 1].partition(":")
    before = nics[0].counters()
    with plain.socket(plain.AF_INET, plain.SOCK_DGRAM) as s:
        header = struct.pack("!II", 0x08000000, 1 << 8)
        for packet in (b"", b"x", header, header + bytes(60), os.urandom(1500)):
            s.sendto(packet, (host, int(port)))
    dropped = ("link_dropped_unknown_source", "link_dropped_malformed")
    until(lambda: sum(nics[0].counters()[name] - before[name] for name in dropped) >= 5)  # each of them is counted
    a, b = pair(nics)
    with a, b:
        a.sendall(b"alive")
        assert read_all(b, 5) == b"alive"
