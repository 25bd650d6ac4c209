"""Daemons on slow, long and lossy links: streams arrive unaltered."""

from __future__ import annotations

import errno
import os
import random
import select
import socket as plain
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from softnic import codecs, socket
from softnic.ipc import control
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, running, until

LOSSY = (
    *("--offload", "0x28=bounded:10", "--rate", "1gbit", "--delay", "200us", "--jitter", "50us", "--loss", "1%"),
    *("--duplicate", "1%", "--reorder", "2%", "--corrupt", "1%", "--seed", "5"),
)


def test_streams_arrive_unaltered_over_a_bad_link() -> None:
    plain_bytes = os.urandom(1_000_000)
    floats = np.random.default_rng(3).normal(0, 0.01, 250_000).astype(np.float32)
    with running(2, *LOSSY) as nics:
        a, b = pair(nics)

        def write() -> None:
            with a:
                for _ in range(2):
                    a.sendall(plain_bytes)
                    a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
                    a.sendall(floats.tobytes())
                    a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)

        writer = threading.Thread(target=write)
        writer.start()
        with b:
            received = read_all(b)
        writer.join()
        expected = plain_bytes + codecs.get("bounded:10").roundtrip(floats).tobytes()
        assert received == 2 * expected
        counters = [nic.counters() for nic in nics]
        assert counters[0]["emulated_lost"] > 0
        assert sum(value for name, value in counters[1].items() if name.startswith("rx_drop_")) > 0


def test_the_emulated_rate_is_kept(nics: list[Nic]) -> None:
    """1 MB at 80 Mbit/s takes a tenth of a second; tagged floats take less."""
    del nics
    with running(2, "--offload", "0x28=bounded:10", "--rate", "80mbit") as slow:
        a, b = pair(slow)
        with a, b:
            start = os.times().elapsed
            a.sendall(bytes(1_000_000))
            read_all(b, 1_000_000)
            assert os.times().elapsed - start > 0.09


def test_a_stop_is_notified_over_a_slow_link() -> None:
    with running(2, "--delay", "100ms") as nics:
        a, b = pair(nics)
        with a, b:
            assert nics[0].stop() == 0
            with pytest.raises(ConnectionResetError):
                b.recv(1)


def test_garbage_from_a_peer_is_dropped_and_counted() -> None:
    """Malformed frames from the second node's address, and mutated frames of the first node."""
    rng = random.Random(9)
    with running(2) as nics:
        for end in pair(nics):  # they know each other
            end.close()
        host, _, port = nics[1].command[nics[1].command.index("--wire") + 1].partition(":")
        target = nics[0].command[nics[0].command.index("--wire") + 1].partition(":")[2]
        assert nics[1].stop() == 0
        header = struct.pack("!II", 0x08000000, 1 << 8)
        ethernet = bytes.fromhex("02534e4d0001" + "02534e4d0002")
        starts = [b"\x08\x00" + b"\x45\x00", b"\x08\x00", b"\x08\x06\x00\x01\x08\x00\x06\x04", b"\x86\xdd", b""]
        with plain.socket(plain.AF_INET, plain.SOCK_DGRAM) as peer, socket.socket(nic=nics[0].path) as s:
            peer.bind((host, int(port)))
            peer.settimeout(WAIT_S)
            s.setblocking(False)
            s.connect_ex((nics[1].ip, 9))
            own = peer.recv(65536)
            for number in range(3000):
                frame = bytearray(ethernet + rng.choice(starts) + rng.randbytes(rng.randrange(200)))
                if number % 3 == 0:
                    frame = bytearray(own[8:])
                    frame[:12] = ethernet
                    for _ in range(rng.randrange(1, 4)):
                        frame[rng.randrange(12, len(frame))] = rng.randrange(256)
                peer.sendto(header + frame, (host, int(target)))
                if number % 100 == 0:
                    nics[0].counters()  # not faster than it reads
            counters = nics[0].counters()
        assert sum(value for name, value in counters.items() if "drop" in name) > 1000
        assert nics[0].alive


def test_a_capture_gets_blocks_until_its_reader_closes(nics: list[Nic]) -> None:
    ours, theirs = plain.socketpair()
    with ours, nics[0].client() as client:
        with theirs:
            assert client.call(control.Capture(0, 1), theirs.fileno()) == control.Done()
        a, b = pair(nics)
        with a, b:
            a.sendall(b"captured bytes")
            read_all(b, 14)
        assert select.select([ours], [], [], WAIT_S)[0]
        ours.shutdown(socket.SHUT_WR)
        blocks = read_all(ours)
    assert blocks.count(b"captured bytes") == 2  # on the host's side and on the wire
    assert len(blocks) % 4 == 0


def test_peers_are_added_while_nics_run(tmp_path: Path) -> None:
    """NICs start without peers, at ports that the system chooses; then peers are added by control requests."""
    nics = [Nic(tmp_path, number, [0] * (number + 1)) for number in range(2)]
    for nic in nics:
        nic.command = nic.command[: nic.command.index("--wire") + 2]  # no peers
        nic.start()
    try:
        with nics[0].client() as first, nics[1].client() as second:
            wires = [first.info().wire, second.info().wire]
            assert all(host == "127.0.0.1" and port for host, port in wires)
            for peer, error in (
                (control.AddPeer("10.77.0.1", "127.0.0.1", 5), "own address"),
                (control.AddPeer("10.77.0.2", "somewhere", 5), "not an IP address"),
                (control.AddPeer("10.77.0.2", "127.0.0.1", 70000), "not a port"),
            ):
                with pytest.raises(OSError, match=error) as caught:
                    first.call(peer)
                assert caught.value.errno == errno.EINVAL
            with pytest.raises(OSError, match=r"\[::1\]:5 \(IPv6\) cannot be reached from a socket of IPv4 alone"):
                first.call(control.AddPeer("10.77.0.2", "::1", 5))
            assert first.call(control.AddPeer(nics[1].ip, *wires[1])) == control.Done()
            assert second.call(control.AddPeer(nics[0].ip, *wires[0])) == control.Done()
        a, b = pair(nics)
        with a, b:
            a.sendall(b"hello")
            assert read_all(b, 5) == b"hello"
    finally:
        for nic in nics:
            assert nic.stop() == 0


def test_a_nic_reports_unacknowledged_bytes() -> None:
    """Connections that their programs have closed are included: the NIC is needed until all is acknowledged."""
    with running(2, "--rate", "1mbit") as nics:
        a, b = pair(nics)
        with b:
            a.sendall(bytes(50_000))
            a.close()
            with nics[0].client() as client:
                assert client.call(control.QueryNic()).unacknowledged == 1
                assert read_all(b) == bytes(50_000)
                until(lambda: client.call(control.QueryNic()).unacknowledged == 0)
