"""Sums by rounds of messages in a process group: long ones, several at a time, other types, and a rank that leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from softnic import Cluster, gradients
from softnic.gradients.rounds import MessageMethod, Rounds, RoundsPlace
from tests import needs

torch: Any = needs.module("torch")
needs.module("torchft")

from torch.distributed.distributed_c10d import ReduceOp

from softnic.torch import message_rounds
from softnic.torchft import ProcessGroupSoftnic
from softnic.torchft.process_group import summed_by
from tests.torchft.quorums import Quorums


@pytest.fixture(scope="module")
def nic() -> Iterator[None]:
    """One NIC, which all ranks of this process use."""
    before = dict(os.environ)
    with Cluster(nodes=1) as started:
        os.environ["SOFTNIC_NIC"] = started.env(0)["SOFTNIC_NIC"]
        yield
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def three(nic: None) -> Iterator[Quorums]:  # noqa: ARG001
    made = Quorums(3)
    made.configure()
    yield made
    made.close()


def summed(group: ProcessGroupSoftnic, tensor: Any, text: str, kept: Any) -> Any:
    """Start a sum."""
    method = gradients.get(text)
    assert isinstance(method, MessageMethod)
    with summed_by(lambda gradient, place: method.rounds(gradient, kept, place)) as call:
        work = group.allreduce([tensor], ReduceOp.SUM)
    assert call.taken
    return work


def drawn(rank: int, count: int) -> Any:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


@pytest.mark.parametrize("text", ["feedback:rht:4", "sparseloco:0.02,2"])
def test_long_sums_run_beside_others(three: Quorums, text: str) -> None:
    counts = [1_000_000, 3, 70_000, 300_001]

    def body(rank: int, group: ProcessGroupSoftnic) -> Any:
        given, kept = [drawn(rank, count) for count in counts], [np.zeros(count, np.float32) for count in counts]
        exact, works = [], []
        for tensor, residual in zip(given, kept, strict=True):
            works.append(summed(group, tensor, text, residual))
            exact.append(torch.full((5,), float(rank)))
            works.append(group.allreduce([exact[-1]], ReduceOp.SUM))
        for work in works:
            work.wait()
        assert all(each.tolist() == [3.0] * 5 for each in exact)
        return [tensor.numpy() for tensor in given], kept

    found = three.run(body)
    for index, count in enumerate(counts):
        assert len({sums[index].tobytes() for sums, _ in found}) == 1
        left = np.sum([kept[index] for _, kept in found], axis=0)
        went_in = np.sum([drawn(rank, count).numpy() for rank in range(3)], axis=0)
        np.testing.assert_allclose(found[0][0][index] + left, went_in, atol=1e-4)


def test_elements_of_half_the_width_are_summed_as_float32(three: Quorums) -> None:
    def body(rank: int, group: ProcessGroupSoftnic) -> Any:
        tensor = drawn(rank, 5000).to(torch.bfloat16).view(50, 100).T
        kept = np.zeros(5000, np.float32)
        summed(group, tensor, "feedback:rht:4", kept).wait()
        return tensor.T.reshape(-1).float().numpy(), kept

    found = three.run(body)
    assert len({sums.tobytes() for sums, _ in found}) == 1
    went_in = np.sum([drawn(rank, 5000).to(torch.bfloat16).float().numpy() for rank in range(3)], axis=0)
    left = np.sum([kept.reshape(100, 50).T.ravel() for _, kept in found], axis=0)
    np.testing.assert_allclose(found[0][0] + left, went_in, atol=0.05)


def test_a_rank_that_leaves_is_named_by_those_that_wait_for_it(three: Quorums) -> None:
    def body(rank: int, group: ProcessGroupSoftnic) -> str:
        if rank == 2:
            group.shutdown()
            return ""
        with pytest.raises(RuntimeError) as caught:
            summed(group, drawn(rank, 10_000), "feedback:rht:4", np.zeros(10_000, np.float32)).wait()
        return str(caught.value)

    assert all("rank 2" in text for text in three.run(body)[:2])


@pytest.mark.parametrize("long", [False, True])
def test_messages_that_are_none_of_the_method_end_the_group(
    three: Quorums, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    monkeypatch.setattr(message_rounds, "_SLACK", 16)

    def odd(gradient: Any, place: RoundsPlace) -> Rounds:
        messages = [bytes(8 * gradient.size + 17 if long else 3)] * place.size
        yield messages
        yield messages
        raise AssertionError("both were taken")

    def body(rank: int, group: ProcessGroupSoftnic) -> str:
        kept, tensor = np.zeros(100, np.float32), drawn(rank, 100)
        if rank:
            work = summed(group, tensor, "feedback:rht:4", kept)
        else:
            with summed_by(odd):
                work = group.allreduce([tensor], ReduceOp.SUM)
        with pytest.raises(RuntimeError) as caught:
            work.wait()
        return str(caught.value)

    found = three.run(body)
    assert any("where a method's message" in text if long else "ranks differ in settings" in text for text in found)
