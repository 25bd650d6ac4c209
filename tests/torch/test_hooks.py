"""Communication hooks, with DistributedDataParallel over real NICs and with artificial buckets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from softnic import Cluster, gradients
from softnic.gradients import Gradients, Method, MethodError
from softnic.mpi.communicator import Communicator
from softnic.torch.hooks import HookState, average, hook
from tests.mpi.ranks import failures, run
from tests.mpi.test_cluster import Job


def model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 5))


def buckets(network: torch.nn.Module, rank: int, count: int = 2, dtype: torch.dtype = torch.float32) -> list[Any]:
    """Return the gradients of a model in DDP's buckets: last parameters first."""
    parameters = list(network.parameters())[::-1]
    size = -(-len(parameters) // count)
    draw = torch.Generator().manual_seed(rank)
    made = []
    for index in range(count):
        part = parameters[index * size : (index + 1) * size]
        buffer = torch.randn(sum(each.numel() for each in part), generator=draw).to(dtype)
        made.append(
            SimpleNamespace(
                buffer=lambda buffer=buffer: buffer,
                parameters=lambda part=part: part,
                index=lambda index=index: index,
                is_last=lambda index=index: index == count - 1,
            )
        )
    return made


class Recording(Method):
    """The exact mean; records its arguments."""

    name = "recording"

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        self.calls: list[list[str]] = []
        self._exact = gradients.get("exact")

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        self.calls.append(list(gradients))
        self._exact.average(comm, gradients)


@pytest.mark.slow
def test_ddp_with_hooks_over_nics(tmp_path: Path) -> None:
    """Run all tests that need processes in one job.

    The exact method equals no hook bit for bit, all methods leave ranks equal, training that resumes from a checkpoint
    equals training without a break, and bfloat16 is close.
    """
    program = f"from tests.torch.hooked import main; main(comm, {str(tmp_path / 'store')!r}, tell)"
    with Cluster(nodes=2) as cluster, Job(cluster, program) as job:
        for _ in range(2):
            for rank in range(2):
                results = job.line(rank)
                assert results == {key: True for key in results}
                assert results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("whole", [False, True])
def test_a_bucket_becomes_the_mean(dtype: torch.dtype, whole: bool) -> None:
    def program(comm: Communicator) -> tuple[list[torch.Tensor], list[list[str]]]:
        network, method = model(), Recording(whole)
        state, function = hook(method, network, comm=comm)
        futures = [function(state, bucket) for bucket in buckets(network, comm.rank, dtype=dtype)]
        return [future.wait() for future in futures], method.calls

    results = run(2, program)
    for index, bucket in enumerate(buckets(model(), 0, dtype=dtype)):
        other = buckets(model(), 1, dtype=dtype)[index]
        expected = ((bucket.buffer().float() + other.buffer().float()) / 2).to(dtype)
        for found, _ in results:
            torch.testing.assert_close(found[index], expected)
    names = (
        [["0.weight", "0.bias", "2.weight", "2.bias"]] if whole else [["2.bias", "2.weight"], ["0.bias", "0.weight"]]
    )
    assert [calls for _, calls in results] == [names, names]


def test_an_error_of_the_method_is_that_of_the_future() -> None:
    class Failing(Recording):
        def average(self, *_: Any) -> None:
            raise MethodError("it does not work")

    def program(comm: Communicator) -> None:
        network = model()
        state, function = hook(Failing(True), network, comm=comm)
        futures = [function(state, bucket) for bucket in buckets(network, comm.rank)]
        for future in futures:
            future.wait()

    assert all("it does not work" in str(error) for error in failures(2, program))


def test_parameters_of_another_model_are_refused() -> None:
    def program(comm: Communicator) -> None:
        state, function = hook(Recording(False), model(), comm=comm)
        function(state, buckets(model(), comm.rank)[0])

    assert all(isinstance(error, MethodError) for error in failures(1, program))


def test_an_aborted_back_propagation_leaves_no_buckets() -> None:
    def program(comm: Communicator) -> list[list[str]]:
        network, method = model(), Recording(True)
        state, function = hook(method, network, comm=comm)
        left = function(state, buckets(network, comm.rank)[0])
        for bucket in buckets(network, comm.rank):
            last = function(state, bucket)
        last.wait()
        assert not left.done()
        return method.calls

    assert all(len(calls) == 1 and len(calls[0]) == 4 for calls in run(2, program))


def test_average_without_ddp() -> None:
    def program(comm: Communicator) -> dict[str, torch.Tensor]:
        network = model()
        for parameter in network.parameters():
            parameter.grad = torch.full_like(parameter, float(comm.rank + 1))
        weight = network[0].weight
        weight.grad = torch.full((20, 30), float(comm.rank + 1)).T  # not contiguous
        network[2].bias.grad = None
        average(gradients.get("exact"), network, comm=comm)
        return {name: each.grad for name, each in network.named_parameters() if each.grad is not None}

    for found in run(2, program):
        assert sorted(found) == ["0.bias", "0.weight", "2.weight"]
        assert all(bool((grad == 1.5).all()) for grad in found.values())


def test_state_is_saved_and_loaded_as_torch_does(tmp_path: Path) -> None:
    def program(comm: Communicator) -> bool:
        network = model()
        states = [HookState(gradients.get("feedback:bounded:3"), network, comm) for _ in range(2)]
        for bucket in buckets(network, comm.rank):
            states[0].exchange(bucket).wait()
        path = tmp_path / f"{comm.rank}.pt"
        torch.save(states[0].state_dict(), path)
        states[1].load_state_dict(torch.load(path))
        ends = []
        for state in states:
            again = buckets(network, comm.rank + 7)
            ends.append(torch.cat([state.exchange(bucket).wait() for bucket in again]))
        return torch.equal(ends[0], ends[1])

    assert run(2, program) == [True, True]
