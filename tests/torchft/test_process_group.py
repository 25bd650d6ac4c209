"""The process group of torchft: its calls, and what one epoch leaves to the next."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster
from softnic.comm.bootstrap.discovery import exchange_addresses
from softnic.comm.bootstrap.launch import NOWHERE, Launch
from softnic.comm.bootstrap.mesh import MeshBuilder
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.errors import CommError
from softnic.comm.transport import Transport
from softnic.mpi.communicator import Communicator
from softnic.mpi.state import CommunicatorState
from tests import needs

torch: Any = needs.module("torch")
needs.module("torchft")

import torch.distributed as dist
from torch.distributed.distributed_c10d import (  # type: ignore[attr-defined]
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOp,
    ReduceScatterOptions,
)
from torchft.process_group import create_store_client

import softnic.torch
from softnic.torchft import ProcessGroupSoftnic
from softnic.torchft.process_group import PATIENCE_S
from tests.torchft.quorums import LIMIT_S, Quorums, threads_of_groups

EPOCHS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One NIC, which all ranks of this process use."""
    before = dict(os.environ)
    with Cluster(nodes=1) as started:
        os.environ["SOFTNIC_NIC"] = started.env(0)["SOFTNIC_NIC"]
        yield started
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def quorums(cluster: Cluster) -> Iterator[Callable[..., Quorums]]:  # noqa: ARG001 - its NIC
    with ExitStack() as stack:

        def make(members: int, **options: Any) -> Quorums:
            made = Quorums(members, **options)
            stack.callback(made.close)
            return made

        yield make


def summed(rank: int, group: ProcessGroupSoftnic) -> list[float]:
    values = torch.full((3,), float(rank + 1))
    group.allreduce([values], ReduceOp.SUM).wait()
    return values.tolist()  # type: ignore[no-any-return]


def every_call(rank: int, group: ProcessGroupSoftnic) -> None:
    """Make each call of torchft's ProcessGroup, and compare the result."""
    size = group.size()
    own, total = torch.tensor([rank + 1.0]), size * (size + 1) / 2
    each = [torch.tensor([other + 1.0]) for other in range(size)]
    options: Any = ReduceScatterOptions()
    options.reduceOp = ReduceOp.SUM

    given = own.clone()
    assert group.allreduce([given], AllreduceOptions()).wait()
    assert given == total
    pair = [own.clone(), 2 * own]
    group.allreduce_coalesced(pair, AllreduceCoalescedOptions()).wait()
    assert (pair[0], pair[1]) == (total, 2 * total)
    outputs = [torch.zeros(1) for _ in range(size)]
    group.allgather([outputs], [own], AllgatherOptions()).wait()
    assert outputs == each
    output = torch.zeros(size)
    group.allgather_into_tensor_coalesced([output], [own], AllgatherOptions()).wait()
    assert output.tolist() == torch.cat(each).tolist()
    group.alltoall_base(output, torch.arange(size) + 10.0 * rank, [1] * size, [1] * size, AllToAllOptions()).wait()
    assert output.tolist() == [10.0 * other + rank for other in range(size)]
    assert group.barrier(BarrierOptions()).wait()
    given = own.clone()
    group.broadcast([given], BroadcastOptions()).wait()
    assert given == 1
    given = own.clone()
    group.broadcast_one(given, size - 1).wait()
    assert given == size
    output = torch.zeros(1)
    group.reduce_scatter([output], [[own * other for other in range(size)]], options).wait()
    assert output == total * rank
    group.reduce_scatter_tensor_coalesced([output], [torch.arange(size) * own], options).wait()
    assert output == total * rank
    if size > 1:
        to, source = (rank + 1) % size, (rank - 1) % size
        sent = group.send([own], to, 7)
        group.recv([output], source, 7).wait()
        sent.wait()
        assert output == source + 1
    group.reduce([given], root=0).wait()
    assert group.errored() is None


@pytest.mark.parametrize("size", [1, 3])
def test_every_call(quorums: Callable[..., Quorums], size: int) -> None:
    made = quorums(size)
    made.configure()
    made.run(every_call)
    assert [group.size() for group in made.members] == [size] * size
    assert made.members[0].getBackendName() == "torchft-softnic"


def test_ranks_come_go_and_change_places(quorums: Callable[..., Quorums]) -> None:
    made = quorums(3)
    for members in ([0, 1], [2, 0, 1], [1, 0], [1], [0, 1, 2]):
        made.configure(members)
        size = len(members)
        assert made.run(summed, members) == [[size * (size + 1) / 2] * 3] * size


def test_calls_before_the_first_epoch_and_after_the_last_fail(quorums: Callable[..., Quorums]) -> None:
    made = quorums(1)
    (group,) = made.members
    for _ in range(2):
        with pytest.raises(RuntimeError, match="process group not initialized"):
            summed(0, group)
        made.configure()
        assert summed(0, group) == [1.0] * 3
        group.shutdown()


def test_an_abort_ends_calls_in_progress_on_all_ranks(quorums: Callable[..., Quorums]) -> None:
    made = quorums(3)
    made.configure()

    def wait_in_vain(_: int, group: ProcessGroupSoftnic) -> None:
        group.recv([torch.zeros(1)], 0, 1).wait()

    waiting = made.start(wait_in_vain, [1, 2])
    time.sleep(0.2)  # so that they wait; the test passes as well if they do not yet
    made.members[1].abort()
    for call in waiting:
        with pytest.raises(RuntimeError, match="rank 1 aborted the group"):
            call.result(5)
    assert "rank 1 aborted the group" in str(made.members[1].errored())
    assert "rank 1 aborted the group" in str(made.members[2].errored())
    with pytest.raises(RuntimeError, match="rank 1 aborted the group"):
        summed(2, made.members[2])
    made.configure()
    assert [group.errored() for group in made.members] == [None] * 3
    assert made.run(summed) == [[6.0] * 3] * 3


def test_an_abort_is_known_on_ranks_without_a_call(quorums: Callable[..., Quorums]) -> None:
    made = quorums(2)
    made.configure()
    made.members[0].abort()
    until = time.monotonic() + 30
    while made.members[1].errored() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert "rank 0 aborted the group" in str(made.members[1].errored())


def test_a_timeout_ends_the_epoch(quorums: Callable[..., Quorums]) -> None:
    made = quorums(2)
    made.configure()
    for group in made.members:
        group.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError, match=r"recv took longer than the timeout of 0\.2 s"):
        made.members[1].recv([torch.zeros(1)], 0, 1).wait()
    assert "timeout of 0.2 s" in str(made.members[1].errored())
    with pytest.raises(RuntimeError, match=r"timeout of 0\.2 s"):
        made.run(summed)
    for group in made.members:
        group.set_timeout(timedelta(seconds=30))
    made.configure()
    assert made.run(summed) == [[3.0] * 3] * 2


def test_a_rank_that_does_not_come_is_an_error_and_the_next_quorum_works(quorums: Callable[..., Quorums]) -> None:
    made = quorums(2, timeout_s=0.5)
    group = made.members[0]
    with pytest.raises(RuntimeError, match=r"configure: .*rank 1 has not joined"):
        group.configure(made.address(), "replica", 0, 2)
    assert "rank 1" in str(group.errored())
    for each in made.members:
        each.set_timeout(timedelta(seconds=30))
    made.configure()
    assert made.run(summed) == [[3.0] * 3] * 2


def test_a_member_that_has_died_since_it_asked_for_the_quorum_is_not_waited_for(
    quorums: Callable[..., Quorums],
) -> None:
    """Members of a lighthouse's quorum come at once, or have died; patience grows where that was wrong."""
    made = quorums(3)
    for attempt, patience in enumerate((PATIENCE_S, 2 * PATIENCE_S)):
        address, began = made.address(), time.monotonic()
        waiting = made.start(lambda rank, group, to=address: group.configure(to, "r", rank, 3, quorum_id=7), [0, 1])  # type: ignore[misc]
        for each in waiting:
            with pytest.raises(RuntimeError, match=r"configure: ranks \[2\] of this quorum have not come"):
                each.result(LIMIT_S)
        assert time.monotonic() - began >= patience, attempt
        assert "have not come" in str(made.members[0].errored())
    address = made.address()
    made.run(lambda rank, group: group.configure(address, "r", rank, 2, quorum_id=8), [0, 1])
    assert made.run(summed, [0, 1]) == [[3.0] * 3] * 2


def test_a_member_that_comes_late_is_waited_for_while_others_come(quorums: Callable[..., Quorums]) -> None:
    made = quorums(3)
    address = made.address()

    def come(rank: int, group: ProcessGroupSoftnic) -> None:
        time.sleep(0.8 * PATIENCE_S * rank)
        group.configure(address, "r", rank, 3, quorum_id=7)

    made.run(come)
    assert made.run(summed) == [[6.0] * 3] * 3


def test_one_address_serves_a_second_attempt(quorums: Callable[..., Quorums]) -> None:
    """As after an attempt that failed on some ranks only."""
    made = quorums(2)
    address = made.address()
    for _ in range(2):
        made.run(lambda rank, group: group.configure(address, "replica", rank, 2))
        assert made.run(summed) == [[3.0] * 3] * 2


def test_a_rank_that_reconfigures_ends_calls_of_the_former_epoch(quorums: Callable[..., Quorums]) -> None:
    made = quorums(2)
    made.configure()
    (waiting,) = made.start(lambda _, group: group.recv([torch.zeros(1)], 0, 1).wait(), [1])
    made.members[0].configure(made.address(), "replica", 0, 1)
    with pytest.raises(RuntimeError, match="rank 0 has left"):
        waiting.result(5)
    assert summed(0, made.members[0]) == [1.0] * 3


@pytest.mark.slow
def test_epochs_leave_nothing_behind(quorums: Callable[..., Quorums], cluster: Cluster) -> None:
    made = quorums(2)

    def left() -> tuple[int, list[str], int]:
        gc.collect()
        files = len(list(Path("/proc/self/fd").iterdir()))
        return files, threads_of_groups(), len(cluster.stats(0).streams)

    def settled(before: tuple[int, list[str], int]) -> tuple[int, list[str], int]:
        until = time.monotonic() + 30
        while (now := left()) != before and time.monotonic() < until:
            time.sleep(0.05)
        return now

    made.configure()
    made.run(summed)
    for group in made.members:
        group.shutdown()
    before = settled((left()[0], [], 0))
    for epoch in range(EPOCHS):
        made.configure([0, 1] if epoch % 3 else [1, 0])
        assert made.run(summed) == [[3.0] * 3] * 2
        if epoch % 5 == 0:
            made.members[epoch % 2].abort()
    for group in made.members:
        group.shutdown()
    assert settled(before) == before


def test_compression_outlives_epochs(quorums: Callable[..., Quorums]) -> None:
    made = quorums(2)
    for group in made.members:
        softnic.torch.compress(group, "bounded:10")
    for _ in range(2):
        made.configure()

        def ratio(rank: int, group: ProcessGroupSoftnic) -> float:
            values = torch.linspace(-1, 1, 100_000) * (rank + 1)
            group.allreduce([values], ReduceOp.SUM).wait()
            return softnic.torch.stats(group).ratio

        assert min(made.run(ratio)) > 1.5
    for group in made.members:
        softnic.torch.compress(group, None)
        assert group.parent.compression.codec is None


def test_settings_are_taken_and_figures_refused_before_the_first_epoch() -> None:
    group = ProcessGroupSoftnic()
    softnic.torch.compress(group, "rht:4")
    assert group.compression.codec == "rht:4"
    with pytest.raises(ValueError, match="it has to be configured"):
        softnic.torch.stats(group)


def test_every_attempt_to_connect_has_an_epoch_of_its_own(quorums: Callable[..., Quorums]) -> None:
    made, found = quorums(2), []
    address = made.address()
    stores = [create_store_client(address, timedelta(seconds=30)) for _ in range(2)]  # a thread cannot use another's
    for _ in range(2):
        exchanges = [StoreExchange(store, "world") for store in stores]
        made.run(lambda rank, _, of=exchanges: of[rank].begin(rank, 2, 30.0))  # type: ignore[misc]
        assert exchanges[0].epoch == exchanges[1].epoch != ""
        found.append(exchanges[0].epoch)
    assert found[0] != found[1]


def test_a_stale_process_is_refused_by_the_next_epoch(quorums: Callable[..., Quorums]) -> None:
    """It has the addresses of the present ranks, and comes before the rank whose place it claims."""
    made, address = quorums(1), quorums(1).address()
    store = create_store_client(address, timedelta(seconds=30))
    (present,) = made.start(lambda rank, group: group.configure(address, "replica", rank, 2))
    with exchange_addresses(store, "world", Launch(1, (NOWHERE,) * 2, "test", 30)) as found:
        target, (host, _) = found.launch.addresses
        stale = replace(found.launch, addresses=(target, (host, 0)), epoch="of the former quorum")
        with pytest.raises(CommError, match="is a rank of another start than rank 0"):
            MeshBuilder(stale, Transport()).run()
        comm = Communicator(CommunicatorState(found.launch, found.transport, found.listener))
        comm.Init()
        present.result(30)
        comm.Free()


def test_it_serves_functional_collectives(quorums: Callable[..., Quorums]) -> None:
    made = quorums(1)
    stores: Any = dist  # torch's stubs leave its stores out
    dist.init_process_group("gloo", rank=0, world_size=1, store=stores.HashStore())
    try:
        group: Any = made.members[0].register("test_functional")
        made.configure()
        values = torch.ones(4)
        summed = dist._functional_collectives.all_reduce(values, "sum", group)
        assert torch.equal(summed, values)
        group.unregister()
    finally:
        dist.destroy_process_group()
