"""Turns leave the numbers in every flow that TCP's decisions in Python alone leave, over real sockets, on a clock of
the test."""

from __future__ import annotations

import contextlib
import errno
import random
import select
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from softnic._native import lib
from softnic.ipc import control
from softnic.link.udp import VxlanLink
from softnicd.daemon import Daemon
from softnicd.turn import NicTurn
from tests.daemon.wired_nics import IPS, PORT, TOS, Mode, WiredNics
from tests.tcp.flow_state import differences


def break_attention(patch: pytest.MonkeyPatch) -> None:
    """Have everything fail that turns ask for between what is received and what is sent."""

    def fail(_turn: NicTurn, now: float) -> None:
        raise RuntimeError(f"planted, at {now}")

    patch.setattr(NicTurn, "on_report", fail)


def segments_in_c(daemon: Daemon) -> int:
    """Return the segments that C sent and received since the daemon's counters were read last."""
    counts = daemon.first.turn.c.counts
    return int(counts.host_segments_sent + counts.host_segments_received)


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[Callable[..., tuple[WiredNics, WiredNics]]]:
    """Make two pairs, one of a mode and one where Python takes every segment."""
    made: list[WiredNics] = []

    def make(mode: Mode = "whole", emulation: Mapping[str, str] | None = None) -> tuple[WiredNics, WiredNics]:
        made.extend((WiredNics(tmp_path, mode, emulation), WiredNics(tmp_path, "python", emulation)))
        return made[0], made[1]

    yield make
    for pair in made:
        pair.close()


def both(pairs: tuple[WiredNics, WiredNics], action: Callable[..., object], *args: object) -> None:
    """Do the same in both, and compare."""
    results = [action(pair, *args) for pair in pairs]
    assert results[0] == results[1]
    assert pairs[0].read == pairs[1].read
    for fast, slow in zip(pairs[0].states(), pairs[1].states(), strict=True):
        assert differences(fast, slow) == []


def each(pairs: tuple[WiredNics, ...], action: Callable[..., object], *args: object) -> None:
    """Do the same in both."""
    for pair in pairs:
        action(pair, *args)


def floats(rng: random.Random, count: int) -> bytes:
    return struct.pack(f"{count}f", *(rng.gauss(0, 0.01) for _ in range(count)))


def talk(two: tuple[WiredNics, ...], do: Callable[..., None], rng: random.Random) -> list[int]:
    """Have the applications of both write, read and tag at random. Return how many bytes each side wrote."""
    written = [0, 0]
    for _ in range(120):
        side, choice = rng.randrange(2), rng.random()
        if choice < 0.45:
            data = floats(rng, rng.choice((1, 16, 1000, 30_000)))
            counts = [pair.write(side, data) for pair in two]
            if len(set(counts)) > 1:
                each(two, WiredNics.turn, 400)
                counts = [count + pair.write(side, data[count:]) for pair, count in zip(two, counts, strict=True)]
            assert len(set(counts)) == 1
            written[side] += counts[0]
        elif choice < 0.8:
            do(two, WiredNics.receive, side, rng.choice((64, 5000, 1 << 20)))
        elif choice < 0.83 and written[side] % 4 == 0:
            do(two, WiredNics.option, side, socket.IPPROTO_IP, socket.IP_TOS, rng.choice((0, TOS)))
        do(two, WiredNics.turn, rng.choice((1, 1, 3, 60)))
    return written


@pytest.mark.parametrize("mode", ["whole", "link"])
@pytest.mark.parametrize("seed", range(6))
def test_turns_in_c_leave_the_same_flows(
    pairs: Callable[..., tuple[WiredNics, WiredNics]], seed: int, mode: Mode
) -> None:
    two = pairs(mode)
    written = talk(two, both, random.Random(seed))
    for _ in range(60):
        for side in range(2):
            both(two, WiredNics.receive, side, 1 << 20)
        both(two, WiredNics.turn, 3)
    assert [len(two[0].read[1 - side]) for side in range(2)] == written
    assert all(segments_in_c(daemon) > 10 for daemon in two[0].daemons)
    assert two[0].counters(0) == two[1].counters(0)
    assert two[0].counters(1) == two[1].counters(1)


@pytest.mark.parametrize("mode", ["whole", "link"])
@pytest.mark.parametrize("seed", range(4))
def test_turns_through_an_emulated_link_lose_nothing(
    pairs: Callable[..., tuple[WiredNics, WiredNics]], seed: int, mode: Mode
) -> None:
    """A turn that C hands to Python asks the link for space again, so super-segments may end elsewhere."""
    two = pairs(mode, {"rate": "50mbit"})
    written = talk(two, each, random.Random(seed))
    for _ in range(150):
        for side in range(2):
            each(two, WiredNics.receive, side, 1 << 20)
        each(two, WiredNics.turn, 3)
    assert [len(two[0].read[1 - side]) for side in range(2)] == written
    assert two[0].read == two[1].read
    assert all(segments_in_c(daemon) > 10 for daemon in two[0].daemons)
    for pair in two:
        for index in range(2):
            counters = pair.counters(index)
            assert counters["emulated_dropped_full"] == counters["link_dropped_full"] == 0
            assert counters["emulated_sent"] == counters["link_sent_frames"]
    assert [daemon.first.turn.c.path_count for daemon in two[0].daemons] == [int(mode == "whole")] * 2


def test_what_waits_in_an_emulated_link_goes_where_its_peer_is_by_then(tmp_path: Path) -> None:
    with (
        contextlib.closing(WiredNics(tmp_path, "whole", {"delay": "2ms"})) as nics,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as moved,
    ):
        moved.bind(("127.0.0.1", 0))
        nics.turn(20)
        nics.write(0, bytes(100))
        nics.turn()
        nics.daemons[0].add_peer(nics.daemons[1].config.address, moved.getsockname())
        nics.turn(10)
        assert len(moved.recv(1 << 16, socket.MSG_DONTWAIT)) > 100


BAD = {"delay": "300us", "jitter": "200us", "loss": "2%", "duplicate": "2%", "reorder": "3%", "corrupt": "1%"}


@pytest.mark.parametrize("emulation", [BAD, {**BAD, "rate": "50mbit"}], ids=["unlimited", "rate"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("key", ["", "0123456789abcdef" * 4], ids=["plain", "sealed"])
def test_turns_over_a_bad_link_deliver_every_byte(
    tmp_path: Path, seed: int, emulation: Mapping[str, str], key: str
) -> None:
    """C itself passes the frames on, whatever happens to them on the way."""
    with contextlib.closing(WiredNics(tmp_path, "whole", emulation, key=key)) as nics:
        written = talk((nics,), each, random.Random(seed))
        for _ in range(3000):
            for side in range(2):
                nics.receive(side, 1 << 20)
            if [len(nics.read[1 - side]) for side in range(2)] == written:
                break
            nics.turn(3)
        assert [len(nics.read[1 - side]) for side in range(2)] == written
        nics.turn(20)
        in_c = [segments_in_c(daemon) for daemon in nics.daemons]
        counters = [nics.counters(index) for index in range(2)]
        for name in ("lost", "duplicated", "reordered", "corrupted"):
            assert all(each[f"emulated_{name}"] > 0 for each in counters)
        for each_side in counters:
            arrived = each_side["emulated_sent"] - each_side["emulated_lost"] + each_side["emulated_duplicated"]
            assert each_side["link_sent_frames"] == arrived
        assert not any(daemon.first.turn.c.in_python for daemon in nics.daemons)
        assert all(segments > 10 for segments in in_c)


@pytest.mark.parametrize("mode", ["whole", "link", "python"])
@pytest.mark.parametrize("seed", range(4))
def test_streams_of_a_nic_to_itself_lose_nothing(tmp_path: Path, seed: int, mode: Mode) -> None:
    with contextlib.closing(WiredNics(tmp_path, mode, loopback=True)) as nics:
        written = talk((nics,), each, random.Random(seed))
        for _ in range(60):
            for side in range(2):
                nics.receive(side, 1 << 20)
            nics.turn(3)
        assert [len(nics.read[1 - side]) for side in range(2)] == written
        in_c = segments_in_c(nics.daemons[0])
        counters = nics.counters(0)
        assert counters["loopback_frames"] == counters["tx_frames"] == counters["rx_frames"]
        assert counters["loopback_wire_bytes"] == counters["tx_wire_bytes"] == counters["rx_wire_bytes"]
        assert counters["segments_sent"] == counters["segments_received"]
        assert counters["link_sent_frames"] == 0
        assert in_c > 0.7 * 2 * counters["segments_sent"] if mode != "python" else in_c == 0


def test_an_application_that_closes_its_end_ends_the_stream(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    for pair in two:
        pair.write(0, bytes(100_000))
    both(two, WiredNics.turn, 5)
    for pair in two:
        pair.ends[1].close()
    both(two, WiredNics.turn, 5)
    for _ in range(3):
        both(two, WiredNics.receive, 1, 1 << 20)
        both(two, WiredNics.turn, 5)
    assert len(two[0].read[1]) == 100_000


def test_a_slow_reader_sees_the_end_behind_the_last_byte(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    for pair in two:
        for _ in range(20):
            pair.write(0, bytes(100_000))
            pair.turn()
        pair.ends[1].shutdown(socket.SHUT_WR)
        pair.turn(20)
    assert two[0].states()[1]["rcv.eof"]
    for pair in two:
        for _ in range(200):
            pair.receive(1, 1 << 20)
            pair.turn()
        assert pair.ends[2].recv(1) == b""
    assert len(two[0].read[1]) == len(two[1].read[1]) > 500_000


def test_a_reader_that_is_gone_resets_the_connection(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    for pair in two:
        pair.write(0, bytes(100_000))
        pair.turn(2)
        pair.ends[2].close()
    both(two, WiredNics.turn, 5)
    for pair in two:
        with contextlib.suppress(ConnectionError):
            pair.write(0, bytes(1000))
    both(two, WiredNics.turn, 10)


def test_a_close_with_unread_bytes_that_a_read_notices_is_no_end(tmp_path: Path) -> None:
    """The NIC reads the end of what is written before the poller says that all is closed: no FIN is sent."""
    with contextlib.closing(WiredNics(tmp_path, "whole")) as nics:
        for _ in range(20):
            nics.write(0, bytes(100_000))
            nics.turn()
        [peer] = nics.daemons[0].first.host.tcp.connections
        daemon = nics.daemons[1]
        stream = daemon.first.streams.table.streams[nics.streams[1]]
        before = -1
        while len(nics.read[1]) != before:
            before = len(nics.read[1])
            nics.receive(1, 1 << 20)
        assert daemon.first.host.tcp.connections[0].rcv.unread
        nics.ends[2].close()
        stream.readable = True
        lib.sn_turn_pull(daemon.first.turn.c, stream.c)
        nics.turn_with(1, [])
        nics.turn(3)
        assert (peer.error, peer.rcv.fin) == (errno.ECONNRESET, None)


def test_the_turn_keeps_nothing_of_a_refused_connection(tmp_path: Path) -> None:
    with contextlib.closing(WiredNics(tmp_path, "whole")) as nics:
        opened = nics.call(0, control.Connect(IPS[1], PORT + 1), nics._end())
        assert isinstance(opened, control.Opened)
        stream = nics.daemons[0].first.streams.table.streams[opened.stream]
        assert stream.in_turn
        nics.turn(20)
        assert stream.connection is None
        assert not stream.in_turn


def test_an_error_between_two_turns_ends_nothing(
    pairs: Callable[..., tuple[WiredNics, WiredNics]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs()[0]
    with monkeypatch.context() as broken:
        break_attention(broken)
        for _ in range(5):
            for daemon in pair.daemons:
                daemon.first.turn.c.attends = True
            pair.write(0, bytes(50_000))
            pair.turn(2)
            pair.receive(1, 1 << 20)
    for _ in range(20):
        pair.turn(2)
        pair.receive(1, 1 << 20)
    assert len(pair.read[1]) == 250_000
    assert sum(pair.daemons[index].counters()["failures"] for index in range(2)) > 0


def test_strangers_and_malformed_datagrams_are_counted(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for pair in two:
            wire = pair.daemons[1]._wire
            assert isinstance(wire, VxlanLink)
            stranger.sendto(b"nothing of ours", wire.address)
            pair.write(0, bytes(5000))
            pair.turn(3)
            pair.receive(1, 1 << 20)
    for pair in two:
        assert pair.counters(1)["link_dropped_unknown_source"] == 1
        assert len(pair.read[1]) == 5000


def test_a_reader_that_keeps_up_wakes_no_nic(tmp_path: Path) -> None:
    """The NIC hears of space in the socket only while bytes wait for it."""
    with contextlib.closing(WiredNics(tmp_path, "whole")) as nics:
        epoll = nics.daemons[1]._selector.epoll
        for _ in range(20):
            nics.write(0, bytes(100_000))
            nics.turn()
        nics.receive(1, 1 << 20)
        assert [mask for _, mask in epoll.poll(0)] == [select.EPOLLOUT]
        for _ in range(200):
            nics.receive(1, 1 << 20)
            nics.turn()
        assert len(nics.read[1]) > 500_000
        nics.write(0, bytes(1000))
        nics.turn(3)
        nics.receive(1, 1 << 20)
        assert epoll.poll(0) == []


def test_what_is_more_than_one_read_is_read_on(tmp_path: Path) -> None:
    """The poller tells of it once."""
    with contextlib.closing(WiredNics(tmp_path, "whole")) as nics:
        nics.ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        written = nics.write(0, bytes(1 << 20))
        assert written > lib.SN_READ_BYTES
        for _ in range(30):
            nics.turn()
            nics.receive(1, 1 << 20)
        assert len(nics.read[1]) == written


def test_data_of_an_open_connection_asks_nothing_of_python(tmp_path: Path) -> None:
    """A look at a batch, a run or a flow in Python would move the same bytes, and cost many times as much."""
    with contextlib.closing(WiredNics(tmp_path, "whole")) as nics:
        for side in range(2):
            nics.write(side, bytes(30_000))  # both learn where the other is
        nics.turn(30)
        asked: list[str] = []

        def noting(name: str, answer: Callable[..., object]) -> Callable[..., object]:
            def note(*arguments: object) -> object:
                asked.append(name)
                return answer(*arguments)

            return note

        for daemon in nics.daemons:
            for name in ("on_receive", "on_run", "on_output", "on_prepare", "on_send"):
                setattr(daemon.first.turn, name, noting(name, getattr(daemon.first.turn, name)))
        for side in range(2):
            nics.receive(side, 1 << 20)
        written = 0
        for _ in range(20):
            written += nics.write(0, bytes(20_000))
            nics.turn(3)
            nics.receive(1, 1 << 20)
        assert written == 400_000
        assert len(nics.read[1]) == 430_000
        assert asked == []
