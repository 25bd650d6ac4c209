"""Turns over an encrypted wire: C seals and opens what crosses it, and Python decides about sessions.

Real sockets, on a clock of the test.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softnic._native import ffi, lib
from softnic.link.secure import handshake
from softnic.link.secure import session as session_limits
from softnic.link.secure.channel import SecureChannel, SecureCounters
from softnic.link.secure.handshake import Handshake
from softnic.link.secure.hello import SecureHello
from softnic.link.secure.libcrypto import cipher
from softnic.link.secure.session import SecureSession
from softnic.link.udp import VxlanLink
from softnicd.turn import NicTurn
from tests.daemon.test_turn import both, each, segments_in_c, talk
from tests.daemon.wired_nics import Mode, WiredNics
from tests.link.refusing_kernel import SEED, built, run_with

KEY = "0123456789abcdef" * 4


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., WiredNics]]:
    """Make a pair of NICs with a key."""
    made: list[WiredNics] = []
    digits = secrets.token_hex(32)

    def pair(mode: Mode = "whole", rate: str | None = None) -> WiredNics:
        made.append(WiredNics(tmp_path, mode, {"rate": rate} if rate else {}, key=digits))
        return made[-1]

    yield pair
    for nics in made:
        nics.close()


def wire_of(nics: WiredNics, index: int) -> VxlanLink:
    wire = nics.daemons[index]._wire
    assert isinstance(wire, VxlanLink)
    return wire


def channel_of(nics: WiredNics, index: int) -> SecureChannel:
    channel = wire_of(nics, index)._channel
    assert channel is not None
    return channel


def session_of(nics: WiredNics, index: int) -> SecureSession:
    """Return the session with which a NIC seals."""
    (state,) = channel_of(nics, index)._states.values()
    session = state.handshake.sending(nics.daemons[index].time)
    assert session is not None
    return session


def drain(nics: WiredNics, count: int = 60) -> None:
    for _ in range(count):
        for side in range(2):
            nics.receive(side, 1 << 20)
        nics.turn(3)


@pytest.mark.parametrize("seed", range(4))
def test_flows_are_the_same_as_where_python_takes_every_segment(make: Callable[..., WiredNics], seed: int) -> None:
    two = make(), make("python")
    written = talk(two, both, random.Random(seed))
    for _ in range(60):
        for side in range(2):
            both(two, WiredNics.receive, side, 1 << 20)
        both(two, WiredNics.turn, 3)
    assert [len(two[0].read[1 - side]) for side in range(2)] == written
    assert all(segments_in_c(daemon) > 10 for daemon in two[0].daemons)
    for index in range(2):
        assert two[0].counters(index) == two[1].counters(index)
        assert channel_of(two[0], index).counted == SecureCounters(sessions=1)


@pytest.mark.parametrize("seed", range(4))
def test_an_emulated_link_loses_nothing(make: Callable[..., WiredNics], seed: int) -> None:
    nics = make(rate="50mbit")
    written = talk((nics,), each, random.Random(seed))
    drain(nics, 150)
    assert [len(nics.read[1 - side]) for side in range(2)] == written
    for index in range(2):
        counters = nics.counters(index)
        assert counters["emulated_dropped_full"] == counters["link_dropped_full"] == 0
        assert counters["emulated_sent"] == counters["link_sent_frames"]
        assert counters["emulated_sent"] == nics.counters(1 - index)["link_received_frames"]


@pytest.mark.parametrize("rate", [None, "200mbit"])
def test_with_a_session_python_sees_no_frame(
    make: Callable[..., WiredNics], rate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nics = make(rate=rate)
    nics.write(0, bytes(50_000))
    nics.turn(60)

    def fail(*_arguments: object) -> int:
        raise AssertionError("Python was asked")

    for name in ("encrypt", "open", "examine"):
        monkeypatch.setattr(SecureChannel, name, fail)
    for name in ("on_receive", "on_send", "on_release"):
        monkeypatch.setattr(NicTurn, name, fail)
    for _ in range(40):
        nics.write(0, bytes(50_000))
        nics.turn(3)
        nics.receive(1, 1 << 20)
    assert len(nics.read[1]) > 500_000
    assert all(daemon.counters()["failures"] == 0 for daemon in nics.daemons)


class TestSessions:
    def replace(self, nics: WiredNics) -> int:
        """Have sessions replaced under running streams. Return the number of the second NIC's."""
        talk((nics,), each, random.Random(1))
        for _ in range(100):
            nics.write(0, bytes(20_000))
            nics.write(1, bytes(20_000))
            nics.turn(2)
            nics.receive(0, 1 << 20)
            nics.receive(1, 1 << 20)
        drain(nics)
        for index in range(2):
            counted = channel_of(nics, index).counted
            assert counted == SecureCounters(sessions=counted.sessions)
            assert nics.counters(index)["link_sent_frames"] == nics.counters(1 - index)["link_received_frames"]
        return channel_of(nics, 1).counted.sessions

    @pytest.mark.parametrize("rate", [None, "200mbit"])
    def test_are_replaced_in_time(
        self, make: Callable[..., WiredNics], rate: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session_limits, "REKEY_S", 0.05)
        monkeypatch.setattr(session_limits, "EXPIRE_S", 0.1)
        assert self.replace(make(rate=rate)) > 4

    def test_are_replaced_before_their_counters_end(
        self, make: Callable[..., WiredNics], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However few counters are left, none beyond the limit is used: frames wait for the next session."""
        made: list[SecureSession] = []

        class Noted(SecureSession):
            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments)  # type: ignore[arg-type]
                made.append(self)

        monkeypatch.setattr(handshake, "SecureSession", Noted)
        monkeypatch.setattr(session_limits, "REKEY_FRAMES", 100)
        monkeypatch.setattr(session_limits, "LIMIT_FRAMES", 1000)
        assert self.replace(make()) > 4
        counters = [session.encryptor.counter for session in made]
        assert 100 <= max(counters) <= 1000

    @pytest.mark.parametrize("index", [0, 1])
    def test_an_expired_one_neither_seals_nor_opens(self, make: Callable[..., WiredNics], index: int) -> None:
        """Of the writer's NIC, or of the reader's. The other NIC still uses it."""
        nics = make()
        expired = session_of(nics, index)
        expired.c.expires_at = nics.daemons[index].time
        before = expired.encryptor.counter, expired.decryptor.window.next
        nics.write(0, bytes(20_000))
        drain(nics)
        assert len(nics.read[1]) == 20_000
        assert (expired.encryptor.counter, expired.decryptor.window.next) == before
        assert session_of(nics, index) is not expired

    def test_frames_wait_for_one_and_arrive(self, make: Callable[..., WiredNics]) -> None:
        """Both NICs have forgotten theirs, as after a long silence."""
        nics = make()
        for index in range(2):
            (state,) = channel_of(nics, index)._states.values()
            state.handshake.end()
        nics.write(0, bytes(20_000))
        drain(nics, 5)
        assert len(nics.read[1]) == 20_000
        assert [channel_of(nics, index).counted for index in range(2)] == [SecureCounters(sessions=2)] * 2


def sealed(session: SecureSession, frame: bytes) -> bytes:
    """Return the datagram that a session's holder makes of a frame."""
    out, where, size = ffi.new("uint8_t[]", 4096), ffi.new("uint32_t[1]"), ffi.new("uint32_t[1]")
    assert lib.sn_encrypt(cipher(), session.encryptor, frame, [0], [len(frame)], 1, out, 4096, where, size) == 1
    return bytes(ffi.buffer(out, size[0]))


def hostile(nics: WiredNics) -> list[tuple[str, bytes]]:
    """Return datagrams that the second NIC drops, each with the counter for it."""
    session = session_of(nics, 0)
    good = sealed(session, bytes(60))
    stranger = good[:4] + bytes(4) + good[8:]
    (state,) = channel_of(nics, 1)._states.values()
    assert isinstance(state.handshake, Handshake)
    [pair] = state.handshake.pairs
    return [
        ("dropped_forged", good[:-1] + bytes([good[-1] ^ 1])),
        ("dropped_forged", good[:20] + bytes([good[20] ^ 1]) + good[21:]),
        ("dropped_replayed", sealed(session, b"")),
        ("dropped_plaintext", b"\x08\0\0\0\0\0\x01\0" + bytes(60)),
        ("dropped_malformed", b"\x11" + bytes(8)),
        ("dropped_malformed", b"\x12" + bytes(100)),
        ("dropped_no_session", stranger),
        ("dropped_wrong_key", SecureHello(b"s" * 32).pack(1, pair.hello_in[::-1])),
        ("dropped_hello", SecureHello(bytes(32), asks=True).pack(1, pair.hello_in)),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_each_hostile_datagram_from_the_peers_address_is_counted_and_the_stream_goes_on(
    make: Callable[..., WiredNics], seed: int
) -> None:
    nics, rng = make(), random.Random(seed)
    wire, there = wire_of(nics, 0), wire_of(nics, 1).address
    datagrams = hostile(nics) * 3
    rng.shuffle(datagrams)
    expected = SecureCounters(sessions=1)
    seen = set()
    with socket.socket(fileno=os.dup(wire.fileno())) as peer:
        for counter, datagram in datagrams:
            nics.write(0, rng.randbytes(20_000))
            peer.sendto(datagram, there)
            first_of_a_replay = counter == "dropped_replayed" and datagram not in seen
            seen.add(datagram)
            if not first_of_a_replay:
                setattr(expected, counter, getattr(expected, counter) + 1)
            nics.turn(3)
            nics.receive(1, 1 << 20)
    drain(nics, 10)
    assert channel_of(nics, 1).counted == expected
    assert len(nics.read[1]) == 20_000 * len(datagrams)
    assert nics.counters(1)["link_dropped_malformed"] == expected.dropped_malformed
    assert nics.counters(1)["link_dropped_unknown_source"] == 0


def test_a_replayed_batch_is_dropped_before_anything_in_it_is_looked_at(make: Callable[..., WiredNics]) -> None:
    nics = make()
    frames = [sealed(session_of(nics, 0), bytes([index]) * 60) for index in range(50)]
    before = nics.counters(1)["link_received_frames"]
    with socket.socket(fileno=os.dup(wire_of(nics, 0).fileno())) as peer:
        for _ in range(3):
            for datagram in frames:
                peer.sendto(datagram, wire_of(nics, 1).address)
            nics.turn(2)
    assert channel_of(nics, 1).counted.dropped_replayed == 100
    assert nics.counters(1)["link_received_frames"] == before + 50


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", ["", "100mbit"])
def test_what_the_kernel_refuses_is_sealed_again(tmp_path: Path, seed: int, rate: str) -> None:
    """In a process of its own, whose kernel takes only some datagrams, or none: with other counters, once, in order."""
    program = f"from tests.daemon.test_sealed_turn import stream_despite; stream_despite({str(tmp_path)!r}, {rate!r})"
    run_with(built(tmp_path), ["-c", program], **{SEED: str(seed + 1)})


def stream_despite(directory: str, rate: str) -> None:
    """Stream over a kernel that refuses frames."""
    with contextlib.closing(WiredNics(Path(directory), "whole", {"rate": rate} if rate else {}, key=KEY)) as nics:
        written = talk((nics,), each, random.Random(3))
        drain(nics, 200)
        assert [len(nics.read[1 - side]) for side in range(2)] == written
        for index in range(2):
            counters = nics.counters(index)
            assert counters["link_dropped_full"] == counters["link_dropped_send_error"] == 0
            assert counters["link_sent_frames"] == nics.counters(1 - index)["link_received_frames"]
            counted = channel_of(nics, index).counted
            assert counted == SecureCounters(sessions=counted.sessions)
