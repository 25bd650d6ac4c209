"""Collectives in virtual time, held against numpy: every collective, algorithm, codec and operation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic.codecs.combine import BFLOAT16, narrow
from softnic.collectives import schedule
from softnic.collectives.elements import named
from softnic.collectives.operations import AVG, MAX, MIN, PROD, SUM, ArrayOp
from softnic.collectives.schedule import ALGORITHMS, COLLECTIVES
from softnic.ipc.work_queue import StagedPart
from softnic.tcp.config import TcpConfig

from .byhand import executed
from .group import LOSSY, Group

Array = npt.NDArray[Any]
CODECS = ("inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:32", "mx:e2m3", "auto:bounded:8")
SITES = {5: "sites:0+3/1-2+4", 7: "sites:0-1/2+4(3)/5-6"}
ALL = tuple(itertools.product(COLLECTIVES, (*ALGORITHMS, "hierarchical:3")))


def contributions(size: int, count: int, dtype: str = "float32", seed: int = 1) -> list[Array]:
    rng = np.random.default_rng(seed)
    if dtype == "bfloat16":
        return [narrow(array, np.empty(count, BFLOAT16)) for array in contributions(size, count, seed=seed)]
    if np.dtype(dtype).kind == "f":
        return [(rng.standard_normal(count) * 0.1).astype(dtype) for _ in range(size)]
    return [rng.integers(0, 100, count).astype(dtype) for _ in range(size)]


def fields_of(collective: str, size: int, op: ArrayOp = SUM) -> dict[str, Any]:
    """What a Post says beside the memory."""
    fields: dict[str, Any] = {"op": op.name} if collective not in ("allgather", "bcast") else {}
    if collective in ("reduce", "bcast"):
        fields["root"] = size // 2
    return fields


def check(
    group: Group,
    collective: str,
    algorithm: str,
    sources: list[Array],
    *,
    op: ArrayOp = SUM,
    in_place: bool = False,
    staged: bool = False,
    **fields: Any,
) -> list[Array]:
    """Runs a collective, and finds with every rank the bits that it promises. Returns what they have."""
    size = len(sources)
    fields = {**fields_of(collective, size, op), **fields}
    fields = {"algorithm": algorithm, **fields}
    if staged:
        results = group.staged(collective, sources, **fields)
    else:
        results = group.collective(collective, sources, in_place=in_place, **fields)
    root, codec, counts = fields.get("root", -1), fields.get("codec", ""), fields.get("counts")
    blocks = schedule.offsets(counts) if counts else schedule.blocks(collective, algorithm, sources[0].size, size)
    expected = executed(collective, algorithm, sources, op=op, root=root, codec=codec, blocks=blocks)
    for rank, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if collective == "reduce_scatter":
            assert result[blocks[rank]].tobytes() == wanted[blocks[rank]].tobytes()
        elif collective != "reduce" or rank == root:
            assert result.tobytes() == wanted.tobytes()
            if collective != "reduce":
                assert result.tobytes() == results[0].tobytes(), "ranks ended with different bits"
    return results


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("size", range(1, 10))
@pytest.mark.parametrize("count", [0, 1, 7, 1000, 100_003])
def test_sums_are_numpys(size: int, count: int, in_place: bool) -> None:
    sources = contributions(size, count, "int64")
    results = Group(size).collective("allreduce", sources, in_place=in_place, op="SUM")
    expected = np.sum(sources, axis=0, dtype=np.int64)
    for result in results:
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("size", [2, 3, 5, 9])
@pytest.mark.parametrize(("collective", "algorithm"), ALL)
def test_every_schedule(collective: str, algorithm: str, size: int) -> None:
    group = Group(size)
    for index, count in enumerate((3, 9_001, 60_011)):
        for codec in ("", CODECS[(size + index) % len(CODECS)]):
            sources = contributions(size, count, seed=count)
            check(group, collective, algorithm, sources, codec=codec)
            check(group, collective, algorithm, sources, codec=codec, in_place=True)


@pytest.mark.parametrize("codec", ["", "bounded:10"])
@pytest.mark.parametrize("size", SITES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_between_sites(collective: str, size: int, codec: str) -> None:
    group = Group(size)
    check(group, collective, SITES[size], contributions(size, 10_007), codec=codec)


def test_blocks_by_the_rates_of_ranks() -> None:
    """One rank has none, and another one half of the buffer."""
    group, counts = Group(4), (2512, 0, 5008, 2487)
    for algorithm in ("direct", "sites:0-1/2-3"):
        for codec in ("", "bounded:10", "rht:4"):
            sources = contributions(4, sum(counts))
            check(group, "allreduce", algorithm, sources, counts=counts, codec=codec)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(("collective", "algorithm"), ALL)
def test_contributions_may_come_in_parts_after_the_post(collective: str, algorithm: str, size: int) -> None:
    group = Group(size, link=LOSSY if size == 5 else None)
    for codec in ("", "bounded:10"):
        check(group, collective, algorithm, contributions(size, 60_011), codec=codec, staged=True)


@pytest.mark.parametrize(("block", "size"), [(2, 64), (0, 0), (0, 96), (0, 100_000), (-1, 64)])
def test_parts_that_no_process_stages(block: int, size: int) -> None:
    group, source = Group(2), contributions(1, 1000)[0]
    executor = group.members[0].executor
    assert executor is not None
    number = group.post(0, source, source, "allreduce", op="SUM", staged=True)
    executor.stage(StagedPart(number, 0, 128))
    for part in (StagedPart(number, block, size), StagedPart(number, 0, 128), StagedPart(number + 1, 0, 64)):
        with pytest.raises(ValueError, match="staged"):
            executor.stage(part)


@pytest.mark.parametrize("op", [SUM, PROD, MIN, MAX, AVG], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "complex128", "bool"])
def test_operations_and_element_types(op: ArrayOp, dtype: str) -> None:
    if not op.takes(named(dtype)):
        group = Group(2)
        with pytest.raises(ValueError, match="no operation"):
            group.collective("allreduce", contributions(2, 10, dtype), op=op.name)
        return
    group, sources = Group(3), contributions(3, 50_001, dtype)
    for algorithm in ("ring", "direct"):
        check(group, "allreduce", algorithm, sources, op=op)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_codecs(collective: str, codec: str) -> None:
    group, sources = Group(4), contributions(4, 200_003)
    check(group, collective, "ring", sources, codec=codec)
    if collective.startswith(("all", "reduce")) and collective != "allgather":
        check(group, collective, "direct", sources, codec=codec, op=AVG)


def test_a_reduce_gives_the_bits_of_an_allreduce() -> None:
    group, sources = Group(3), contributions(3, 10_001)
    everywhere = group.collective("allreduce", sources, op="SUM", codec="bounded:8")
    at_root = group.collective("reduce", sources, op="SUM", root=1, codec="bounded:8")
    assert at_root[1].tobytes() == everywhere[0].tobytes()


def test_blocks_of_any_length() -> None:
    counts = (0, 70_001, 3, 0)
    for codec in ("", "bfp:7"):
        for algorithm in ALGORITHMS:
            sources = contributions(4, sum(counts))
            check(Group(4), "reduce_scatter", algorithm, sources, counts=counts, codec=codec)
            check(Group(4), "allgather", algorithm, sources, counts=counts, codec=codec)


def test_raw_is_exact() -> None:
    group, sources = Group(2), contributions(2, 10_001)
    results = group.collective("allreduce", sources, op="SUM", codec="raw")
    assert results[0].tobytes() == (sources[0] + sources[1]).tobytes()


@pytest.mark.parametrize("seed", range(20))
def test_bad_links_change_no_bit(seed: int) -> None:
    size, count = 2 + seed % 4, 30_000 + seed
    collective, algorithm = ALL[seed * 7 % len(ALL)]
    group, sources = Group(size, seed=seed, link=LOSSY), contributions(size, count, seed=seed)
    for index, in_place in enumerate((False, True)):
        codec = ("", *CODECS)[(seed + index) % 6]
        check(group, collective, algorithm, sources, codec=codec, in_place=in_place)


def test_repeatable_from_its_seed() -> None:
    def run() -> tuple[float, list[dict[str, int]]]:
        group = Group(4, seed=5, link=LOSSY)
        group.collective("allreduce", contributions(4, 50_000), op="SUM", codec="bounded:10")
        return group.clock.now, [member.node.counters() for member in group.members]

    assert run() == run()


def test_heads_that_tcp_has_no_space_for_are_sent_when_it_has() -> None:
    """More words than a send buffer takes, in each direction alone: nothing else wakes the rank that has to send on.

    They are fewer than what the other rank holds before its own calls, so that all of them are sent.
    """
    buffer = 64 << 10
    config = TcpConfig(send_buffer=buffer, send_buffer_max=buffer)
    group = Group(2, link={"delay_s": 0.01}, config=config)
    arrays = [np.ones(4, np.float32) for _ in range(2)]
    count, call = 100, "Iallreduce" + "." * 8000
    for rank, member in reversed(list(enumerate(group.members))):
        assert member.executor is not None
        (peer,) = member.executor.peers
        for _ in range(count):
            group.post(rank, arrays[rank], np.empty_like(arrays[rank]), "allreduce", op="SUM", call=call)
        assert len(peer.unsent) > count * len(call) - buffer
        group.clock.run_for(group.members, 5.0)
        words = group.words[rank][1 - rank].info(group.clock.now)
        assert (words.bytes_sent > count * len(call), peer.unsent) == (True, b"")
    assert [member.completed for member in group.members] == [list(range(1, count + 1))] * 2


def test_heads_beyond_what_the_other_rank_holds_are_sent_after_its_own_calls() -> None:
    group = Group(2, link={"delay_s": 0.01})
    arrays = [np.ones(4, np.float32) for _ in range(2)]
    count, call = 200, "Iallreduce" + "." * 8000
    for rank in (1, 0):
        for _ in range(count):
            group.post(rank, arrays[rank], np.empty_like(arrays[rank]), "allreduce", op="SUM", call=call)
        group.clock.run_for(group.members, 5.0)
        words = group.words[rank][1 - rank].info(group.clock.now)
        assert (words.bytes_sent > count * len(call)) is (rank == 0)
    assert [member.completed for member in group.members] == [list(range(1, count + 1))] * 2


def test_heads_behind_those_that_are_held_are_read_with_the_calls_that_make_room() -> None:
    """Nothing arrives any more that would have the engine look again."""
    group = Group(2)
    given, count, call = np.ones(4, np.float32), 900, "Ibcast" + "." * 400
    results = [np.zeros_like(given) for _ in range(count)]
    for _ in range(count):
        group.post(0, given, given, "bcast", root=0, call=call)
        group.members[0].advance(group.clock.now)
    group.clock.run_for(group.members, 5.0)
    for result in results:
        group.post(1, result, result, "bcast", root=0, call=call)
    group.members[1].advance(group.clock.now)
    assert group.members[1].completed == list(range(1, count + 1))
    assert all(np.array_equal(result, given) for result in results)
