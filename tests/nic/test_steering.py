"""Receive-side scaling: one hash for both ends, which the kernel computes alike, and the frames that go astray."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.ipc import control
from softnic.packet import ethernet, ipv4

ADDRESSES, PORTS = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)
QUEUES = st.sampled_from(control.QUEUES)
VXLAN = bytes.fromhex("0800000000000100")


def frame(src: int, dst: int, sport: int, dport: int, *, options: bytes = b"", protocol: int = 6) -> bytes:
    """Return an Ethernet frame as far as its ports, without checksums."""
    length = 20 + len(options) + 20
    fields = (0x40 | (20 + len(options)) // 4, 0, length, 0, 0, 64, protocol, 0, src, dst)
    header = struct.pack("!BBHHHBBHII", *fields) + options
    return ethernet.build(b"\2" * 6, b"\4" * 6, ethernet.TYPE_IPV4, header + struct.pack("!HH16x", sport, dport))


def test_the_control_protocol_has_the_limit_of_c() -> None:
    assert control.MOST_QUEUES == lib.SN_MOST_QUEUES
    assert all(lib.SN_FLOW_LANES % queues == 0 for queues in control.QUEUES)
    assert [control.queues_for(cores) for cores in range(11)] == [1, 1, 2, 3, 4, 4, 6, 6, 8, 8, 8]


@given(ADDRESSES, ADDRESSES, PORTS, PORTS, QUEUES)
def test_both_ends_compute_the_same_queue(src: int, dst: int, sport: int, dport: int, queues: int) -> None:
    queue = lib.sn_queue_of(src, dst, sport, dport, queues)
    assert 0 <= queue < queues
    assert queue == lib.sn_queue_of(dst, src, dport, sport, queues)


@given(ADDRESSES, ADDRESSES, PORTS, PORTS, QUEUES)
def test_a_lane_is_one_queue_of_every_nic(src: int, dst: int, sport: int, dport: int, queues: int) -> None:
    lane = lib.sn_queue_of(src, dst, sport, dport, lib.SN_FLOW_LANES)
    assert lib.sn_queue_of(src, dst, sport, dport, queues) == lane % queues


@given(ADDRESSES, ADDRESSES, PORTS, QUEUES, st.data())
def test_ports_of_a_queue_are_found(src: int, dst: int, dport: int, queues: int, data: st.DataObject) -> None:
    queue, start = data.draw(st.integers(0, queues - 1)), data.draw(PORTS)
    end = data.draw(st.integers(start, 2**16))
    fitting = (port for port in range(start, end) if lib.sn_queue_of(src, dst, port, dport, queues) == queue)
    assert lib.sn_next_port(src, dst, dport, queues, queue, start, end) == next(fitting, end)


@pytest.mark.parametrize("queues", [2, 3, 4, 8])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_flows_spread_over_the_queues(queues: int, step: int) -> None:
    """Clients take ports one by one, or every second one, as Linux does."""
    a, b = (ipv4.address(text) for text in ("10.77.0.1", "10.77.0.2"))
    found = Counter(lib.sn_queue_of(a, b, 40_000 + step * number, 5000, queues) for number in range(1000))
    assert min(found.values()) > 0.7 * 1000 / queues
    assert max(found.values()) < 1.3 * 1000 / queues


def group(queues: int, sealed: bool = False) -> list[socket.socket]:
    """Return the sockets of one UDP port, one a queue, steered."""
    sockets: list[socket.socket] = []
    for _ in range(queues):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", sockets[0].getsockname()[1] if sockets else 0))
        one.setblocking(False)
        sockets.append(one)
    assert lib.sn_steer(sockets[0].fileno(), queues, sealed) == 0
    return sockets


def arrived_at(sockets: list[socket.socket], datagram: bytes) -> int:
    """Send a datagram. Return the number of the socket that got it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(datagram, sockets[0].getsockname())
    found = []
    for number, one in enumerate(sockets):
        with contextlib.suppress(BlockingIOError):
            got = one.recv(2048)
            found.append((number, got))
    [(number, got)] = found
    assert got == datagram
    return number


@pytest.mark.parametrize("queues", [2, 3, 8])
def test_the_kernel_steers_by_the_same_hash(queues: int) -> None:
    sockets = group(queues)
    reached = set()
    for number in range(200):
        flow = (0x0A4D0001 + 97 * number, 0x0A4D0002 + number % 7, 1000 + 31 * number & 0xFFFF, 5000 + number % 5)
        options = b"\1" * 4 * (number % 3)
        reached.add(queue := arrived_at(sockets, VXLAN + frame(*flow, options=options)))
        assert queue == lib.sn_queue_of(*flow, queues)
    assert reached == set(range(queues))
    for one in sockets:
        one.close()


def test_what_is_no_tcp_goes_to_the_first_queue() -> None:
    sockets = group(4)
    arp = ethernet.build(b"\xff" * 6, b"\4" * 6, ethernet.TYPE_ARP, bytes(28))
    udp = [frame(1, number, number, number, protocol=17) for number in range(50)]
    short = [VXLAN, b"", VXLAN + arp[:10], VXLAN + frame(1, 2, 3, 4)[:33]]
    for datagram in [*short, VXLAN + arp, *(VXLAN + each for each in udp)]:
        assert arrived_at(sockets, datagram) == 0
    for one in sockets:
        one.close()


def sealed_datagram(kind: int, first: int, length: int = 100) -> bytes:
    """Return a datagram of this kind whose counter has this first byte, as far as that is looked at."""
    return (bytes([kind]) + bytes(7) + bytes([first])).ljust(length, b"\0")[:length]


@pytest.mark.parametrize("queues", [2, 3, 8])
def test_the_kernel_steers_sealed_datagrams_by_their_lanes(queues: int) -> None:
    sockets = group(queues, sealed=True)
    reached = set()
    for lane in range(lib.SN_FLOW_LANES):
        for sender in (0, 5, 7):
            datagram = sealed_datagram(lib.SN_SECURE_FRAME, lane << lib.SN_COUNTER_LANE | sender)
            reached.add(queue := arrived_at(sockets, datagram))
            assert queue == lane % queues == lib.sn_sealed_queue(datagram, len(datagram), queues, 1)
    assert reached == set(range(queues))
    for one in sockets:
        one.close()


def test_hellos_go_to_the_first_queue_and_what_is_malformed_stays_where_it_arrived() -> None:
    sockets = group(4, sealed=True)
    hello = sealed_datagram(lib.SN_SECURE_HELLO, 0xFF, lib.SN_HELLO_LENGTH)
    assert arrived_at(sockets, hello) == lib.sn_sealed_queue(hello, len(hello), 4, 3) == 0
    malformed = [sealed_datagram(lib.SN_SECURE_FRAME, 0xFF, length) for length in (0, 1, 8, 31)]
    malformed += [hello[:-1], sealed_datagram(0x12, 0xFF), VXLAN + frame(1, 2, 3, 4)]
    for datagram in malformed:
        assert lib.sn_sealed_queue(datagram, len(datagram), 4, 3) == 3
        arrived_at(sockets, datagram)
    for one in sockets:
        one.close()


@given(ADDRESSES, ADDRESSES, PORTS, PORTS, st.integers(0, 10), st.sampled_from([6, 17, 1]))
def test_a_frame_has_the_lane_of_its_flow(
    src: int, dst: int, sport: int, dport: int, words: int, protocol: int
) -> None:
    data = frame(src, dst, sport, dport, options=bytes(4 * words), protocol=protocol)
    expected = lib.sn_queue_of(src, dst, sport, dport, lib.SN_FLOW_LANES) if protocol == 6 else 0
    assert lib.sn_frame_lane(data, len(data)) == expected
    for length in (0, 13, 33, 14 + 20 + 4 * words + 3):
        short = ffi.from_buffer(data[:length]) if length else ffi.NULL
        assert lib.sn_frame_lane(short, length) == 0  # nothing behind it is read: the sanitizers would tell


class Inbox:
    """An inbox, and what it gives."""

    def __init__(self) -> None:
        self.event = os.eventfd(0, os.EFD_NONBLOCK)
        self.c = ffi.gc(lib.sn_inbox_new(self.event), lib.sn_inbox_free)

    def put(self, frames: list[bytes]) -> int:
        data = b"".join(frames)
        lengths = [len(each) for each in frames]
        offsets = [sum(lengths[:index]) for index in range(len(frames))]
        return int(lib.sn_inbox_put(self.c, data, offsets, lengths, len(frames)))

    def take(self) -> list[bytes]:
        data, size = ffi.new("uint8_t **"), ffi.new("uint64_t *")
        offsets, lengths = ffi.new("uint32_t **"), ffi.new("uint32_t **")
        count = lib.sn_inbox_take(self.c, data, size, offsets, lengths)
        whole = ffi.buffer(data[0], size[0])[:] if count else b""
        return [whole[offsets[0][index] :][: lengths[0][index]] for index in range(count)]

    @property
    def is_reported(self) -> bool:
        try:
            return os.eventfd_read(self.event) > 0
        except BlockingIOError:
            return False


@given(st.lists(st.lists(st.binary(min_size=1, max_size=90), max_size=4), max_size=20))
def test_an_inbox_gives_what_was_put_once_and_in_order(batches: list[list[bytes]]) -> None:
    inbox, given_, taken = Inbox(), [], []
    for index, batch in enumerate(batches):
        assert inbox.put(batch) == len(batch)
        given_ += batch
        if index % 3 == 2:
            taken += inbox.take()
    assert taken + inbox.take() == given_
    assert inbox.take() == []


def test_an_inbox_reports_its_first_frame_alone() -> None:
    inbox = Inbox()
    assert not inbox.is_reported
    inbox.put([b"a", b"b"])
    inbox.put([b"c"])
    assert inbox.is_reported
    inbox.put([b"d"])
    assert not inbox.is_reported
    assert inbox.take() == [b"a", b"b", b"c", b"d"]
    inbox.put([b"e"])
    assert inbox.is_reported


def test_threads_put_into_an_inbox_while_another_takes() -> None:
    inbox, taken = Inbox(), []
    put: list[list[bytes]] = [[], [], []]

    def fill(number: int) -> None:
        for index in range(2000):
            frame = struct.pack("<II", number, index)
            if inbox.put([frame, frame]) == 2:
                put[number] += [frame, frame]

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += inbox.take()
    taken += inbox.take()
    for number, frames in enumerate(put):
        assert [each for each in taken if each[:4] == struct.pack("<I", number)] == frames
        assert frames


def test_an_inbox_is_bounded() -> None:
    inbox, most = Inbox(), lib.SN_INBOX_BYTES // 9000
    frames = [bytes(9000)] * 100
    while inbox.put(frames) == len(frames):
        pass
    assert len(inbox.take()) == most
    small = [b"x"] * 1000
    while inbox.put(small) == len(small):
        pass
    assert len(inbox.take()) == lib.SN_INBOX_FRAMES
    assert inbox.put([b"again"]) == 1
    assert inbox.take() == [b"again"]
