"""NICs with several queues: what is one connection's is on one queue, and everything else is as with one."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from softnic import socket
from softnic._native import lib
from softnic.capture import reader
from softnic.cluster.cluster import Cluster
from softnic.commands.capture import recording
from softnic.ipc import control
from softnic.link.sockets import open_socket
from softnic.packet import arp, ethernet, ipv4
from softnic.packet.ethernet import mac_of
from softnicd import link_setup
from softnicd.config import Config
from tests.daemon.nics import TOLD_S, WAIT_S, Nic, free_port, pair, read_all, running, serving, until

VXLAN = bytes.fromhex("0800000000000100")


def streams_of(nic: Nic) -> list[control.StreamInfo]:
    with nic.client() as client:
        return list(client.call(control.QueryStats()).streams)


def mixed(*queues: int, key: str = "") -> list[Nic]:
    """Return NICs with these numbers of queues, which are to be started."""
    directory, ports = Path(tempfile.mkdtemp()), [free_port() for _ in queues]
    (directory / "key").touch(0o600)
    (directory / "key").write_text(key)
    sealed = ["--key", str(directory / "key")] if key else []
    return [Nic(directory, number, ports, "--queues", str(each), *sealed) for number, each in enumerate(queues)]


@pytest.mark.parametrize("key", ["", "5" * 64], ids=["plain", "sealed"])
@pytest.mark.parametrize("queues", [(2, 2), (3, 2), (1, 4), (8, 1)])
def test_streams_spread_over_queues_and_arrive_unaltered(queues: tuple[int, int], key: str) -> None:
    nics = mixed(*queues, key=key)
    sent = [os.urandom(200_000) for _ in range(24)]
    with serving(nics):
        ends = [pair(nics) for _ in sent]
        for (a, _), data in zip(ends, sent, strict=True):
            threading.Thread(target=lambda a=a, data=data: (a.sendall(data), a.shutdown(socket.SHUT_WR))).start()
        for (a, b), data in zip(ends, sent, strict=True):
            assert read_all(b) == data
            b.sendall(data[:1000])
            assert read_all(a, 1000) == data[:1000]
        for nic, count in zip(nics, queues, strict=True):
            used = Counter(info.queue for info in streams_of(nic) if info.peer is not None)
            assert used.keys() == set(range(count))
            for info in streams_of(nic):
                if info.peer is not None:
                    ends_ = (ipv4.address(info.local[0]), ipv4.address(info.peer[0]), info.local[1], info.peer[1])
                    assert info.queue == lib.sn_queue_of(*ends_, count)
        for a, b in ends:
            a.close()
            b.close()
        for nic in nics:
            counters = nic.counters()
            assert not counters["rx_drop_steered"]
            assert counters["rx_steered_frames"] < counters["rx_frames"] / 2
            if key:
                assert counters["link_sessions"] == 1
                assert not any(counters[f"link_dropped_{why}"] for why in ("forged", "replayed", "waiting"))


def test_a_nic_says_how_many_queues_it_has() -> None:
    with running(1, "--queues", "3") as [nic], nic.client() as client:
        assert client.info().queues == 3


def test_a_port_that_another_queue_uses_is_in_use() -> None:
    with running(2, "--queues", "4") as nics:
        ends = [pair(nics) for _ in range(8)]
        for a, _ in ends:
            with socket.socket(nic=nics[0].path) as another, pytest.raises(OSError, match="in use") as caught:
                another.bind((nics[0].ip, a.getsockname()[1]))
            assert caught.value.errno == errno.EADDRINUSE
        for end in [end for each in ends for end in each]:
            end.close()


@pytest.mark.parametrize("port", range(41_000, 41_006))
def test_a_bound_socket_connects_on_the_queue_of_its_port(port: int) -> None:
    with running(2, "--queues", "3") as nics, nics[1].server() as server:
        a = socket.socket(nic=nics[0].path)
        a.bind((nics[0].ip, port))
        a.settimeout(WAIT_S)
        a.connect(server.getsockname())
        b, _ = server.accept()
        a.sendall(b"from a given port")
        assert read_all(b, 17) == b"from a given port"
        ours, theirs = ipv4.address(nics[0].ip), ipv4.address(nics[1].ip)
        [info] = [each for each in streams_of(nics[0]) if each.peer is not None]
        assert info.queue == lib.sn_queue_of(ours, theirs, port, server.getsockname()[1], 3)
        a.close()
        b.close()


def test_lanes_are_queues() -> None:
    with running(2, "--queues", "3") as nics, nics[1].server() as server:
        for lane in (0, 1, 2, 4):
            a = socket.socket(nic=nics[0].path)
            a.setsockopt(control.SOL_NIC, control.NIC_LANE, lane)
            assert a.getsockopt(control.SOL_NIC, control.NIC_LANE) == lane
            a.settimeout(WAIT_S)
            a.connect(server.getsockname())
            b, _ = server.accept()
            for nic in nics:
                assert [each.queue for each in streams_of(nic) if each.peer is not None] == [lane % 3]
            a.close()
            b.close()
            until(lambda: not any(each.peer is not None for nic in nics for each in streams_of(nic)))


def test_a_closed_listener_refuses_on_every_queue() -> None:
    with running(2, "--queues", "4") as nics:
        server = nics[1].server()
        address = server.getsockname()
        for _ in range(8):
            nics[0].connect(address).close()
            server.accept()[0].close()
        server.close()

        def is_refused() -> bool:
            try:
                nics[0].connect(address).close()
            except ConnectionRefusedError:
                return True
            except ConnectionResetError:
                return False  # by a queue that has not yet heard of it
            return False

        until(lambda: all(is_refused() for _ in range(8)))


def test_the_backlog_counts_connections_of_all_queues() -> None:
    with running(2, "--queues", "4") as nics, nics[1].server(backlog=2) as server:
        clients = []
        for _ in range(12):
            client = socket.socket(nic=nics[0].path)
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            clients.append(client)
        until(lambda: nics[1].counters()["dropped_backlog"] > 0)
        waiting = [each for each in streams_of(nics[1]) if each.peer is not None]
        assert len(waiting) <= 2 + 3 + 3  # in the listening descriptor, the backlog, and half-open ones meanwhile
        for client in clients:
            client.close()


def test_a_peer_that_is_gone_ends_connections_of_all_queues() -> None:
    with running(2, "--queues", "3", "--peer-timeout", "2s") as nics:
        ends = [pair(nics) for _ in range(9)]
        assert {each.queue for each in streams_of(nics[0])} == {0, 1, 2}
        began = time.monotonic()
        nics[1].stop(signal.SIGKILL)
        for a, _ in ends:
            with pytest.raises(TimeoutError) as caught:
                a.recv(1)
            assert caught.value.errno == errno.ETIMEDOUT
        assert time.monotonic() - began < TOLD_S
        for end in [end for each in ends for end in each]:
            end.close()


def test_a_restarted_peer_resets_connections_of_all_queues() -> None:
    with running(2, "--queues", "3") as nics:
        ends = [pair(nics) for _ in range(9)]
        nics[1].stop(signal.SIGKILL)
        nics[1].start()
        for a, _ in ends:
            with pytest.raises(ConnectionResetError):
                a.recv(1)
        for end in [end for each in ends for end in each]:
            end.close()


def test_a_port_that_another_nic_has_is_refused() -> None:
    with running(1, "--queues", "2") as [nic], tempfile.TemporaryDirectory() as directory:
        other = [*nic.command, "--control", f"{directory}/other.sock"]
        ended = subprocess.run(other, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert ended.returncode == 1
        assert "another process uses this port" in ended.stderr


def test_frames_of_several_flows_in_one_datagram_reach_their_queues() -> None:
    """The kernel steers by the first of the frames that it has joined, or that a sender has."""
    queues, port = 4, free_port()
    own, peer_ip = ipv4.address("10.77.0.1"), ipv4.address("10.77.0.9")
    with open_socket(("127.0.0.1", 0)) as peer, running(1, "--queues", str(queues)) as [nic]:
        with nic.client() as client:
            client.call(control.AddPeer("10.77.0.9", *peer.getsockname()))
        wire = nic.command[nic.command.index("--wire") + 1].partition(":")
        answer = arp.build(arp.Arp(arp.REQUEST, mac_of(peer_ip), peer_ip, bytes(6), own))
        opening = [VXLAN + ethernet.build(ethernet.BROADCAST, mac_of(peer_ip), ethernet.TYPE_ARP, answer)]
        ports = range(port, port + 16)
        assert {lib.sn_queue_of(peer_ip, own, each, 99, queues) for each in ports} == set(range(queues))
        peer.sendto(opening[0], (wire[0], int(wire[2])))
        joined = b"".join(VXLAN + syn(peer_ip, own, each, 99) for each in ports)
        size = len(joined) // len(ports)
        peer.sendmsg([joined], [(17, 103, struct.pack("H", size))], 0, (wire[0], int(wire[2])))  # UDP_SEGMENT
        peer.settimeout(WAIT_S)
        peer.setblocking(True)
        refused: set[int] = set()
        while len(refused) < len(ports):
            frame = peer.recv(2048)[8:]
            if frame[12:14] == b"\x08\x00":
                refused.add(struct.unpack("!H", frame[36:38])[0])
        assert refused == set(ports)
        counters = nic.counters()
        assert counters["rx_steered_frames"] >= 8
        assert not counters["rx_drop_steered"]


def syn(src: int, dst: int, sport: int, dport: int) -> bytes:
    """Return the frame of a SYN."""
    header = struct.pack("!HHIIBBHHH", sport, dport, 7, 0, 5 << 4, 2, 1000, 0, 0)
    pseudo = struct.pack("!IIBBH", src, dst, 0, 6, len(header))
    total = ipv4.checksum(pseudo + header)
    header = header[:16] + struct.pack("!H", total) + header[18:]
    packet = ipv4.build(ipv4.Packet(src, dst, 6, header))
    return ethernet.build(mac_of(dst), mac_of(src), ethernet.TYPE_IPV4, packet)


def test_a_capture_has_the_packets_of_all_queues(tmp_path: Path) -> None:
    file = tmp_path / "queues.pcapng"
    with running(2, "--queues", "3") as nics:
        with recording([nic.path for nic in nics], file):
            for _ in range(6):
                a, b = pair(nics)
                a.sendall(b"x" * 50_000)
                assert read_all(b, 50_000) == b"x" * 50_000
                a.close()
                b.close()
        counters = [nic.counters() for nic in nics]
    assert len(reader.read(file).interface) == sum(each["capture_frames"] for each in counters)
    assert not any(each["capture_dropped"] for each in counters)


def test_a_system_that_does_not_steer_gets_one_queue() -> None:
    said: list[str] = []
    config = Config(ip="10.77.0.1", control="/nowhere", wire=f"127.0.0.1:{free_port()}", queues=4)
    refused = OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
    with mock.patch.object(link_setup, "steer", side_effect=refused):
        wires = link_setup.open_wires(config, said.append)
    for wire in wires:
        wire.close()
    assert len(wires) == 1
    assert said == ["this system does not steer datagrams to queues (Protocol not available): the NIC has one queue"]


def test_what_needs_one_queue_says_so() -> None:
    said: list[str] = []
    config = Config(ip="10.77.0.1", control="/nowhere", wire=f"127.0.0.1:{free_port()}", queues=4, tap="softnic0")
    wires = link_setup.open_wires(config, said.append)
    for wire in wires:
        wire.close()
    assert len(wires) == 1
    assert said == ["a NIC with a TAP device has one queue: queues = 4 has no effect"]


# Collectives

PROGRAM = """
import hashlib
import numpy as np
from softnic import MPI

comm = MPI.COMM_WORLD
floats = np.random.default_rng(comm.rank).standard_normal(300_001).astype(np.float32)
memory = np.frombuffer(MPI.Alloc_mem(floats.nbytes), np.float32)
memory[:] = floats
digest = hashlib.sha256()
for source in (floats, memory):
    result = np.empty_like(source)
    comm.Allreduce(source, result)
    digest.update(result)
    for algorithm in ("ring", "direct", "tree"):
        for codec in ("bounded:10", "rht:4", "exact:32"):
            comm.Allreduce_comp(source, result, codec=codec, algorithm=algorithm)
            digest.update(result)
comm.Reduce(memory, result, root=1)
if comm.rank == 1:
    digest.update(result)
comm.Bcast(memory, root=0)
digest.update(memory)
gathered = np.empty((comm.size, floats.size), np.float32)
comm.Allgather(floats, gathered)
digest.update(gathered)
requests = [comm.Iallreduce(floats, np.empty_like(floats)) for _ in range(4)]
MPI.Request.Waitall(requests)
print(comm.rank, digest.hexdigest(), flush=True)
"""


def digests(ranks: int, queues: int, *flags: str) -> dict[str, str]:
    """Return the hash of each rank's results."""
    command = [sys.executable, "-m", "softnic", "run", "-n", str(ranks), "--queues", str(queues), *flags, "--"]
    ended = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=2 * WAIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    return {rank: digest for _, rank, digest in lines}


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_collectives_have_the_same_bits_with_any_number_of_queues(ranks: int) -> None:
    alone = digests(ranks, 1)
    assert len(alone) == ranks
    for queues in (2, 3, 4):
        assert digests(ranks, queues) == alone
    assert digests(ranks, 3, "--key") == alone


FOREVER = """
import numpy as np
from softnic import MPI

comm = MPI.COMM_WORLD
floats = np.ones(2_000_000, np.float32)
comm.Allreduce(MPI.IN_PLACE, floats)
print("begun", flush=True)
try:
    while True:
        comm.Allreduce(MPI.IN_PLACE, floats)
except MPI.Exception as error:
    print(f"told: {error}", flush=True)
"""


@pytest.mark.parametrize("victim", ["rank", "nic"])
def test_all_ranks_are_told_of_one_that_is_lost_amid_cut_collectives(victim: str) -> None:
    with Cluster(nodes=3, queues=3) as cluster:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", FOREVER],
                env={**os.environ, **cluster.env(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "begun\n"
        time.sleep(0.5)
        os.kill((ranks[1] if victim == "rank" else cluster.nics[1]).pid, signal.SIGKILL)
        began = time.monotonic()
        for survivor in (0, 2):
            told, _ = ranks[survivor].communicate(timeout=WAIT_S)
            assert "told" in told
            assert "rank 1" in told
        assert time.monotonic() - began < TOLD_S
        ranks[1].communicate(timeout=WAIT_S)
