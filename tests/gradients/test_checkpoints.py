"""Properties of every method: training continues from a checkpoint bit by bit, and buckets may be of any sizes."""

from __future__ import annotations

import pickle

import pytest

from softnic import gradients
from softnic.gradients import Floats, MethodError
from softnic.mpi.communicator import Communicator
from tests.gradients.feeding import bits, given
from tests.mpi.ranks import run

METHODS = [
    "exact",
    "compressed:bounded:10",
    "feedback:bounded:8",
    "feedback:bfp:4",
    "feedback:relative:0",
    "sparse-gd:0.05",
    "dgc:0.05,warmup=4",
    "dgc:0.05,clip=0.5,nesterov=1,floor=10",
    "scalecom:0.05",
    "scalecom:0.05,beta=0.5",
    "sparseloco:0.05,chunk=100",
]


@pytest.mark.parametrize("text", METHODS)
def test_training_continues_from_a_checkpoint_bit_by_bit(text: str) -> None:
    def program(comm: Communicator) -> tuple[bytes, bytes]:
        method = gradients.get(text)
        for step in range(3):
            method.average(comm, given(comm.rank, step))
        saved = pickle.dumps(method.state_dict())
        ends = []
        for each in (method, gradients.get(text)):
            if each is not method:
                each.load_state_dict(pickle.loads(saved))
            results = [given(comm.rank, step) for step in range(3, 6)]
            for result in results:
                each.average(comm, result)
            ends.append(bits(results) + pickle.dumps(each.state_dict()))
        return ends[0], ends[1]

    for one, other in run(2, program):
        assert one == other


def test_a_checkpoint_is_a_copy() -> None:
    def program(comm: Communicator) -> tuple[bytes, bytes]:
        method = gradients.get("sparse-gd:0.05")
        method.average(comm, given(comm.rank))
        state = method.state_dict()
        before = pickle.dumps(state)
        method.average(comm, given(comm.rank, 1))
        return before, pickle.dumps(state)

    for before, after in run(2, program):
        assert before == after


@pytest.mark.parametrize(
    "text", ["sparse-gd:0.05", "dgc:0.05", "scalecom:0.05", "feedback:bounded:8", "feedback:relative:0"]
)
def test_buckets_may_be_of_any_sizes(text: str) -> None:
    """torch rebuilds them after the first step."""

    def program(comm: Communicator) -> tuple[list[dict[str, Floats]], list[dict[str, Floats]]]:
        together, apart = gradients.get(text), gradients.get(text)
        ends: tuple[list[dict[str, Floats]], list[dict[str, Floats]]] = ([], [])
        for step in range(4):
            one, other = given(comm.rank, step), given(comm.rank, step)
            together.average(comm, one)
            names = list(other)[:: -1 if step else 1]
            for part in (names[:1], names[1:]):
                apart.average(comm, {name: other[name] for name in part})
            ends[0].append(one)
            ends[1].append({name: other[name] for name in one})
        return ends

    for one, other in run(3, program):
        assert bits(one) == bits(other)


def test_state_of_another_model_is_refused() -> None:
    def program(comm: Communicator) -> None:
        method = gradients.get("dgc:0.1")
        method.average(comm, given(comm.rank))
        other = gradients.get("dgc:0.1")
        other.load_state_dict(method.state_dict())
        with pytest.raises(MethodError, match="300 elements of first"):
            other.average(comm, {"first": given(comm.rank)["fourth"]})

    run(1, program)
