"""Encrypted datagrams over real UDP sockets on loopback, the clock in the test's hand."""

from __future__ import annotations

import os
import random
import select
import socket
from contextlib import ExitStack

import numpy as np
import pytest

from softnic import underlay
from softnic._native import lib
from softnic.link import udp
from softnic.link.forwarding import LinkPeer
from softnic.link.secure import channel as secure_channel
from softnic.link.secure import session
from softnic.link.secure.channel import EncryptionSettings, SecureCounters
from softnic.link.udp import VxlanLink
from softnic.packet.frames import Frames
from tests.link.doubles import BROADCAST, A, B, C, frame, numbered
from tests.link.sockets import BOTH_FAMILIES, VNI, endpoint, loopback, opened, plain_socket

HOSTS = BOTH_FAMILIES
KEY = bytes(range(32))


def peer_of(link: VxlanLink) -> LinkPeer:
    """Return the only peer of a link."""
    (peer,) = link._forwarding.peers
    return peer


class Node:
    """An encrypted wire, what it heard and what it said to people."""

    def __init__(self, stack: ExitStack, mac: bytes, key: bytes = KEY, seed: int = 0, bind: int = 0) -> None:
        self.mac = mac
        self.lines: list[str] = []
        encryption = EncryptionSettings(key, mac, random.Random(mac[-1] + 10 * seed).randbytes)
        self.link = VxlanLink(loopback(stack, bind), vni=VNI, encryption=encryption, log=self.lines.append)
        stack.callback(self.link.close)
        self.heard: list[bytes] = []

    def meet(self, other: Node) -> None:
        self.link.add_peer(other.mac, other.link.address)

    @property
    def counted(self) -> SecureCounters:
        assert self.link._channel is not None
        return self.link._channel.counted


def socket_of(node: Node) -> socket.socket:
    """The UDP socket of a node's link, to be closed by the caller."""
    return socket.socket(fileno=os.dup(node.link.fileno()))


def deliver(*nodes: Node, now: float = 0.0) -> None:
    """Until nothing is on its way: loopback has delivered when send returns."""
    while select.select([node.link for node in nodes], [], [], 0)[0]:
        for node in nodes:
            while (frames := node.link.receive(now)) is not None:
                node.heard += frames


@pytest.fixture
def pair(stack: ExitStack) -> tuple[Node, Node]:
    a, b = Node(stack, A), Node(stack, B)
    a.meet(b)
    b.meet(a)
    return a, b


Pair = tuple[Node, Node]


@pytest.fixture
def joined(pair: Pair) -> Pair:
    """With a session, which both know of."""
    a, b = pair
    a.link.send(Frames.of([frame(B, A, b"first")]), 0.0)
    deliver(a, b)
    assert b.heard.pop() == frame(B, A, b"first")
    return pair


class TestFrames:
    def test_cross_in_order_with_every_byte(self, pair: Pair) -> None:
        a, b = pair
        frames = numbered(0, 60)
        a.link.send(frames, 0.0)  # waits for a session
        assert a.link.counted.sent_frames == 0
        deliver(a, b)
        more = [frame(B, A, bytes([index]) * index) for index in range(100)]
        a.link.send(Frames.of(more), 0.0)
        b.link.send(Frames.of([frame(A, B, b"back")]), 0.0)
        deliver(a, b)
        assert b.heard == [*frames, *more]
        assert a.heard == [frame(A, B, b"back")]
        assert a.link.counted.sent_bytes == b.link.counted.received_bytes == sum(map(len, b.heard))
        assert (a.counted, b.counted) == (SecureCounters(sessions=1), SecureCounters(sessions=1))

    def test_what_is_sent_is_not_changed_where_it_lies(self, joined: Pair) -> None:
        """Captures hold it, and a group address has it encrypted for each peer."""
        frames = numbered(0, 50)
        before = frames.data.copy()
        joined[0].link.send(frames, 0.0)
        assert np.array_equal(frames.data, before)

    def test_nobody_reads_them_on_their_way(self, stack: ExitStack, joined: Pair) -> None:
        a, _ = joined
        tap = plain_socket(stack)
        peer = peer_of(a.link)
        peer.address, peer.endpoint = tap.getsockname(), endpoint(tap.getsockname())
        secret = b"a gradient" * 20
        a.link.send(Frames.of([frame(B, A, secret)] * 2), 0.0)
        one, other = tap.recv(2000), tap.recv(2000)
        assert one[:4] == b"\x11" + VNI.to_bytes(3, "big")
        assert len(one) == len(frame(B, A, secret)) + secure_channel.OVERHEAD
        assert secret[:8] not in one
        assert one[16:] != other[16:]

    def test_a_group_address_reaches_all_peers(self, stack: ExitStack, joined: Pair) -> None:
        a, b = joined
        c = Node(stack, C)
        a.meet(c)
        c.meet(a)
        a.link.send(Frames.of([frame(BROADCAST, A, b"all")]), 0.0)
        deliver(a, b, c)
        assert b.heard == c.heard == [frame(BROADCAST, A, b"all")]

    def test_a_full_socket_keeps_them(self, joined: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b = joined
        send = lib.sn_udp_send
        script = iter([2, -11])

        class Full:
            def sn_udp_send(self, *arguments: object) -> int:
                allowed = next(script, None)
                if allowed is None:
                    return int(send(*arguments))
                return allowed if allowed < 0 else int(send(*arguments[:-2], allowed, arguments[-1]))

            def __getattr__(self, name: str) -> object:
                return getattr(lib, name)

        monkeypatch.setattr(udp, "lib", Full())
        frames = numbered(0, 10)
        a.link.send(frames, 0.0)
        assert a.link.tx_space(0.0) == 0
        a.link.advance(1.0)
        deliver(a, b)
        assert b.heard == list(frames)


class TestSessions:
    def test_frames_wait_for_one_up_to_a_bound_and_not_for_ever(self, stack: ExitStack) -> None:
        a = Node(stack, A)
        a.link.add_peer(B, plain_socket(stack).getsockname())
        a.link.send(numbered(0, 50), 0.0)
        a.link.send(numbered(50, 50), 0.0)
        assert a.counted == SecureCounters(dropped_waiting=50)
        now = 0.0
        while (due := a.link.next_time()) is not None:
            now = due
            a.link.advance(now)
        assert 5.0 < now < 15.0
        assert a.counted == SecureCounters(dropped_waiting=100)

    def test_a_frame_shows_that_the_peer_has_the_session(self, pair: Pair) -> None:
        """Its hello that says so is lost."""
        a, b = pair
        a.link.send(numbered(0, 1), 0.0)
        for node in (b, a, b):
            while (frames := node.link.receive(0.0)) is not None:
                node.heard += frames
        with socket_of(a) as lost:
            assert lost.recv(2000)[0] == lib.SN_SECURE_HELLO
        assert b.heard == list(numbered(0, 1))
        assert a.link.next_time() is not None  # the hello that is to be repeated
        b.link.send(Frames.of([frame(A, B, b"shown")]), 0.0)
        deliver(a)
        assert a.heard == [frame(A, B, b"shown")]
        assert a.link.next_time() is None

    def test_a_restarted_node_is_met_anew_at_once(self, stack: ExitStack, joined: Pair) -> None:
        a, b = joined
        port = b.link.address[1]
        b.link.close()
        reborn = Node(stack, B, seed=1, bind=port)
        reborn.meet(a)
        a.link.send(Frames.of([frame(B, A, b"lost")]), 1.0)
        deliver(a, reborn, now=1.0)
        assert reborn.counted.dropped_no_session == 1
        a.link.send(Frames.of([frame(B, A, b"seen")]), 1.0)
        deliver(a, reborn, now=1.0)
        assert reborn.heard == [frame(B, A, b"seen")]

    def test_frames_that_wait_for_a_peer_reconfigured_amid_the_handshake_are_counted(
        self, stack: ExitStack, pair: Pair
    ) -> None:
        """The frames and the attempts end with the old address; the handshake with the new one starts afresh."""
        a, b = pair
        a.link.add_peer(B, plain_socket(stack).getsockname())
        a.link.send(numbered(0, 3), 0.0)
        assert a.link.next_time() is not None
        a.meet(b)
        assert a.counted == SecureCounters(dropped_waiting=3)
        assert a.link.next_time() is None
        a.link.advance(1.0)
        a.link.send(numbered(3, 1), 1.0)
        deliver(a, b, now=1.0)
        assert b.heard == list(numbered(3, 1))
        assert a.counted == SecureCounters(sessions=1, dropped_waiting=3)

    def test_a_session_that_comes_about_while_its_peer_is_reconfigured_is_not_used(
        self, stack: ExitStack, pair: Pair
    ) -> None:
        """The answer to a hello arrives when its sender has moved: it is foreign, and nothing goes to where it was."""
        a, b = pair
        a.link.send(numbered(0, 1), 0.0)
        while (frames := b.link.receive(0.0)) is not None:  # b answers
            b.heard += frames
        moved = plain_socket(stack)
        a.link.add_peer(B, moved.getsockname())
        deliver(a, b)
        assert b.heard == []
        assert a.link.counters()["link_dropped_unknown_source"] >= 1
        assert a.counted == SecureCounters(dropped_waiting=1)

    def test_a_running_stream_goes_from_one_to_the_next_without_loss(self, joined: Pair) -> None:
        a, b = joined
        for step in range(300):
            now = float(step)
            a.link.send(numbered(step, 1), now)
            b.link.send(Frames.of([frame(A, B, step.to_bytes(4, "big"))]), now)
            deliver(a, b, now=now)
        assert b.heard == list(numbered(0, 300))
        assert len(a.heard) == 300
        assert a.counted.sessions == 1 + int(299 // session.REKEY_S)
        assert not any(list(vars_of(a.counted).values())[1:])

    def test_one_node_has_one_address(self, joined: Pair) -> None:
        a, b = joined
        with pytest.raises(OSError, match="is the address of another node: with a key, each node needs its own"):
            a.link.add_peer(C, b.link.address)
        a.link.add_peer(B, b.link.address)


def vars_of(counted: SecureCounters) -> dict[str, int]:
    return {name: getattr(counted, name) for name in counted.__slots__}


def recorded(stack: ExitStack, joined: Pair, *frames: bytes) -> tuple[list[bytes], socket.socket]:
    """Datagrams that A made for B and that did not get there, and the socket that now has A's address."""
    a, b = joined
    tap = plain_socket(stack)
    peer = peer_of(a.link)
    peer.address, peer.endpoint = tap.getsockname(), endpoint(tap.getsockname())
    a.link.send(Frames.of(frames), 0.0)
    datagrams = [tap.recv(2000) for _ in frames]
    address = a.link.address
    a.link.close()
    attacker = plain_socket(stack, *address)
    attacker.connect(b.link.address)
    return datagrams, attacker


class TestAttackers:
    """Each has the peer's very address."""

    def test_a_replay_is_dropped(self, stack: ExitStack, joined: Pair) -> None:
        b = joined[1]
        (datagram,), attacker = recorded(stack, joined, frame(B, A, b"once"))
        for _ in range(3):
            attacker.send(datagram)
        deliver(b)
        assert b.heard == [frame(B, A, b"once")]
        assert b.counted.dropped_replayed == 2

    def test_so_is_what_was_altered(self, stack: ExitStack, joined: Pair) -> None:
        b = joined[1]
        (datagram,), attacker = recorded(stack, joined, frame(B, A, b"once"))
        for at in (10, 20, len(datagram) - 1):
            attacker.send(datagram[:at] + bytes([datagram[at] ^ 1]) + datagram[at + 1 :])
        deliver(b)
        assert b.heard == []
        assert b.counted.dropped_forged == 3

    def test_and_what_is_not_sealed(self, stack: ExitStack, joined: Pair) -> None:
        b = joined[1]
        _, attacker = recorded(stack, joined, frame(B, A))
        for _ in range(2):
            attacker.send(b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0" + frame(B, A, b"plain"))
        deliver(b)
        assert b.heard == []
        assert b.counted.dropped_plaintext == 2
        assert len(b.lines) == 1
        assert "has no key: its unencrypted datagrams are dropped" in b.lines[0]

    def test_a_restarted_node_takes_nothing_that_was_recorded_before(self, stack: ExitStack, joined: Pair) -> None:
        b = joined[1]
        datagrams, attacker = recorded(stack, joined, *[frame(B, A, bytes([index])) for index in range(5)])
        port = b.link.address[1]
        b.link.close()
        reborn = Node(stack, B, seed=1, bind=port)
        reborn.link.add_peer(A, attacker.getsockname())
        for datagram in datagrams:
            attacker.send(datagram)
        deliver(reborn)
        assert reborn.heard == []
        assert reborn.counted == SecureCounters(dropped_no_session=5)

    def test_made_up_hellos_do_not_keep_a_new_session_from_being_made(self, joined: Pair) -> None:
        a, b = joined
        with socket_of(a) as sender:
            for _ in range(200):
                sender.sendto(b"\x10" + VNI.to_bytes(3, "big") + bytes(84), b.link.address)
                deliver(b, now=1.0)
        assert b.counted.dropped_wrong_key == 200
        assert len(b.lines) == 1
        now = session.REKEY_S
        a.link.send(Frames.of([frame(B, A, b"on")]), now)
        deliver(a, b, now=now)
        assert b.counted.sessions == 2

    def test_recorded_hellos_are_looked_at_so_many_a_second(self, stack: ExitStack, pair: Pair) -> None:
        """Which is what they can cost: each has an answer, and no other effect."""
        a, b = pair
        tap = plain_socket(stack)
        a.link.add_peer(B, tap.getsockname())
        a.link.send(Frames.of([frame(B, A)]), 0.0)
        hello = tap.recv(2000)
        with socket_of(a) as sender:
            for _ in range(100):
                sender.sendto(hello, b.link.address)
                deliver(b, now=1.0)
            assert b.counted == SecureCounters(dropped_hello=100 - secure_channel.HELLOS_PER_S)
            sender.sendto(hello, b.link.address)
            deliver(b, now=2.0)
        assert b.counted == SecureCounters(dropped_hello=100 - secure_channel.HELLOS_PER_S)

    def test_recorded_hellos_do_not_keep_a_fresh_one_out(self, stack: ExitStack, pair: Pair) -> None:
        """The budget of what may be recorded is exhausted; the answer to this node's own share needs none."""
        a, b = pair
        tap = plain_socket(stack)
        a.link.add_peer(B, tap.getsockname())
        a.link.send(Frames.of([frame(B, A, b"lost")]), 0.0)
        hello = tap.recv(2000)
        a.meet(b)
        with socket_of(a) as sender:
            for _ in range(100):
                sender.sendto(hello, b.link.address)
                deliver(b, now=1.0)
            a.link.send(Frames.of([frame(B, A, b"through")]), 1.0)
            deliver(a, b, now=1.0)
        assert b.heard[-1] == frame(B, A, b"through")
        assert b.counted.sessions == 1

    def test_nor_a_node_that_was_started_again(self, stack: ExitStack, pair: Pair) -> None:
        """Its first hello finds no room among those recorded of its earlier life. What its peer asks of its own it
        answers, and is let in."""
        a, b = pair
        tap = plain_socket(stack)
        a.link.add_peer(B, tap.getsockname())
        a.link.send(Frames.of([frame(B, A)]), 0.0)
        hello = tap.recv(2000)
        port = a.link.address[1]
        a.link.close()
        reborn = Node(stack, A, seed=1, bind=port)
        reborn.meet(b)
        with socket_of(reborn) as sender:
            for second in range(1, 4):
                for _ in range(100):
                    sender.sendto(hello, b.link.address)
                    deliver(b, now=float(second))
                reborn.link.advance(float(second))
                reborn.link.send(Frames.of([frame(B, A, bytes([second]))]), float(second))
                deliver(reborn, b, now=float(second))
        assert b.heard[-1] == frame(B, A, b"\x03")
        assert 1 <= b.counted.sessions <= 3
        assert b.counted.dropped_hello >= 3 * (100 - 2 * secure_channel.HELLOS_PER_S)

    def test_nothing_is_learned_from_what_was_dropped(self, stack: ExitStack, joined: Pair) -> None:
        """Beside the frame of another peer, in the same batch."""
        a, b = joined
        c = Node(stack, C)
        b.meet(c)
        a.link.send(Frames.of([frame(B, A, b"good")]), 0.0)
        with socket_of(c) as sender:
            sender.sendto(b"\x11" + bytes(60), b.link.address)
        deliver(b)
        assert b.heard == [frame(B, A, b"good")]
        assert b.counted.dropped_no_session == 1
        assert b.link._forwarding.find(bytes(6)) is None

    def test_noise_is_counted(self, stack: ExitStack, joined: Pair) -> None:
        b = joined[1]
        _, attacker = recorded(stack, joined, frame(B, A))
        noise = [b"", b"\x11", b"\x00" * 100, b"\x11" + bytes(100), b"\x10" + bytes(500)]
        for each in noise:
            attacker.send(each)
        deliver(b)
        assert sum(vars_of(b.counted).values()) - b.counted.sessions + b.link.counted.dropped_malformed == len(noise)


class TestWrongKeys:
    def test_are_counted_and_named(self, stack: ExitStack) -> None:
        a, b = Node(stack, A), Node(stack, B, KEY[::-1])
        a.meet(b)
        b.meet(a)
        a.link.send(numbered(0, 1), 0.0)
        deliver(a, b)
        assert b.heard == []
        assert b.counted.dropped_wrong_key == 1
        name = underlay.text(a.link.address)
        assert b.lines == [f"{name} has another key than this NIC, or is another node: its datagrams are dropped"]

    def test_a_node_at_another_nodes_address_is_told_apart(self, stack: ExitStack) -> None:
        a, c = Node(stack, A), Node(stack, C)
        a.link.add_peer(B, c.link.address)
        c.meet(a)
        a.link.send(numbered(0, 1), 0.0)
        deliver(a, c)
        assert c.heard == []
        assert c.counted.dropped_wrong_key == 1

    def test_a_nic_without_one_drops_what_is_sealed_and_says_why(self, stack: ExitStack) -> None:
        a = Node(stack, A)
        lines: list[str] = []
        b = VxlanLink(loopback(stack), vni=VNI, log=lines.append)
        stack.callback(b.close)
        a.link.add_peer(B, b.address)
        b.add_peer(A, a.link.address)
        a.link.send(numbered(0, 1), 0.0)
        assert b.receive(0.0) is None
        assert b.counted.dropped_malformed == 1
        assert lines == ["a peer encrypts its datagrams and this NIC has no key: they are dropped"]

    def test_and_is_not_heard_by_one_that_has_one(self, stack: ExitStack) -> None:
        a, b = opened(stack), Node(stack, B)
        a.add_peer(B, b.link.address)
        b.link.add_peer(A, a.address)
        a.send(numbered(0, 3), 0.0)
        deliver(b)
        assert b.heard == []
        assert b.counted == SecureCounters(dropped_plaintext=3)


def test_counters_are_there_with_a_key_only(stack: ExitStack) -> None:
    assert "link_dropped_forged" in Node(stack, A).link.counters()
    assert "link_dropped_forged" not in opened(stack).counters()
