"""DiLoCo with error feedback: equal bits on all replicas, nothing lost, and what a quorum leaves to the next one."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from softnic import Cluster
from softnic.gradients import MethodError
from tests import needs

torch: Any = needs.module("torch")
needs.module("torchft")

from torchft.process_group import ProcessGroupGloo

from softnic.torchft import DiLoCo
from tests.torchft.replicas import LIMIT, LIMIT_S, Replica, Replicas

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated"),  # both by torchft
    pytest.mark.filterwarnings("ignore:The given buffer is not writable"),
]
METHODS = ["feedback:rht:4", "feedback:rht:3", "sparseloco:0.1,2,beta=1"]
WIDTH = 60
"""A weight has 14,400 bytes, a bias 240."""
EVERY = 4
MARK = (9, 9)
"""A call that is not made."""


@pytest.fixture(scope="module", autouse=True)
def nic() -> Iterator[None]:
    """One NIC, which all replicas use."""
    before = dict(os.environ)
    with Cluster(nodes=1) as started:
        os.environ["SOFTNIC_NIC"] = started.env(0)["SOFTNIC_NIC"]
        yield
        os.environ.clear()
        os.environ.update(before)


MODEL = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))


def built() -> Any:
    return copy.deepcopy(MODEL)


class Training:
    """A replica whose gradients do not depend on its weights."""

    def __init__(self, replica: Replica, method: str, **options: Any) -> None:
        self.replica = replica
        self._draw = torch.Generator().manual_seed(replica.number)
        self.inner = torch.optim.SGD(replica.model.parameters(), lr=0.1)
        self._whole = options.pop("whole", True)
        self.fragments = [replica.model] if self._whole else list(replica.model.children())
        outer = [torch.optim.SGD(each.parameters(), lr=1.0) for each in self.fragments]
        self.diloco = DiLoCo(replica.manager, self.fragments, self.inner, outer, EVERY, method=method, **options)
        self.way = [torch.zeros_like(each) for each in replica.model.parameters()]
        """Of this replica, as pseudo-gradients."""

    def outer_step(self) -> dict[int, bytes]:
        """Make inner steps until an outer one. Returns the weights of its fragment."""
        before = self.replica.manager.current_step()
        count = EVERY if self._whole else EVERY // 2
        for _ in range(count):
            for parameter, way in zip(self.replica.model.parameters(), self.way, strict=True):
                parameter.grad = torch.randn(parameter.shape, generator=self._draw)
                way += 0.1 * parameter.grad
            self.inner.step()
        part = self.fragments[before % len(self.fragments)]
        return {before: b"".join(each.detach().numpy().tobytes() for each in part.parameters())}

    def kept(self) -> list[Any]:
        """What is kept, of all calls."""
        return [each.copy() for _, each in sorted(self.diloco.residuals.items())]


def results(futures: list[Future[Any]]) -> list[Any]:
    return [each.result(LIMIT_S) for each in futures]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_lost_and_all_replicas_have_the_same_weights(method: str) -> None:
    ended = threading.Barrier(3)

    def train(replica: Replica) -> Any:
        training = Training(replica, method)
        with training.diloco:
            weights = [training.outer_step() for _ in range(3)]
        ended.wait(LIMIT_S)
        return weights, training.kept(), [each.numpy() for each in training.way]

    with Replicas(3) as made:
        found = results([made.start(number, built, train) for number in range(3)])
    assert len({str(weights) for weights, _, _ in found}) == 1
    assert [len(kept) for _, kept, _ in found] == [2] * 3  # of the weights; biases are summed exactly
    last = found[0][0][-1][2]
    end = [torch.from_numpy(np.frombuffer(last, np.float32)[start : start + WIDTH * WIDTH].copy())
           for start in (0, WIDTH * WIDTH + WIDTH)]  # fmt: skip
    for index, (began, weights) in enumerate(zip(list(built().parameters())[::2], end, strict=True)):
        came_out = 3 * (began.detach().numpy().ravel() - weights.numpy())
        left = np.sum([kept[index] for _, kept, _ in found], axis=0)
        went_in = np.sum([way[2 * index].ravel() for _, _, way in found], axis=0)
        assert np.abs(left).max() > 1e-3
        np.testing.assert_allclose(came_out + left, went_in, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"use_bucketization": True}, {"fragment_update_alpha": 0.5}])
def test_streaming_fragments_agree(options: dict[str, Any]) -> None:
    ended = threading.Barrier(2)

    def train(replica: Replica) -> Any:
        training = Training(replica, "feedback:rht:4", whole=False, fragment_sync_delay=1, **options)
        with training.diloco:
            weights = [training.outer_step() for _ in range(6)]
        ended.wait(LIMIT_S)
        return weights, sorted(training.diloco.residuals)

    with Replicas(2) as made:
        found = results([made.start(number, built, train) for number in range(2)])
    assert found[0][1] == found[1][1] == [(0, 0), (1, 0)]
    if "fragment_update_alpha" not in options:  # else half of the weights are a replica's own
        assert found[0][0] == found[1][0]


def test_a_discarded_step_leaves_what_was_kept() -> None:
    """Both discard the second one."""
    ended = threading.Barrier(2)

    def train(replica: Replica) -> Any:
        training = Training(replica, "feedback:rht:4")
        kept: list[list[bytes]] = []
        steps: list[int] = []
        manager, commit = replica.manager, replica.manager.should_commit

        def fails(*given: Any, **options: Any) -> bool:
            if len(steps) == 1:
                manager.report_error(RuntimeError("a test"))
            return bool(commit(*given, **options))

        manager.should_commit = fails
        with training.diloco:
            for _ in range(3):
                training.outer_step()
                steps.append(manager.current_step())
                kept.append([each.tobytes() for each in training.kept()])
        ended.wait(LIMIT_S)
        return steps, kept

    with Replicas(2) as made:
        found = results([made.start(number, built, train) for number in range(2)])
    for steps, kept in found:
        assert steps == [1, 1, 2]
        assert kept[0] == kept[1] != kept[2]


def test_what_is_kept_goes_through_a_checkpoint() -> None:
    def trained(between: str) -> bytes:
        ended = threading.Barrier(2)

        def train(replica: Replica) -> Any:
            training = Training(replica, "feedback:rht:4")
            with training.diloco:
                training.outer_step()
                saved = training.diloco.state_dict()
                if between:
                    training.diloco.residuals.clear()
                if between == "loaded":
                    training.diloco.load_state_dict(saved)
                training.outer_step()
                weights = training.outer_step()[2]
            ended.wait(LIMIT_S)
            return weights

        with Replicas(2) as made:
            found = results([made.start(number, built, train) for number in range(2)])
        assert found[0] == found[1]
        return bytes(found[0])

    assert trained("") == trained("loaded") != trained("forgotten")


def test_survivors_keep_and_a_replica_that_heals_begins_with_nothing() -> None:
    """Replica 2 ends after three outer steps, and replica 3 comes in its place. A mark stands for what is kept."""
    ended, alone, rejoined = threading.Barrier(3), threading.Event(), threading.Event()

    def train(replica: Replica) -> Any:
        number, manager = replica.number, replica.manager
        training = Training(replica, "feedback:rht:4")
        weights: dict[int, bytes] = {}
        sizes: list[int] = []
        if number == 3:
            training.diloco.residuals[MARK] = np.ones(1, np.float32)
            rejoined.set()
        with training.diloco:
            while manager.current_step() < 12:
                if number == 2 and manager.current_step() == 3:
                    return weights, sizes, True
                if number < 2 and manager.current_step() == 6:
                    alone.set()
                    rejoined.wait(LIMIT_S)
                weights |= training.outer_step()
                sizes.append(manager.num_participants())
                if number < 2 and manager.current_step() == 2:
                    training.diloco.residuals[MARK] = np.ones(1, np.float32)
        ended.wait(LIMIT_S)
        return weights, sizes, MARK in training.diloco.residuals

    with Replicas(2) as made:
        first = [made.start(number, built, train) for number in range(3)]
        assert alone.wait(LIMIT_S)
        found = results([*first, made.start(3, built, train)])
    reference = found[0][0]
    for weights, _, _ in found[1:]:
        common = [step for step in weights if step and step in reference]
        assert common
        assert all(weights[step] == reference[step] for step in common)
    assert {2, 3} <= set(found[0][1])
    assert 3 in found[3][1]
    assert [kept for _, _, kept in found] == [True, True, True, False]


@pytest.mark.parametrize("method", ["exact", "dgc:0.01", "feedback:relative:3", "rht:4"])
def test_a_method_without_rounds_is_refused(method: str) -> None:
    class Manager:
        def register_state_dict_fn(self, *_: Any) -> None:
            raise AssertionError("registered")

    optimizers = [torch.optim.SGD(MODEL.parameters(), lr=1.0) for _ in range(2)]
    with pytest.raises(MethodError):
        DiLoCo(Manager(), [built()], optimizers[0], optimizers[1], 4, method=method)


def test_another_process_group_is_refused() -> None:
    def train(replica: Replica) -> None:
        training = Training(replica, "feedback:rht:4")
        with training.diloco, pytest.raises(ValueError, match="no ProcessGroupSoftnic"):
            training.outer_step()

    with Replicas(1) as made:
        made.start(0, built, train, ProcessGroupGloo(LIMIT)).result(LIMIT_S)
