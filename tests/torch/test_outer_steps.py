"""Outer steps of torch models: nothing lost, equal weights, and the outer optimizer of gradients.outer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from softnic import gradients
from softnic.gradients import MethodError
from softnic.gradients.outer import Outer
from softnic.mpi.communicator import Communicator
from softnic.torch.backend import SoftnicGroup
from softnic.torch.outer_steps import OuterSteps
from tests.mpi import ranks
from tests.torch.groups import run

MODEL = torch.nn.Linear(70, 60)
METHODS = ["feedback:rht:4", "feedback:rht:3", "sparseloco:0.1,2,beta=1"]


def moved(rank: int, step: int, model: Any) -> list[Any]:
    """Make an inner step that depends on the rank and the step alone. Returns its way, which points back."""
    draw = torch.Generator().manual_seed(100 * rank + step)
    ways = [0.1 * torch.randn(each.shape, generator=draw) for each in model.parameters()]
    with torch.no_grad():
        for each, way in zip(model.parameters(), ways, strict=True):
            each -= way.to(each.dtype)
    return ways


def sgd(model: Any, rate: float = 1.0, momentum: float = 0.0) -> Any:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 3])
def test_nothing_is_lost_and_all_ranks_have_the_same_weights(size: int, method: str) -> None:
    def train(group: SoftnicGroup) -> Any:
        model = copy.deepcopy(MODEL)
        outer = OuterSteps(model, sgd(model), 2, method=method, group=group)
        way, made = torch.zeros_like(MODEL.weight), []
        for step in range(6):
            way += moved(group.rank(), step, model)[0]
            made.append(outer.step())
        assert all(each.grad is None for each in model.parameters())
        return model.state_dict(), way.detach().numpy().ravel(), outer.state_dict()["kept"], made

    found = run(size, train)
    weights = [each["weight"].numpy() for each, *_ in found]
    assert len({each.tobytes() for each in weights}) == 1
    assert all(list(kept) == ["weight"] and made == [False, True] * 3 for _, _, kept, made in found)
    came_out = size * (MODEL.weight.detach().numpy() - weights[0]).ravel()
    left = np.sum([kept["weight"].numpy() for _, _, kept, _ in found], axis=0)
    assert np.abs(left).max() > 1e-3
    np.testing.assert_allclose(came_out + left, np.sum([way for _, way, *_ in found], axis=0), atol=1e-4)


@pytest.mark.parametrize("method", ["feedback:rht:3", "sparseloco:0.1,2,beta=1"])
def test_own_weights_have_all_that_was_not_sent_until_the_end(method: str) -> None:
    size = 3

    def train(group: SoftnicGroup) -> Any:
        model = copy.deepcopy(MODEL)
        outer = OuterSteps(model, sgd(model), 2, method=method, group=group, own=True)
        way = torch.zeros_like(MODEL.weight)
        for step in range(7):
            way += moved(group.rank(), step, model)[0]
            outer.step()
        before = model.weight.detach().clone()
        outer.finish()
        return way.detach().numpy(), before.numpy(), model.weight.detach().numpy(), outer.state_dict()["kept"]

    found = run(size, train)
    start, ways = MODEL.weight.detach().numpy(), np.sum([way for way, *_ in found], axis=0)
    assert len({before.tobytes() for _, before, *_ in found}) == size
    np.testing.assert_allclose(np.sum([start - before for _, before, *_ in found], axis=0), ways, atol=1e-4)
    assert len({after.tobytes() for _, _, after, _ in found}) == 1
    assert all(kept == {} for *_, kept in found)
    missing = ways / size - (start - found[0][2])
    assert np.sqrt(np.mean(missing**2)) < 0.2 * np.sqrt(np.mean((ways / size) ** 2))  # what rht:4 rounds off


def test_the_outer_optimizer_is_dilocos() -> None:
    """As softnic.gradients.outer has it, but for the order of additions."""

    def by_torch(group: SoftnicGroup) -> Any:
        model = copy.deepcopy(MODEL)
        outer = OuterSteps(model, sgd(model, 0.7, 0.9), 2, group=group)
        for step in range(4):
            moved(group.rank(), step, model)
            outer.step()
        return model.weight.detach().numpy().ravel()

    def by_numpy(comm: Communicator) -> Any:
        model = copy.deepcopy(MODEL)
        outer = Outer(gradients.get("feedback:rht:4"), {"weight": model.weight.detach().view(-1).numpy()}, 2)
        for step in range(4):
            moved(comm.rank, step, model)
            outer.step(comm)
        return model.weight.detach().numpy().ravel()

    theirs, ours = ranks.run(2, by_numpy)[0], run(2, by_torch)[0]
    assert np.isclose(ours, theirs, atol=1e-5).mean() > 0.99  # a sum between two values of the codec may become either


def test_training_continues_from_a_state() -> None:
    def train(group: SoftnicGroup) -> Any:
        model = copy.deepcopy(MODEL)
        optimizer = sgd(model, 0.7, 0.9)
        outer = OuterSteps(model, optimizer, 2, group=group)
        saved: Any = None
        for step in range(6):
            if step == 3:
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), outer.state_dict()))
            moved(group.rank(), step, model)
            outer.step()
        again = torch.nn.Linear(70, 60)
        optimizer = sgd(again, 0.7, 0.9)
        continued = OuterSteps(again, optimizer, 2, group=group)
        for each, state in zip((again, optimizer, continued), saved, strict=True):
            each.load_state_dict(state)
        for step in range(3, 6):
            moved(group.rank(), step, again)
            continued.step()
        return torch.equal(model.weight, again.weight)

    assert run(2, train) == [True, True]


def test_weights_of_half_the_width() -> None:
    def train(group: SoftnicGroup) -> Any:
        model = copy.deepcopy(MODEL).to(torch.bfloat16)
        outer = OuterSteps(model, sgd(model), 1, group=group)
        moved(group.rank(), 0, model)
        outer.step()
        return model.weight.float().detach().numpy(), model.weight.dtype

    found = run(2, train)
    assert (found[0][0] == found[1][0]).all()
    assert found[0][1] == torch.bfloat16
    mean = np.mean([moved(rank, 0, copy.deepcopy(MODEL))[0].numpy() for rank in range(2)], axis=0)
    error = MODEL.weight.detach().numpy() - mean - found[0][0]
    assert np.sqrt(np.mean(error**2)) < 0.2 * np.sqrt(np.mean(mean**2))  # rht:4 twice


def test_what_does_not_fit_is_refused() -> None:
    def refused(group: SoftnicGroup) -> None:
        with pytest.raises(MethodError, match="every step or less often"):
            OuterSteps(MODEL, sgd(MODEL), 0, group=group)
        with pytest.raises(MethodError, match="outer steps are by"):
            OuterSteps(MODEL, sgd(MODEL), 1, method="exact", group=group)
        with pytest.raises(ValueError, match="not a process group"):
            OuterSteps(MODEL, sgd(MODEL), 1, group=7)
        outer = OuterSteps(MODEL, sgd(MODEL), 1, group=group)
        with pytest.raises(MethodError, match="other parameters"):
            outer.load_state_dict({"steps": 0, "anchors": {}, "kept": {}})

    run(1, refused)
