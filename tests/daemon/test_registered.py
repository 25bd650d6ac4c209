"""Registered memory and streams in registered mode, spoken by hand to real daemons."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import random
import signal
import socket as plain
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import softnic
from softnic import codecs, socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, running, until
from tests.facades.ipc import (
    BYTES,
    FLAG_SIGNALED,
    MAX_RECEIVES,
    PLACED,
    RECEIVE,
    RECORD,
    SEND,
    SENT,
    TAG,
    TAG_RECORD,
    control,
)
from tests.facades.ipc import regions as memory

Floats = npt.NDArray[np.float32]


def record(
    kind: int, region: int = 0, offset: int = 0, size: int = 0, pad: int = 0, flags: int = 0, step: int = 0
) -> bytes:
    return RECORD.pack(kind, flags, pad, step, region, offset, size)


@pytest.fixture(autouse=True)
def _no_arrays_of_other_tests() -> None:
    """Errors that were caught keep theirs until they are collected."""
    gc.collect()


@contextlib.contextmanager
def memfd(size: int) -> Iterator[int]:
    """A memfd as regions are made of."""
    with os.fdopen(os.memfd_create("softnic", os.MFD_ALLOW_SEALING), "wb") as file:
        file.truncate(size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        yield file.fileno()


def gaussian(count: int) -> Floats:
    return (np.random.default_rng(count).standard_normal(count) * 0.01).astype(np.float32)


def registered(data: Floats) -> Floats:
    array = softnic.empty(data.shape)
    array[:] = data
    return array


def number(array: Floats, nic: Nic) -> int:
    place = memory.find(array.view(np.uint8).data)
    assert place is not None
    assert place.offset == 0
    return memory.number(place.region, nic.path)


def told(connection: plain.socket) -> tuple[int, int]:
    """The next record: its kind and size."""
    fields = RECORD.unpack(read_all(connection, RECORD.size))
    return fields[0], fields[6]


@contextlib.contextmanager
def streams(nics: Sequence[Nic]) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection whose ends are both in registered mode."""
    ours, theirs = pair(nics)
    with ours, theirs:
        for end in (ours, theirs):
            assert memory.use_records(end)[1] == b""
        yield ours, theirs


def test_from_region_to_region(nics: list[Nic]) -> None:
    data, result = registered(gaussian(1_000_000)), softnic.zeros(1_000_100)
    with streams(nics) as (ours, theirs):
        theirs.sendall(record(RECEIVE, number(result, nics[1]), 400, data.nbytes))
        ours.sendall(record(SEND, number(data, nics[0]), 0, data.nbytes, flags=FLAG_SIGNALED))
        assert told(theirs) == (PLACED, data.nbytes)
        assert told(ours) == (SENT, data.nbytes)
    assert result[100:].tobytes() == data.tobytes()
    assert not result[:100].any()


def test_tagged_floats_arrive_as_their_codec_has_them(nics: list[Nic]) -> None:
    data, result = registered(gaussian(100_003)), softnic.zeros(100_003)
    pad = -data.nbytes % 64
    with streams(nics) as (ours, theirs):
        ours.sendall(TAG_RECORD.pack(TAG, 0, 0x28, 0, b"bounded:8"))
        for _ in range(2):
            theirs.sendall(record(RECEIVE, number(result, nics[1]), 0, data.nbytes, pad=pad))
            ours.sendall(record(SEND, number(data, nics[0]), 0, data.nbytes, pad=pad, flags=FLAG_SIGNALED))
            assert told(theirs) == (PLACED, data.nbytes)
            assert told(ours) == (SENT, data.nbytes)
        info = socket.info(ours)
    assert result.tobytes() == codecs.get("bounded:8").roundtrip(data).tobytes()
    assert (info.tos, info.codec) == (0x28, "bounded:8")
    assert info.offload_encoded_bytes < info.offload_original_bytes


def test_bytes_and_regions_in_any_order(nics: list[Nic]) -> None:
    data, result = registered(gaussian(50_000)), softnic.zeros(50_000)
    source, target = number(data, nics[0]), number(result, nics[1])
    raw, got = data.tobytes(), b""
    with streams(nics) as (ours, theirs):
        ours.sendall(record(BYTES, size=5, pad=3) + b"hello" + record(SEND, source, 10, 70_001))
        ours.sendall(record(BYTES, size=6) + b" there" + record(SEND, source, 0, 7, flags=FLAG_SIGNALED))
        theirs.sendall(record(RECEIVE, size=5, pad=3) + record(RECEIVE, target, 3, 70_001, step=1000))
        theirs.sendall(record(RECEIVE, size=13))
        placed = 0
        while len(got) < 18:
            kind, size = told(theirs)
            if kind == PLACED:
                assert len(got) == 5
                placed += size
            else:
                assert kind == BYTES
                got += read_all(theirs, size)
        assert told(ours) == (SENT, 70_008)
    assert placed == 70_001
    assert got == b"hello there" + raw[:7]
    assert result.tobytes()[3:70_004] == raw[10:70_011]


def test_loans_mixed_with_copies_are_returned_in_order(nics: list[Nic]) -> None:
    """What is tagged and ragged is copied, the rest is lent: memory comes back up to each record that asks for it."""
    data, result = registered(gaussian(60_000)), softnic.zeros(60_000)
    source, target = number(data, nics[0]), number(result, nics[1])
    sizes = [100_004, 12, 60_000, 3, 64 * 500, 7, 20_000, 1]
    with streams(nics) as (ours, theirs):
        theirs.sendall(record(RECEIVE, target, 0, sum(sizes)))
        offset, sent = 0, b""
        for index, size in enumerate(sizes):
            if index % 4 == 0:  # by turns: two lent, two as raw floats, of which what fills no block is copied
                sent += TAG_RECORD.pack(TAG, 0, 0x28 if index else 0, 0, b"raw")
            sent += record(SEND, source, offset, size, flags=FLAG_SIGNALED if index % 3 == 2 else 0)
            offset += size
        ours.sendall(sent + record(SEND, source, 0, 0, flags=FLAG_SIGNALED))
        returned = 0
        while returned < offset:
            kind, size = told(ours)
            assert kind == SENT
            assert size > 0
            returned += size
        assert returned == offset
        assert told(theirs) == (PLACED, offset)
    assert result.tobytes()[:offset] == data.tobytes()[:offset]
    assert not any(result.tobytes()[offset:])


def test_a_send_of_copies_and_loans_is_returned_once_and_whole(nics: list[Nic]) -> None:
    """Of a tagged range, what completes a block of 64 bytes is copied, and whole blocks are lent."""
    data, result = registered(gaussian(60_000)), softnic.zeros(60_000)
    source, target = number(data, nics[0]), number(result, nics[1])
    with streams(nics) as (ours, theirs):
        ours.sendall(TAG_RECORD.pack(TAG, 0, 0x28, 0, b"raw"))
        for _ in range(3):
            theirs.sendall(record(RECEIVE, size=12) + record(RECEIVE, target, 0, 200_000))
            ours.sendall(record(BYTES, size=12) + data.tobytes()[:12])
            ours.sendall(record(SEND, source, 0, 200_000, flags=FLAG_SIGNALED) + record(BYTES, size=44) + bytes(44))
            assert told(ours) == (SENT, 200_000)
            theirs.sendall(record(RECEIVE, size=44))
            left = 56
            while left:
                kind, size = told(theirs)
                if kind == BYTES:
                    read_all(theirs, size)
                    left -= size
    assert result.tobytes()[:200_000] == data.tobytes()[:200_000]


def test_bytes_from_before_the_mode_stay_bytes(nics: list[Nic]) -> None:
    data = registered(gaussian(50_000))
    ours, theirs = pair(nics)
    with ours, theirs:
        ours.sendall(b"before")
        until(lambda: len(theirs.recv(100, plain.MSG_PEEK)) == 6)
        assert memory.use_records(theirs)[1] == b"before"
        memory.use_records(ours)
        ours.sendall(record(SEND, number(data, nics[0]), 0, 1000) + record(BYTES, size=5) + b"after")
        theirs.sendall(record(RECEIVE, size=1005))
        got = b""
        while len(got) < 1005:
            kind, size = told(theirs)
            assert kind == BYTES
            got += read_all(theirs, size)
        assert got == data.tobytes()[:1000] + b"after"
        ours.shutdown(plain.SHUT_WR)
        assert theirs.recv(1) == b""


def test_bytes_and_their_end_wait_until_they_are_asked_for(nics: list[Nic]) -> None:
    with streams(nics) as (ours, theirs):
        theirs.sendall(record(BYTES, size=5) + b"first")
        theirs.shutdown(plain.SHUT_WR)
        until(lambda: socket.info(ours).state == "CLOSE-WAIT")
        ours.sendall(record(RECEIVE, size=5))
        assert told(ours) == (BYTES, 5)
        assert read_all(ours) == b"first"


def test_a_copied_tail_does_not_return_what_is_still_lent(nics: list[Nic]) -> None:
    """Of a tagged range only whole blocks are lent."""
    data, result = registered(gaussian(4_000_000)), softnic.zeros(4_000_000)
    size = data.nbytes - 4
    with streams(nics) as (ours, theirs):
        ours.sendall(TAG_RECORD.pack(TAG, 0, 0x28, 0, b"raw"))
        ours.sendall(record(SEND, number(data, nics[0]), 0, size, flags=FLAG_SIGNALED))
        until(lambda: socket.info(theirs).receive_queue > 1 << 20)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
        ours.settimeout(WAIT_S)
        theirs.sendall(record(RECEIVE, number(result, nics[1]), 0, size))
        assert told(ours) == (SENT, size)


def test_memory_is_read_until_it_is_told_to_be_sent(nics: list[Nic]) -> None:
    """A peer that reads nothing leaves it lent; what is left when little is, the NIC copies."""
    data, result = registered(gaussian(4_000_000)), softnic.zeros(4_000_000)
    expected = data.tobytes()
    with streams(nics) as (ours, theirs):
        ours.sendall(record(SEND, number(data, nics[0]), 0, data.nbytes, flags=FLAG_SIGNALED))
        until(lambda: socket.info(theirs).receive_queue > 1 << 20)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
        ours.settimeout(60)
        target = number(result, nics[1])
        theirs.sendall(record(RECEIVE, target, 0, data.nbytes - 500_000))
        assert told(ours) == (SENT, data.nbytes)
        data[:] = 0
        theirs.sendall(record(RECEIVE, target, data.nbytes - 500_000, 500_000))
        assert told(theirs)[0] == told(theirs)[0] == PLACED
    assert result.tobytes() == expected


HOSTILE = {
    "kind": (record(77), "kind 77"),
    "kind of the other side": (record(SENT, size=5), "kind 5"),
    "unknown region": (record(SEND, 12345, 0, 10), "no region 12345"),
    "unknown region to receive": (record(RECEIVE, 12345, 0, 10), "no region 12345"),
    "no region": (record(SEND, 0, 0, 10), "no region 0"),
    "padding": (record(BYTES, pad=64), "padding"),
    "codec": (TAG_RECORD.pack(TAG, 0, 0x28, 0, b"zip:9"), "zip"),
    "codec of no text": (TAG_RECORD.pack(TAG, 0, 0x28, 0, b"\xff\xfe"), "ascii"),
    "type of service": (TAG_RECORD.pack(TAG, 0, 0x128, 0, b""), "type of service"),
    "receives": (record(RECEIVE, size=1) * (MAX_RECEIVES + 1), "receives"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_wrong_record_ends_its_stream_with_a_reason(nics: list[Nic], case: str) -> None:
    sent, text = HOSTILE[case]
    before = nics[0].counters()["records_malformed"]
    with streams(nics) as (ours, theirs):
        with contextlib.suppress(OSError):
            ours.sendall(sent)
        with pytest.raises(OSError, match=text) as caught:
            read_all(ours)
        assert caught.value.errno == errno.EINVAL
        with pytest.raises(ConnectionResetError):
            theirs.recv(1)
    assert nics[0].counters()["records_malformed"] == before + 1


@pytest.mark.parametrize("kind", [SEND, RECEIVE])
@pytest.mark.parametrize(("offset", "size"), [(0, 4001), (4001, 0), (1 << 63, 1), ((1 << 64) - 1, (1 << 64) - 1)])
def test_nothing_outside_a_region_is_touched(nics: list[Nic], kind: int, offset: int, size: int) -> None:
    array = softnic.zeros(1000)
    with streams(nics) as (ours, _):
        ours.sendall(record(kind, number(array, nics[0]), offset, size))
        with pytest.raises(OSError, match="of a region that has 4000"):
            ours.recv(1)
    assert not array.any()


def test_random_records_harm_nobody_else(nics: list[Nic]) -> None:
    rng, data = random.Random(5), registered(gaussian(10_000))
    region = number(data, nics[0])
    for _ in range(40):
        with streams(nics) as (ours, _):
            try:
                for _ in range(rng.randrange(1, 20)):
                    fields = [rng.choice([1, 2, 3, 4, rng.randrange(256)]), rng.randrange(2), rng.randrange(70)]
                    numbers = [rng.choice([0, region]), rng.randrange(50_000), rng.randrange(50_000)]
                    ours.sendall(RECORD.pack(*fields, rng.getrandbits(32), *numbers)[: rng.choice([32, 32, 32, 9])])
            except OSError as refused:
                if refused.errno not in (errno.EINVAL, errno.EPIPE):
                    raise
    assert data.tobytes() == gaussian(10_000).tobytes()
    test_from_region_to_region(nics)


@pytest.mark.parametrize("sealed", [False, True])
def test_only_what_cannot_shrink_is_mapped(nics: list[Nic], sealed: bool) -> None:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    with nics[0].client() as client, os.fdopen(descriptor, "wb") as file:
        if sealed:  # but empty
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        else:
            file.truncate(4096)
        with pytest.raises(OSError, match="empty" if sealed else "F_SEAL_SHRINK") as caught:
            client.call(control.Register(), file.fileno())
    assert caught.value.errno == errno.EINVAL


def test_other_descriptors_are_refused(nics: list[Nic]) -> None:
    reader, writer = os.pipe()
    with nics[0].client() as client, os.fdopen(reader), os.fdopen(writer, "w"), Path(sys.executable).open() as program:
        for descriptor in (reader, program.fileno()):
            with pytest.raises(OSError, match="F_SEAL_SHRINK"):
                client.call(control.Register(), descriptor)
        with pytest.raises(OSError, match="missing"):
            client.call(control.Register())
        with pytest.raises(OSError, match="no region"):
            client.call(control.Unregister(7))


def test_a_region_larger_than_the_machine_is_refused(nics: list[Nic]) -> None:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + 4096
    array = softnic.empty(size, np.uint8)  # no page of it is ever touched
    place = memory.find(array[:10].data)
    assert place is not None
    with pytest.raises(OSError, match="more than this machine has") as caught:
        memory.number(place.region, nics[0].path)
    assert caught.value.errno == errno.ENOMEM


def test_a_region_of_another_program_cannot_be_taken_back(nics: list[Nic]) -> None:
    array = softnic.zeros(1000)
    region = number(array, nics[0])
    with nics[0].client() as client, pytest.raises(OSError, match="of this program"):
        client.call(control.Unregister(region))


def test_regions_end_with_their_arrays(nics: list[Nic]) -> None:
    before = nics[0].counters()
    arrays = [softnic.zeros(1000 * (index + 1)) for index in range(5)]
    assert len({number(array, nics[0]) for array in arrays}) == 5
    counters = nics[0].counters()
    assert counters["regions"] - before["regions"] == 5
    assert counters["region_bytes"] - before["region_bytes"] == 60_000
    arrays.clear()
    assert nics[0].counters()["regions"] == before["regions"]
    assert nics[0].counters()["region_bytes"] == before["region_bytes"]


def test_an_array_freed_while_it_is_sent_still_arrives(nics: list[Nic]) -> None:
    expected, before = gaussian(3_000_000), unused(nics[0])
    data, result = registered(expected), softnic.zeros(3_000_000)
    with streams(nics) as (ours, theirs):
        ours.sendall(record(SEND, number(data, nics[0]), 0, data.nbytes))
        until(lambda: socket.info(theirs).receive_queue > 1 << 20)
        del data
        assert nics[0].counters()["regions"] == before
        assert mappings(nics[0]) == before + 1
        theirs.sendall(record(RECEIVE, number(result, nics[1]), 0, expected.nbytes))
        assert told(theirs) == (PLACED, expected.nbytes)
    assert result.tobytes() == expected.tobytes()
    assert unused(nics[0]) == before


def mappings(nic: Nic) -> int:
    """Regions that are in a NIC's address space, named or not."""
    assert nic.process is not None
    return Path(f"/proc/{nic.process.pid}/maps").read_text().count("memfd:softnic")


def unused(nic: Nic) -> int:
    """The regions of a NIC, once no stream holds any that nobody can name."""
    until(lambda: mappings(nic) == nic.counters()["regions"])
    return mappings(nic)


def test_a_stream_that_ends_lets_go_of_what_it_was_to_receive(nics: list[Nic]) -> None:
    result, before = softnic.zeros(1000), unused(nics[0]) + 1
    with streams(nics) as (ours, _):
        ours.sendall(record(RECEIVE, number(result, nics[0]), 0, 4000))
        assert mappings(nics[0]) == before
        del result
        assert nics[0].counters()["regions"] == before - 1
        assert mappings(nics[0]) == before  # the stream has it
    assert unused(nics[0]) == before - 1


PROGRAM = """
import sys
from softnic import socket
import softnic
from tests.facades.ipc import RECORD, SEND
from tests.facades.ipc import regions as memory
array = softnic.zeros(10_000_000)
connection = socket.create_connection((sys.argv[2], int(sys.argv[3])), nic=sys.argv[1])
place = memory.find(array.view("u1").data)
memory.use_records(connection)
connection.sendall(RECORD.pack(SEND, 0, 0, 0, memory.number(place.region, sys.argv[1]), 0, array.nbytes))
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_killed_program_leaves_nothing_mapped(nics: list[Nic]) -> None:
    before = unused(nics[0])
    with nics[1].server() as listening:
        host, port = listening.getsockname()
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, nics[0].path, host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with program, listening.accept()[0] as connection:
            assert program.stdout is not None
            assert program.stdout.readline() == b"sent\n"
            until(lambda: socket.info(connection).receive_queue > 1 << 20)
            assert nics[0].counters()["regions"] == before + 1
            program.send_signal(signal.SIGKILL)
            program.wait()
            until(lambda: nics[0].counters()["regions"] == before)
            received = 0  # what was posted still goes out, as written bytes would
            while data := connection.recv(1 << 20):
                assert not any(data)
                received += len(data)
            assert received == 40_000_000
    assert unused(nics[0]) == before


def test_memory_taken_back_resets_the_connection(nics: list[Nic]) -> None:
    data, result = registered(gaussian(3_000_000)), softnic.zeros(3_000_000)
    with streams(nics) as (ours, theirs):
        theirs.sendall(record(RECEIVE, number(result, nics[1]), 0, 100))
        ours.sendall(record(SEND, number(data, nics[0]), 0, data.nbytes))
        assert told(theirs) == (PLACED, 100)
        memory.withdraw(ours)
        with pytest.raises(OSError, match="took back"):
            ours.recv(1)
        with pytest.raises(ConnectionResetError):
            theirs.recv(1)


def test_receives_taken_back_place_nothing_any_more(nics: list[Nic]) -> None:
    data, result = registered(gaussian(1000)), softnic.zeros(1000)
    with streams(nics) as (ours, theirs):
        theirs.sendall(record(RECEIVE, number(result, nics[1]), 0, data.nbytes))
        memory.withdraw(theirs)
        ours.sendall(record(SEND, number(data, nics[0]), 0, data.nbytes, flags=FLAG_SIGNALED))
        assert told(ours) == (SENT, data.nbytes)
        until(lambda: socket.info(theirs).receive_queue == data.nbytes)
    assert not result.any()


def test_what_cannot_be_put_into_the_mode(nics: list[Nic]) -> None:
    with nics[0].server() as listening, pytest.raises(OSError, match="connected stream"):
        memory.use_records(listening)
    with streams(nics) as (ours, _):
        with pytest.raises(OSError, match="connected stream"):
            memory.use_records(ours)
        with pytest.raises(OSError, match="by records"):
            ours.setsockopt(plain.IPPROTO_IP, plain.IP_TOS, 0x28)
        ours.setsockopt(plain.IPPROTO_TCP, plain.TCP_NODELAY, 1)
    ours, theirs = pair(nics)
    with ours, theirs, pytest.raises(OSError, match="not in registered mode"):
        memory.withdraw(ours)


def test_another_nic_in_its_place_learns_the_regions_anew() -> None:
    array = softnic.zeros(1000)
    with running(1) as [nic]:
        first = number(array, nic)
        assert number(array, nic) == first
        assert nic.stop() == 0
        with pytest.raises(OSError, match=r"no NIC answers|is gone"):
            number(softnic.zeros(10), nic)
        nic.start()
        assert number(array, nic) != first
        assert nic.counters()["regions"] == 1
