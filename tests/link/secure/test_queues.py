"""Sealed wires of NICs with several queues: one handshake for all, and each datagram opened by its own queue.

Real sockets on loopback, the clock and the threads of the queues in the test's hand.
"""

from __future__ import annotations

import os
import random
import select
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from softnic._native import ffi, lib
from softnic.link.secure import handshake, session
from softnic.link.secure.channel import EncryptionSettings, SecureChannel, SecureCounters
from softnic.link.secure.followed import FollowedHandshake
from softnic.link.secure.session import QueuePlace
from softnic.link.sockets import steer
from softnic.link.udp import VxlanLink
from softnic.packet import ipv4
from softnic.packet.frames import Frames
from tests.link.doubles import A, B
from tests.link.sockets import BOTH_FAMILIES, VNI, HostStack, loopback
from tests.nic.test_steering import frame as tcp_frame

HOSTS = BOTH_FAMILIES
KEY = bytes(range(32))
ADDRESS = {A: ipv4.address("10.77.0.1"), B: ipv4.address("10.77.0.2")}
FLOWS = range(40_000, 40_048)


class QueuedNode:
    """The wires of the queues of a NIC."""

    def __init__(self, stack: ExitStack, mac: bytes, queues: int, seed: int) -> None:
        self.mac, self.queues = mac, queues
        self.links: list[VxlanLink] = []
        self.posted: list[deque[Callable[[], object]]] = [deque() for _ in range(queues)]
        bind = loopback(stack)
        for number in range(queues):
            settings = EncryptionSettings(KEY, mac, random.Random(seed).randbytes, QueuePlace(number, queues))
            link = VxlanLink(bind, vni=VNI, encryption=settings, shared=queues > 1)
            stack.callback(link.close)
            self.links.append(link)
            bind = self.links[0].address
        self.heard: list[list[bytes]] = [[] for _ in range(queues)]
        if queues > 1:
            self._share()

    def _share(self) -> None:
        steer(self.links[0].fileno(), self.queues, sealed=True)
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self._inboxes = [ffi.gc(lib.sn_inbox_new(self._event), lib.sn_inbox_free) for _ in range(self.queues)]
        self._array = ffi.new("sn_inbox *[]", self._inboxes)
        first, *others = self.links
        for link in others:
            link.follow(first, self.posted[0].append, self._array)
        first.lead([(link, self.posted[number].append) for number, link in enumerate(others, 1)], self._array)

    def channel(self, queue: int) -> SecureChannel:
        channel = self.links[queue]._channel
        assert channel is not None
        return channel

    def meet(self, other: QueuedNode) -> None:
        for link in self.links:
            link.add_peer(other.mac, other.links[0].address)

    def queue_of(self, other: QueuedNode, port: int) -> int:
        return int(lib.sn_queue_of(ADDRESS[self.mac], ADDRESS[other.mac], port, 5000, self.queues))

    def frame(self, other: QueuedNode, port: int) -> bytes:
        """Return a frame of the flow that has this port at this end and 5000 at the other one."""
        data = tcp_frame(ADDRESS[self.mac], ADDRESS[other.mac], port, 5000)
        return other.mac + self.mac + data[12:]

    def send(self, other: QueuedNode, port: int, now: float, queue: int | None = None) -> bytes:
        """Send a frame of a flow by its queue, or by another one."""
        data = self.frame(other, port)
        queue = self.queue_of(other, port) if queue is None else queue
        self.links[queue].send(Frames.of([data]), now)
        return data

    def step(self, now: float, *, only: int | None = None) -> bool:
        """Do what each queue has to do. Return whether there was anything."""
        did = False
        for number, link in enumerate(self.links):
            if only is not None and number != only:
                continue
            while self.posted[number]:
                self.posted[number].popleft()()
                did = True
            link.advance(now)
            while select.select([link.fileno()], [], [], 0)[0]:
                did = True
                frames = link.receive(now)
                self.heard[number] += [bytes(each) for each in frames or ()]
            did |= self._take_passed(number, now)
        return did

    def _take_passed(self, queue: int, now: float) -> bool:
        """Open what other queues have passed on, as a turn does."""
        channel, size = self.channel(queue), ffi.new("uint64_t *")
        own = ffi.new("sn_datagrams *", channel.c.batch)
        taken = self.queues > 1 and bool(lib.sn_secure_take(channel.c, size))
        if taken:
            for _ in channel.open(now):
                self.links[queue].examine(now)
            batch = channel.c.batch
            for index in range(batch.received.frames):
                self.heard[queue].append(bytes(ffi.buffer(batch.data + batch.offsets[index], batch.lengths[index])))
        channel.c.batch = own[0]
        return taken

    def counted(self) -> SecureCounters:
        names = SecureCounters.__dataclass_fields__
        each = [self.channel(queue).counted for queue in range(self.queues)]
        return SecureCounters(**{name: sum(getattr(counted, name) for counted in each) for name in names})


def settle(*nodes: QueuedNode, now: float = 0.0) -> None:
    """Until nothing is on its way: loopback has delivered when send returns."""
    for _ in range(100):
        if not any([node.step(now) for node in nodes]):
            return
    raise AssertionError("it does not come to rest")


@pytest.fixture
def make(stack: ExitStack) -> Callable[[int, int], tuple[QueuedNode, QueuedNode]]:
    def pair(queues: int, others: int) -> tuple[QueuedNode, QueuedNode]:
        a, b = QueuedNode(stack, A, queues, 1), QueuedNode(stack, B, others, 2)
        a.meet(b)
        b.meet(a)
        return a, b

    return pair


Make = Callable[[int, int], tuple[QueuedNode, QueuedNode]]
NUMBERS = [(2, 2), (4, 4), (1, 4), (4, 1), (3, 2), (2, 8), (6, 4)]


def exchange(a: QueuedNode, b: QueuedNode, now: float) -> None:
    """Send a frame of each flow, both ways. Each arrives once, at its queue."""
    for one, other in ((a, b), (b, a)):
        sent: list[list[bytes]] = [[] for _ in range(other.queues)]
        for port in FLOWS:
            sent[other.queue_of(one, port)].append(one.send(other, port, now))
            settle(a, b, now=now)
        for queue, expected in enumerate(sent):
            assert sorted(other.heard[queue]) == sorted(expected)
            other.heard[queue].clear()


@pytest.mark.parametrize("numbers", NUMBERS)
def test_each_frame_is_opened_by_the_queue_of_its_flow(make: Make, numbers: tuple[int, int]) -> None:
    a, b = make(*numbers)
    exchange(a, b, 0.0)
    assert a.counted() == b.counted() == SecureCounters(sessions=1)
    assert not any(node.channel(queue).c.queues.passed for node in (a, b) for queue in range(node.queues))


@pytest.mark.parametrize("numbers", NUMBERS)
def test_no_two_datagrams_of_a_session_have_one_nonce(make: Make, numbers: tuple[int, int]) -> None:
    """Whichever queue sends them: also frames of flows that are not its own."""
    a, b = make(*numbers)
    a.send(b, FLOWS[0], 0.0)
    settle(a, b)
    counters = []
    for queue in range(a.queues):
        [state] = a.channel(queue)._states.values()
        for port in FLOWS[:8]:
            data = a.frame(b, port)
            out, where, size = ffi.new("uint8_t[]", 4096), ffi.new("uint32_t[1]"), ffi.new("uint32_t[1]")
            sender = state.handshake.sessions[0].encryptor
            what = (a.channel(queue)._cipher, sender, data, [0], [len(data)], 1, out, 4096, where, size)
            assert lib.sn_encrypt(*what) == 1
            counters.append(bytes(out[8:16]))
            lane = lib.sn_queue_of(ADDRESS[A], ADDRESS[B], port, 5000, lib.SN_FLOW_LANES)
            assert out[8] == (0 if a.queues == b.queues == 1 else lane << 3 | queue)
    assert len(set(counters)) == len(counters)


def intercepted(one: QueuedNode, other: QueuedNode, port: int, now: float) -> bytes:
    """Return the datagram of a frame, which `other` has received, too."""
    channel = one.channel(one.queue_of(other, port))
    one.send(other, port, now)
    [state] = channel._states.values()
    del state
    return bytes(ffi.buffer(channel.c.out + channel.c.offsets[0], channel.c.lengths[0]))


@pytest.mark.parametrize("numbers", [(2, 2), (1, 4), (6, 4)])
def test_a_replay_is_dropped_wherever_it_arrives(make: Make, numbers: tuple[int, int]) -> None:
    """A kernel that has joined datagrams, or does not steer, passes them to other queues."""
    a, b = make(*numbers)
    exchange(a, b, 0.0)
    datagram = intercepted(a, b, FLOWS[3], 0.0)
    settle(a, b)
    source = a.links[0].address
    for queue in range(b.queues):
        handed_to(b, queue, datagram, source)
        settle(a, b)
    assert sum(map(len, b.heard)) == 1
    assert b.counted() == SecureCounters(sessions=1, dropped_replayed=b.queues)


def handed_to(node: QueuedNode, queue: int, datagram: bytes, source: tuple[str, int]) -> None:
    """Have a queue find a datagram, whatever its flow, as if it had read it."""
    channel, link = node.channel(queue), node.links[queue]
    peers, _ = link.sorted_peers()
    assert len(peers) == 1
    assert peers[0].address == source
    batch = channel.c.batch
    ffi.memmove(batch.data, datagram, len(datagram))
    batch.offsets[0], batch.lengths[0] = 0, len(datagram)
    batch.sources[0].peer, batch.sources[0].first, batch.sources[0].count = 0, 0, 1
    batch.received.sources = batch.received.frames = 1
    for _ in channel.open(0.0):
        link.examine(0.0)
    for index in range(batch.received.frames):
        node.heard[queue].append(bytes(ffi.buffer(batch.data + batch.offsets[index], batch.lengths[index])))


@pytest.mark.parametrize("queue", range(4))
def test_what_another_queue_has_received_is_opened_by_its_own(make: Make, queue: int) -> None:
    a, b = make(2, 4)
    exchange(a, b, 0.0)
    [state] = a.channel(a.queue_of(b, FLOWS[5]))._states.values()
    data = a.frame(b, FLOWS[5])
    out, where, size = ffi.new("uint8_t[]", 4096), ffi.new("uint32_t[1]"), ffi.new("uint32_t[1]")
    sender = state.handshake.sessions[0].encryptor
    assert lib.sn_encrypt(a.channel(0)._cipher, sender, data, [0], [len(data)], 1, out, 4096, where, size) == 1
    handed_to(b, queue, bytes(out[0 : size[0]]), a.links[0].address)
    settle(a, b)
    assert b.heard == [[data] if number == b.queue_of(a, FLOWS[5]) else [] for number in range(4)]
    passed = [b.channel(number).c.queues.passed for number in range(4)]
    assert passed == [int(number == queue != b.queue_of(a, FLOWS[5])) for number in range(4)]


def test_an_altered_lane_is_forged(make: Make) -> None:
    a, b = make(2, 2)
    exchange(a, b, 0.0)
    datagram = bytearray(intercepted(a, b, FLOWS[0], 0.0))
    settle(a, b)
    for queues in b.heard:
        queues.clear()
    for first in range(256):
        if first != datagram[8]:
            altered = bytes(datagram[:8]) + bytes([first]) + bytes(datagram[9:])
            handed_to(b, lib.sn_sealed_queue(altered, len(altered), 2, 0), altered, a.links[0].address)
            settle(a, b)
    assert b.heard == [[], []]
    counted = b.counted()
    assert counted == SecureCounters(
        sessions=1, dropped_forged=counted.dropped_forged, dropped_replayed=counted.dropped_replayed
    )
    assert counted.dropped_forged + counted.dropped_replayed == 255
    assert counted.dropped_replayed < 24  # those of its sender's queue that come to the same one here


@pytest.mark.parametrize("numbers", [(2, 2), (4, 1), (3, 2)])
def test_sessions_are_replaced_for_all_queues(make: Make, numbers: tuple[int, int]) -> None:
    a, b = make(*numbers)
    for number in range(1, 8):
        now = number * 0.7 * session.REKEY_S
        exchange(a, b, now)
        for node in (a, b):
            newest = [
                state.handshake.sessions[0].ours
                for queue in range(node.queues)
                for state in node.channel(queue)._states.values()
            ]
            assert len(set(newest)) == 1
            assert len(newest) == node.queues
    assert a.counted().sessions == b.counted().sessions > 2
    assert a.counted() == SecureCounters(sessions=a.counted().sessions)


def test_a_further_queue_has_a_session_replaced_that_it_has_used_up(make: Make) -> None:
    a, b = make(4, 4)
    exchange(a, b, 0.0)
    [state] = a.channel(2)._states.values()
    used = state.handshake.sessions[0]
    assert used.encryptor.limit == session.LIMIT_FRAMES // 4
    used.encryptor.counter = session.REKEY_FRAMES // 4
    exchange(a, b, 1.0)
    assert a.counted() == b.counted() == SecureCounters(sessions=2)


def test_a_session_that_is_used_up_is_not_made_again(make: Make) -> None:
    """Its counters would be used again."""
    a, b = make(4, 4)
    exchange(a, b, 0.0)
    [state] = a.channel(2)._states.values()
    [used] = state.handshake.sessions
    used.encryptor.counter = used.encryptor.limit
    exchange(a, b, 2.0)
    assert a.counted() == SecureCounters(sessions=2)
    assert used.encryptor.counter == used.encryptor.limit
    assert state.handshake.sessions[0] is not used
    assert isinstance(state.handshake, FollowedHandshake)
    agreed = tuple((each.terms, each.settled) for each in state.handshake.sessions)
    state.handshake.forget(used)
    state.handshake.adopt(((used.terms, True), *agreed[:1]), 2.0)
    assert state.handshake.sessions[0] is used


@pytest.mark.parametrize("others", [1, 2, 4])
def test_frames_of_further_queues_wait_for_a_session(make: Make, others: int) -> None:
    a, b = make(4, others)
    sent = [a.send(b, port, 0.0) for port in FLOWS]
    settle(a, b)
    assert sorted(each for queue in b.heard for each in queue) == sorted(sent)
    assert a.counted() == SecureCounters(sessions=1)


def test_frames_of_further_queues_do_not_wait_for_ever(make: Make) -> None:
    """The peer does not answer."""
    a, b = make(2, 2)
    for port in FLOWS:
        a.send(b, port, 0.0)
    for tenth in range(400):
        now = tenth / 10
        while any(a.posted):
            a.step(now)
        for link in a.links:
            link.advance(now)
    assert a.counted() == SecureCounters(dropped_waiting=len(FLOWS))
    assert all(link.next_time() is None for link in a.links)


def test_a_queue_that_is_slow_to_hear_of_a_session_loses_no_other_ones_frames(make: Make) -> None:
    """The first queue alone works until all hellos are exchanged. The other queue then has what it needs."""
    a, b = make(2, 2)
    port = next(port for port in FLOWS if a.queue_of(b, port) == 1)
    sent = a.send(b, port, 0.0)
    a.step(0.0, only=0)
    for _ in range(6):
        b.step(0.0, only=0)
        a.step(0.0, only=0)
    assert b.heard == [[], []]
    settle(a, b)
    assert b.heard == [[], [sent]]
    assert b.counted() == SecureCounters(sessions=1)


def test_a_peer_that_restarts_with_other_queues_is_met_anew(make: Make) -> None:
    a, b = make(4, 2)
    exchange(a, b, 0.0)
    with HostStack(b.links[0].address[0]) as stack:
        port = b.links[0].address
        for link in b.links:
            link.close()
        reborn = QueuedNode(stack, B, 3, 9)
        assert port != reborn.links[0].address
        reborn.meet(a)
        for link in a.links:
            link.add_peer(B, reborn.links[0].address)
        exchange(a, reborn, 1.0)


def test_forget_of_a_peer_that_has_left(make: Make) -> None:
    """What queues post about it comes to nothing."""
    a, b = make(2, 2)
    port = next(port for port in FLOWS if a.queue_of(b, port) == 1)
    a.send(b, port, 0.0)
    assert a.posted[0]
    for link in a.links:
        link._forwarding.clear()
    for queue in a.posted:
        while queue:
            queue.popleft()()
    assert a.counted() == SecureCounters()


class TestHandshake:
    def test_a_nic_with_one_queue_says_lanes_when_it_has_heard_it(self, make: Make) -> None:
        a, b = make(1, 4)
        a.send(b, FLOWS[0], 0.0)
        settle(a, b)
        for node in (a, b):
            [state] = node.channel(0)._states.values()
            assert state.handshake.sessions[0].terms.lanes

    def test_nics_with_one_queue_do_not(self, make: Make) -> None:
        a, b = make(1, 1)
        exchange(a, b, 0.0)
        for node in (a, b):
            [state] = node.channel(0)._states.values()
            assert not state.handshake.sessions[0].terms.lanes
            assert state.handshake.sessions[0].decryptor.by_queue == ffi.NULL
            assert state.handshake.sessions[0].encryptor.limit == session.LIMIT_FRAMES

    def test_a_queue_that_asks_again_gets_the_session_that_there_is(self, make: Make) -> None:
        """It has not yet looked at what it was told."""
        a, b = make(2, 2)
        port = next(port for port in FLOWS if a.queue_of(b, port) == 1)
        sent = a.send(b, port, 0.0)
        for _ in range(6):
            a.step(0.0, only=0)
            b.step(0.0)
        assert a.channel(0).counted.sessions == 1
        a.links[1].advance(handshake.RETRY_S)
        settle(a, b, now=handshake.RETRY_S)
        assert b.heard == [[], [sent]]
        assert a.counted() == SecureCounters(sessions=1)
        assert all(link.next_time() is None for link in a.links)
