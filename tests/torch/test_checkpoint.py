"""States of torch over the NICs: every kind of tensor bit for bit, objects from a list, all members as sources."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
from collections import OrderedDict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest import TestCase

import numpy as np
import pytest

from softnic.checkpoint import CheckpointError, TrainingState
from softnic.cluster.cluster import Cluster
from tests import needs

torch = needs.module("torch")

from softnic.torch.checkpoint import SoftnicTransport, parse_metadata  # noqa: E402
from softnic.torch.members import serve_from_all  # noqa: E402
from softnic.torch.state_leaves import from_state, to_state, writable  # noqa: E402

LIMIT = timedelta(seconds=20)


class Odd(torch.Tensor):  # type: ignore[misc,name-defined]
    pass


class Plan:
    def __init__(self, rate: float) -> None:
        self.rate = rate


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Cluster(nodes=1) as cluster:
        for name, value in cluster.env(0).items():
            monkeypatch.setenv(name, value)
        yield


def copied(state: TrainingState) -> TrainingState:
    return TrainingState([(leaf, array.copy()) for leaf, array in zip(state.leaves, state.arrays, strict=True)])


def through(tree: Any, *classes: type) -> Any:
    return from_state(copied(to_state(tree)), classes)


def a_tree() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.LayerNorm(30), torch.nn.Linear(30, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(3):
        model(torch.randn(5, 40)).sum().backward()
        optimizer.step()
        schedule.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "random": torch.get_rng_state(),
        "steps": [3, 1.5, None, "text", (1, {2}), np.float64(3.5)],
    }


def assert_same(one: Any, two: Any) -> None:
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.requires_grad) == (two.dtype, two.shape, two.requires_grad)
        whole = [each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (one, two)]
        assert torch.equal(*whole)
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for mine, other in zip(one, two, strict=True):
            assert_same(mine, other)
    elif isinstance(one, np.ndarray):
        assert one.dtype == two.dtype
        assert one.tobytes() == two.tobytes()
    else:
        assert one == two


DTYPES = (
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (4, 5, 6)])
def test_tensors_of_every_type_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape)) * getattr(torch, dtype).itemsize
    data = torch.from_numpy(np.random.default_rng(1).integers(0, 2, size, np.uint8))
    tensor = (data.view(getattr(torch, dtype)) if size else torch.empty(0, dtype=getattr(torch, dtype))).reshape(shape)
    assert_same(through([tensor]), [tensor])


def test_strided_tensors_come_back_in_their_order_of_memory() -> None:
    whole = torch.arange(120.0).reshape(4, 5, 6)
    for tensor in (whole.permute(2, 0, 1), whole[1:, ::2, 3:], whole[0].t()):
        assert_same(through([tensor]), [tensor])
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    (found,) = through([image])
    assert_same(found, image)
    assert found.stride() == image.stride()
    assert_same(through([torch.zeros(1).expand(5)]), [torch.zeros(5)])


def test_a_state_of_training_comes_back() -> None:
    tree = a_tree()
    assert_same(through(tree), tree)
    assert isinstance(through(OrderedDict(a=1)), OrderedDict)


def test_a_tensor_that_occurs_twice_is_sent_once() -> None:
    tensor = torch.randn(100)
    state = to_state({"a": tensor, "b": [tensor]})
    assert len(state.leaves) == 2  # with that of the objects
    found = from_state(copied(state))
    assert found["a"] is found["b"][0]


def test_equal_states_have_equal_bytes_whatever_is_shared() -> None:
    text = "".join(["te", "xt"])
    one, two = to_state([text, text, (1, 2)]), to_state(["text", "".join(["t", "ext"]), (1, 2)])
    assert one["tree"].tobytes() == two["tree"].tobytes()
    circle: list[Any] = [1]
    circle.append(circle)
    found = through(circle)
    assert found[1] is found


def test_objects_are_taken_from_the_list_alone() -> None:
    with pytest.raises(CheckpointError, match=r"an object of tests.torch.test_checkpoint.Plan, which is not on"):
        through({"plan": Plan(0.5)})
    assert through({"plan": Plan(0.5)}, Plan)["plan"].rate == 0.5

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("true",)

    with pytest.raises(CheckpointError, match=r"an object of posix.system"):
        through([Evil()])
    state = to_state([1])
    state.arrays[0] = np.frombuffer(pickle.dumps([1])[:-3], np.uint8)
    with pytest.raises(CheckpointError, match="the objects of the state cannot be read"):
        from_state(state)
    with pytest.raises(CheckpointError, match=r"layout torch.sparse_coo: only strided ones"):
        to_state([torch.eye(3).to_sparse()])
    with pytest.raises(CheckpointError, match="a tensor of the class Odd: only torch's own can be sent"):
        to_state([torch.zeros(3).as_subclass(Odd)])


def test_tensors_are_written_in_place_where_they_are_alike() -> None:
    tree, other = {"a": torch.ones(5), "b": torch.ones(3)}, {"a": torch.zeros(5), "b": torch.zeros(4)}
    state = to_state(tree)
    arrays = writable(other)(state.leaves)
    for array, data in zip(arrays, state.arrays, strict=True):
        if array.flags.writeable:
            array[:] = data
    assert torch.equal(other["a"], tree["a"])
    assert torch.equal(other["b"], torch.zeros(4))


@pytest.mark.usefixtures("nic")
def test_a_state_crosses_the_nic() -> None:
    tree = a_tree()
    one, two = SoftnicTransport(LIMIT), SoftnicTransport(LIMIT)
    try:
        one.send_checkpoint([1], 3, tree, LIMIT)
        assert_same(two.recv_checkpoint(0, one.metadata(), 3, LIMIT), tree)
        one.disallow_checkpoint()
        assert two.last is not None
        assert two.last.progress.received == two.last.progress.total
    finally:
        one.shutdown()
        two.shutdown()


class Manager:
    """What members.py uses of torchft's."""

    def __init__(self, step: int, tree: object) -> None:
        self._step, self._tree = step, tree

    def current_step(self) -> int:
        return self._step

    def _manager_state_dict(self) -> object:
        return self._tree


class Group:
    def __init__(self) -> None:
        self.configured: list[tuple[Any, ...]] = []

    def configure(self, *given: Any) -> None:
        self.configured.append(given)


@pytest.mark.usefixtures("nic")
def test_members_that_were_not_assigned_send_too() -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = f"127.0.0.1:{store.port}/torchft/1/0"
    tree = {"user": a_tree(), "weight": torch.randn(3 << 20)}
    transports = [SoftnicTransport(LIMIT) for _ in range(4)]
    groups = [Group() for _ in transports]
    behind = Manager(0, {})
    try:
        for rank, (transport, group) in enumerate(zip(transports, groups, strict=True)):
            serve_from_all(Manager(6, tree) if rank < 3 else behind, group, transport)
        metadata = [transport.metadata() for transport in transports]  # as a step begins
        for rank, group in enumerate(groups):
            group.configure(address, "replica", rank, 4)
        assert [group.configured for group in groups] == [[(address, "replica", rank, 4)] for rank in range(4)]
        transports[1].send_checkpoint([3], 6, tree, LIMIT)
        assert_same(transports[3].recv_checkpoint(1, metadata[1], 6, LIMIT), tree)
        receipt = transports[3].last
        assert receipt is not None
        assert len(receipt.shares) == 3
        assert [share.asked > 0 for share in receipt.shares.values()] == [True] * 3
        for transport in transports:
            transport.disallow_checkpoint()
    finally:
        for transport in transports:
            transport.shutdown()


def test_other_transports_and_other_releases_are_named() -> None:
    assert parse_metadata(0, json.dumps({"softnic": ["10.77.0.1", 5]})) == ("10.77.0.1", 5)
    for text in ("http://host:1/checkpoint/", "<n/a>", "[]", '{"softnic": ["a", 0]}', '{"softnic": [1]}', "9" * 9999):
        with pytest.raises(CheckpointError, match="rank 4 has another checkpoint transport"):
            parse_metadata(4, text)
    with pytest.raises(CheckpointError, match=r"this torchft has no Manager._manager_state_dict"):
        serve_from_all(object(), Group(), None)  # type: ignore[arg-type]


def torchfts() -> Any:
    """Return torchft's own tests of transports."""
    needs.module("torchft")
    return importlib.import_module("torchft.checkpointing.transport_test")


@pytest.mark.usefixtures("nic")
@pytest.mark.filterwarnings("ignore")
def test_torchfts_own_test_of_recovery() -> None:
    def init(_rank: int, _size: int) -> SoftnicTransport:
        return SoftnicTransport(timedelta(seconds=10))

    torchfts().run_multi_recovery_test(TestCase(), init, torch.device("cpu"))
    base = sys.modules["torchft.checkpointing.transport"].CheckpointTransport
    assert issubclass(SoftnicTransport, base)
