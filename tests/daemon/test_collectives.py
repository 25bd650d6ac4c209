"""Collectives of NICs: work requests posted directly to real daemons."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket as plain
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

import softnic
from softnic import codecs, socket
from softnic.collectives.schedule import partition
from softnic.ipc import control, work_queue
from softnic.ipc import regions as memory
from softnic.ipc.collectives_info import CollectivesInfo, QueryCollectives
from softnic.ipc.socket_state import stream_of
from softnic.ipc.work_queue import MAX_WORK_REQUESTS, CancelRequest, WorkCompletion, WorkFailed, WorkRequest
from tests.daemon.nics import WAIT_S, Nic, running, until

Array = npt.NDArray[Any]


def mesh(nics: Sequence[Nic]) -> list[dict[int, socket.socket]]:
    """Connect each two of the nodes; return the connections of each rank by peer."""
    ends: list[dict[int, socket.socket]] = [{} for _ in nics]
    for low, nic in enumerate(nics):
        with nic.server() as listening:
            for high in range(low + 1, len(nics)):
                ends[high][low] = nics[high].connect(listening.getsockname())
                ends[low][high], _ = listening.accept()
    return ends


class Rank:
    """One process's member of a group."""

    def __init__(
        self,
        nic: Nic,
        rank: int,
        words: dict[int, socket.socket],
        data: dict[int, socket.socket],
        process: dict[int, socket.socket] | None = None,
    ) -> None:
        self.nic, self.rank, self.words, self.data = nic, rank, words, data
        self.number = 0
        self.answered = 0
        self.socket, nics = plain.socketpair(plain.AF_UNIX, plain.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        numbers = [
            [0 if other == rank else stream_of(side[other].fileno()).stream for other in range(len(words) + 1)]
            for side in (words, data, *([process] if process else ()))
        ]
        with nics, nic.client() as client:
            own = numbers[2] if process else []
            client.call(control.Join(rank, numbers[0], numbers[1], process=own), nics.fileno())

    def post(self, source: Array, result: Array, collective: str = "allreduce", **fields: Any) -> int:
        self.number += 1
        size = len(self.words) + 1
        counts = tuple(block.stop - block.start for block in partition(source.size, size))
        fields = {"op": "SUM", "call": "Iallreduce", **fields}
        call = fields.pop("call")
        places = self.place(source), self.place(result)
        post = WorkRequest(self.number, call, collective, "ring", source.dtype.name, counts, *places, **fields)
        self.socket.send(work_queue.encode(post))
        return self.number

    def place(self, array: Array) -> tuple[int, int]:
        place = memory.find(array.view(np.uint8).data)
        assert place is not None
        return memory.number(place.region, self.nic.path), place.offset

    def told(self) -> WorkCompletion | WorkFailed:
        reply: WorkCompletion | WorkFailed = work_queue.decode_from_nic(self.socket.recv(1 << 16))
        return replace(reply, rate=0.0) if isinstance(reply, WorkCompletion) else reply  # a slow machine measures one

    def close(self) -> None:
        self.socket.close()
        for connection in (*self.words.values(), *self.data.values()):
            connection.close()


@contextlib.contextmanager
def group(nics: Sequence[Nic]) -> Iterator[list[Rank]]:
    words, data = mesh(nics), mesh(nics)
    ranks = [Rank(nic, rank, words[rank], data[rank]) for rank, nic in enumerate(nics)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.close()
        until(lambda: not any(nic.alive and nic.counters()["communicators"] for nic in nics))


@pytest.fixture(scope="module")
def three() -> Iterator[list[Nic]]:
    with running(3) as nics:
        yield nics


def registered(data: Array) -> Array:
    array = softnic.empty(data.shape, data.dtype)
    array[:] = data
    return array


def contributions(size: int, count: int) -> list[Array]:
    rng = np.random.default_rng(count)
    return [registered((rng.standard_normal(count) * 0.1).astype(np.float32)) for _ in range(size)]


def grown(nic: Nic, before: dict[str, int], name: str) -> int:
    return nic.counters()[name] - before[name]


def test_allreduce_from_region_to_region(three: list[Nic]) -> None:
    before = three[1].counters()
    sources = contributions(3, 500_001)
    results = [softnic.zeros(500_001) for _ in range(3)]
    with group(three) as ranks:
        for rank, source, result in zip(ranks, sources, results, strict=True):
            assert rank.post(source, result) == 1
        assert [rank.told() for rank in ranks] == [WorkCompletion(1)] * 3
    for result in results:
        np.testing.assert_allclose(result, sum(sources), atol=1e-6)
        assert result.tobytes() == results[0].tobytes()
    assert grown(three[1], before, "collectives_posted") == grown(three[1], before, "collectives_completed") == 1
    assert grown(three[1], before, "collectives_failed") == 0


@pytest.mark.parametrize("codec", ["bounded:10", "bfp:7"])
def test_compressed_in_place_operations_in_parallel(three: list[Nic], codec: str) -> None:
    rounded = codecs.get(codec).roundtrip
    with group(three) as ranks:
        for count in (100_000, 33):
            buffers = [contributions(3, count + index) for index in range(20)]
            copies = [[array.copy() for array in arrays] for arrays in buffers]
            for arrays in buffers:
                for rank, array in zip(ranks, arrays, strict=True):
                    rank.post(array, array, codec=codec, call="Iallreduce_comp")
            for rank in ranks:
                assert sorted(str(rank.told()) for _ in buffers) == sorted(
                    str(WorkCompletion(rank.number - index)) for index in range(20)
                )
            for arrays, before in zip(buffers, copies, strict=True):
                for index, block in enumerate(partition(arrays[0].size, 3)):
                    partial = before[index][block]
                    for step in (1, 2):
                        partial = rounded(partial) + before[(index + step) % 3][block]
                    assert all(array[block].tobytes() == rounded(partial).tobytes() for array in arrays)


def test_posts_over_the_limit_wait_in_the_socket(three: list[Nic]) -> None:
    count = MAX_WORK_REQUESTS + 200
    arrays = [softnic.zeros(3) for _ in range(3)]
    for array in arrays:
        array[:] = 1
    with group(three) as ranks:
        before = three[0].counters()
        ranks[0].socket.setblocking(False)
        posted = [0, 0, 0]
        with contextlib.suppress(BlockingIOError):
            while posted[0] < count:
                ranks[0].post(arrays[0], arrays[0], op="MAX")
                posted[0] += 1
        assert posted[0] > 0
        until(lambda: grown(three[0], before, "collectives_posted") == min(posted[0], MAX_WORK_REQUESTS))
        ranks[0].socket.settimeout(WAIT_S)
        told = 0
        for rank in ranks[1:]:
            rank.socket.settimeout(WAIT_S)
        while told < posted[0]:
            for rank in ranks[1:]:
                rank.post(arrays[rank.rank], arrays[rank.rank], op="MAX")
            assert [rank.told() for rank in ranks] == [WorkCompletion(told + 1)] * 3
            told += 1


def test_unread_replies_delay_further_posts(three: list[Nic]) -> None:
    """A NIC accepts MAX_POSTS posts beyond the replies that fit into the socket; all are answered in the end."""
    arrays = [softnic.zeros(3) for _ in range(3)]
    before = three[0].counters()
    with group(three) as ranks:
        first, *others = ranks
        first.socket.setblocking(False)
        posted = taken = replied = 0
        while taken - replied < MAX_WORK_REQUESTS:
            assert posted < 10 * MAX_WORK_REQUESTS, "nothing holds the posts back"
            try:
                posted = first.post(arrays[0], arrays[0], op="MAX")
            except BlockingIOError:
                first.number = posted
                taken = grown(three[0], before, "collectives_posted")
                post_up_to(others, arrays, taken)
                replied = grown(three[0], before, "collectives_completed")
                assert taken - replied <= MAX_WORK_REQUESTS
        first.socket.settimeout(WAIT_S)
        for number in range(1, posted + 1):
            if number > taken:
                post_up_to(others, arrays, number)
            assert first.told() == WorkCompletion(number)


def post_up_to(ranks: Sequence[Rank], arrays: Sequence[Array], number: int) -> None:
    """Let all ranks post what one has posted; all posts complete."""
    for rank in ranks:
        while rank.number < number:
            rank.post(arrays[rank.rank], arrays[rank.rank], op="MAX")
    for rank in ranks:
        while rank.answered < number:
            rank.answered += 1
            assert rank.told() == WorkCompletion(rank.answered)


def both_told(ranks: Sequence[Rank]) -> WorkFailed:
    """Return the error that all ranks get, which must be the same."""
    replies = [rank.told() for rank in ranks]
    assert all(isinstance(reply, WorkFailed) for reply in replies), replies
    first = replies[0]
    assert isinstance(first, WorkFailed)
    assert all(reply == first for reply in replies)
    return first


def post_on(ranks: Sequence[Rank], count: int = 1_000_000) -> list[Array]:
    arrays = [softnic.zeros(count) for _ in ranks]
    for rank, array in zip(ranks, arrays, strict=True):
        rank.post(array, array)
    return arrays


def test_ranks_that_post_different_things(three: list[Nic]) -> None:
    before = three[0].counters()
    with group(three) as ranks:
        arrays = [softnic.zeros(1000) for _ in range(3)]
        for rank, array in zip(ranks, arrays, strict=True):
            rank.post(array, array, op="MAX" if rank.rank == 1 else "SUM")
            until(lambda: grown(three[0], before, "collectives_posted") == 1)  # else nothing of rank 0 could fail
        for rank in ranks:
            reply = rank.told()
            assert isinstance(reply, WorkFailed)
            assert "called Iallreduce(1000 x float32, op=" in reply.text
    assert grown(three[0], before, "communicators_failed") == grown(three[0], before, "collectives_failed") == 1


def test_cancel(three: list[Nic]) -> None:
    with group(three) as ranks:
        arrays = post_on(ranks[:2])
        ranks[1].socket.send(work_queue.encode(CancelRequest(1)))
        assert both_told(ranks) == WorkFailed(1, "rank 1 cancelled Iallreduce")
        assert arrays


def test_a_process_that_has_lost_another_rank_says_so_to_all_nics(three: list[Nic]) -> None:
    with group(three) as ranks:
        arrays = post_on(ranks[:2])
        ranks[1].socket.send(work_queue.encode(CancelRequest(1, 2, "rank 2 is gone: it did not answer")))
        assert both_told(ranks) == WorkFailed(2, "rank 2 is gone: it did not answer")
        assert report(three[0]).failed[-1].at_fault == report(three[1]).failed[-1].at_fault == 2
        assert arrays


@pytest.mark.parametrize("what", ["group socket", "words", "data"])
def test_closing_a_connection_ends_the_group(three: list[Nic], what: str) -> None:
    before = three[2].counters()
    with group(three) as ranks:
        arrays = post_on(ranks[1:])
        until(lambda: grown(three[2], before, "collectives_posted") == 1)
        mine = {"group socket": ranks[2].socket, "words": ranks[2].words[0], "data": ranks[2].data[1]}[what]
        mine.close()
        assert both_told(ranks[:2]) == WorkFailed(2, "rank 2 is gone: its process left amid Iallreduce")
        until(lambda: grown(three[2], before, "communicators") == 0)
        for connection in (ranks[2].words[1], ranks[2].data[0]):
            if connection is not mine:
                connection.settimeout(WAIT_S)
                assert connection.recv(1) == b""
        del arrays
    assert grown(three[2], before, "communicators_failed") == grown(three[2], before, "collectives_failed") == 1


def test_ranks_that_leave_one_after_the_other(three: list[Nic]) -> None:
    before = [nic.counters() for nic in three]
    with group(three) as ranks:
        arrays = post_on(ranks)
        assert [rank.told() for rank in ranks] == [WorkCompletion(1)] * 3
        for rank in ranks:
            rank.close()
        assert arrays
    failed = [grown(nic, counters, "communicators_failed") for nic, counters in zip(three, before, strict=True)]
    assert failed == [0, 0, 0]


def regions(nic: Nic) -> int:
    assert nic.process is not None
    return Path(f"/proc/{nic.process.pid}/maps").read_text().count("memfd:softnic")


def test_memory_is_released_at_once(three: list[Nic]) -> None:
    gc.collect()  # objects of earlier tests, including tracebacks
    before = [regions(nic) for nic in three]
    with group(three) as ranks:
        arrays = post_on(ranks[:2], 5_000_000)
        until(lambda: regions(three[0]) == before[0] + 1)
        ranks[1].socket.close()
        assert isinstance(ranks[0].told(), WorkFailed)
        del arrays
        gc.collect()
        until(lambda: [regions(nic) for nic in three] == before)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"number": 3}, "after request 0"),
        ({"source": (7, 0)}, "no region 7"),
        ({"result": (0, 0)}, "no region 0"),
        ({"counts": (1000, 1000, 2**40)}, "of a region of"),
        ({"counts": (1000, 1000, 1)}, "of a region of"),
        ({"counts": (-1, 1000, 1)}, "elements"),
        ({"counts": ()}, "blocks"),
        ({"dtype": "float33"}, "element type"),
        ({"algorithm": "magic"}, "algorithm"),
    ],
    ids=str,
)
def test_a_malformed_post_ends_the_group(three: list[Nic], fields: dict[str, Any], why: str) -> None:
    before = three[0].counters()
    array = softnic.zeros(2000)
    with group(three) as ranks:
        place = ranks[0].place(array)
        whole = {
            "number": 1, "call": "Iallreduce", "collective": "allreduce", "algorithm": "ring", "dtype": "float32",
            "counts": (1000, 500, 500), "source": place, "result": place, "op": "SUM", **fields,
        }  # fmt: skip
        ranks[0].socket.send(work_queue.encode(WorkRequest(**whole)))
        failed = both_told(ranks)
        assert failed.rank == 0
        assert "rank 0 posted an invalid request to its NIC" in failed.text
        assert why in failed.text
    assert grown(three[0], before, "work_requests_malformed") == 1
    assert grown(three[0], before, "collectives_posted") == 0
    assert not array.any()


@pytest.mark.parametrize("garbage", [b"\x00", b"garbage", b"\x93\x01\x01\x01", bytes(60_000), b"\xff" * 100])
def test_garbage_on_the_group_socket(three: list[Nic], garbage: bytes) -> None:
    before = three[1].counters()
    with group(three) as ranks:
        ranks[1].socket.send(garbage)
        assert "not a work request" in both_told(ranks).text
    assert grown(three[1], before, "work_requests_malformed") == 1


def test_a_killed_process(three: list[Nic]) -> None:
    """The child inherits all descriptors of its rank; the parent closes its own copies."""
    with group(three) as ranks:
        arrays = post_on(ranks)
        assert [rank.told() for rank in ranks] == [WorkCompletion(1)] * 3
        child = os.fork()
        if not child:
            signal.pause()
        ranks[2].close()
        others = post_on(ranks[:2])
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert both_told(ranks[:2]).rank == 2
        assert arrays
        assert others


def test_a_stopping_nic_reports_it() -> None:
    with running(3) as nics, group(nics) as ranks:
        arrays = post_on(ranks[:2])
        until(lambda: nics[1].counters()["collectives_posted"] == 1)
        assert nics[1].stop() == 0
        assert both_told(ranks) == WorkFailed(1, "the NIC of rank 1 was stopped")
        assert arrays


def keep_alive(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.setsockopt(plain.IPPROTO_TCP, plain.TCP_USER_TIMEOUT, 1000)
        connection.setsockopt(plain.SOL_SOCKET, plain.SO_KEEPALIVE, 1)
        connection.setsockopt(plain.IPPROTO_TCP, plain.TCP_KEEPIDLE, 1)
        connection.setsockopt(plain.IPPROTO_TCP, plain.TCP_KEEPINTVL, 1)
        connection.setsockopt(plain.IPPROTO_TCP, plain.TCP_KEEPCNT, 1)


def test_a_nic_that_is_killed() -> None:
    with running(2) as nics, group(nics) as ranks:
        for rank in ranks:
            keep_alive(rank.words.values())
        arrays = post_on(ranks[:1])
        until(lambda: nics[0].counters()["collectives_posted"] == 1)
        assert nics[1].stop(signal.SIGKILL) == -signal.SIGKILL
        reply = ranks[0].told()
        assert isinstance(reply, WorkFailed)
        assert reply.rank == 1
        assert "rank 1 is gone" in reply.text
        assert arrays


def test_a_lost_peer_ends_the_connections_that_the_process_has_kept() -> None:
    """They are not probed, and have no bytes to send: the NIC ends them with the engine's, before the peer timeout."""
    with running(2) as nics, contextlib.ExitStack() as stack:
        words, data, process = (mesh(nics) for _ in range(3))
        keep_alive([*words[0].values(), *process[0].values()])
        ranks = [
            stack.enter_context(contextlib.closing(Rank(nic, rank, words[rank], data[rank], process[rank])))
            for rank, nic in enumerate(nics)
        ]
        [kept], [other] = process[0].values(), process[1].values()
        with kept, other:
            kept.send(b"x")
            assert other.recv(1) == b"x"
            assert nics[1].stop(signal.SIGKILL) == -signal.SIGKILL
            kept.settimeout(WAIT_S)
            with pytest.raises(OSError, match="did not answer for ") as caught:
                kept.recv(1)
            assert caught.value.errno == errno.ETIMEDOUT
            assert isinstance(ranks[0].told(), WorkFailed)


def test_invalid_groups_are_refused(three: list[Nic]) -> None:
    words, data = mesh(three[:2]), mesh(three[:2])
    ours, nics = plain.socketpair(plain.AF_UNIX, plain.SOCK_SEQPACKET)
    wrong, wrongs = plain.socketpair()
    number, other = stream_of(words[0][1].fileno()).stream, stream_of(data[0][1].fileno()).stream

    def refused(
        why: str, *descriptor: int, rank: int = 0, words: list[int], data: list[int], process: Sequence[int] = ()
    ) -> None:
        with three[0].client() as client, pytest.raises(OSError, match=why) as caught:
            client.call(control.Join(rank, words, data, process=list(process)), *descriptor)
        assert caught.value.errno in (errno.EINVAL, errno.EBADF)

    with ours, nics, wrong, wrongs:
        refused("missing", words=[0, number], data=[0, other])
        refused("pair of packets", wrongs.fileno(), words=[0, number], data=[0, other])
        refused("no stream 99", nics.fileno(), words=[0, 99], data=[0, other])
        refused("two streams", nics.fileno(), words=[0, number], data=[0, number])
        refused("two streams", nics.fileno(), words=[0, number], data=[0])
        refused("two streams", nics.fileno(), words=[0, number], data=[0, other], process=[0])
        refused("two streams", nics.fileno(), words=[0, number], data=[0, other], process=[0, other])
        refused("no stream 99", nics.fileno(), words=[0, number], data=[0, other], process=[0, 99])
        refused("connections to other ranks", nics.fileno(), words=[number, 0], data=[0, other])
        refused("connections to other ranks", nics.fileno(), rank=2, words=[0, number], data=[0, other])
        with three[0].server() as listening:
            refused("not connected", nics.fileno(), words=[0, stream_of(listening.fileno()).stream], data=[0, other])
        words[0][1].send(b"x")  # the refused descriptors are unchanged
        assert words[1][0].recv(1) == b"x"
    for side in (*words, *data):
        for connection in side.values():
            connection.close()


def test_streams_of_a_group_belong_to_the_nic(three: list[Nic]) -> None:
    with group(three[:2]) as ranks:
        data = ranks[0].data[1]
        for option in (
            (plain.IPPROTO_IP, plain.IP_TOS, 0x28),
            (plain.IPPROTO_TCP, plain.TCP_NODELAY, 0),
            (socket.SOL_NIC, socket.NIC_BLOCKS, 0),
        ):
            with pytest.raises(OSError, match="NIC's own"):
                data.setsockopt(*option)
        data.setsockopt(plain.SOL_SOCKET, plain.SO_KEEPALIVE, 1)
        data.send(b"nobody reads this")
        arrays = [softnic.zeros(1000) for _ in ranks]
        for rank, array in zip(ranks, arrays, strict=True):
            array[:] = 1
            rank.post(array, array)
        assert [rank.told() for rank in ranks] == [WorkCompletion(1)] * 2
        assert all((array == 2).all() for array in arrays)
        until(lambda: socket.info(data).bytes_sent == 4000)


def report(nic: Nic) -> CollectivesInfo:
    with nic.client() as client:
        found: CollectivesInfo = client.call(QueryCollectives())
    return found


def test_a_nic_reports_what_its_ranks_wait_for_and_their_last_failure(three: list[Nic]) -> None:
    with group(three) as ranks:
        long, short = contributions(2, 66)[0], contributions(2, 33)[0]
        ranks[0].post(long, long)
        until(lambda: bool(report(three[0]).communicators[0].operations))
        [mine], [theirs] = (report(nic).communicators for nic in three[:2])
        assert (mine.rank, mine.size, mine.posted, mine.pid) == (0, 3, 1, os.getpid())
        assert (theirs.posted, theirs.operations) == (0, [])
        assert mine.state in ("R", "S")
        assert [operation.call for operation in mine.operations] == ["Iallreduce(66 x float32, op=SUM)"]
        there = next(link for link in mine.links if link.rank == 1)
        back = next(link for link in theirs.links if link.rank == 0)
        assert (there.expected, back.expected) == (1, 0)
        assert (there.local, there.remote) == (back.remote, back.local)
        ranks[1].post(short, short)
        until(lambda: all(report(nic).failed for nic in three[:2]))
        failed = [report(nic).failed[-1] for nic in three[:2]]
        assert [each.operations[0].call for each in failed] == [
            "Iallreduce(66 x float32, op=SUM)",
            "Iallreduce(33 x float32, op=SUM)",
        ]
        assert set(failed[0].ports) & {(remote, local) for local, remote in failed[1].ports}
        until(lambda: bool(report(three[2]).failed))
        ranks[2].post(long, long)
        until(lambda: bool(report(three[2]).failed[-1].operations))
        [later] = report(three[2]).failed[-1].operations
        assert (later.number, later.call) == (1, "Iallreduce(66 x float32, op=SUM)")
