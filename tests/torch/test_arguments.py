"""Invalid arguments of softnic.torch: each error says what is expected, and no setting changes."""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import needs

torch = needs.module("torch")

import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import HashStore  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import softnic.torch  # noqa: E402
from softnic import codecs, gradients  # noqa: E402
from softnic.comm.errors import CommError  # noqa: E402
from softnic.torch import hooks  # noqa: E402
from softnic.torch.backend import SoftnicGroup  # noqa: E402
from softnic.torch.compression import Compression  # noqa: E402
from softnic.torch.layers import LayerCodecs, layers_hook  # noqa: E402
from softnic.torch.sharded import GradientScatter  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """A process group of one rank."""
    with pytest.raises(ValueError, match=r"there is no process group: call .*init_process_group\('softnic'\)"):
        softnic.torch.compress(None, "bounded:10")
    dist.init_process_group("softnic", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"codec": 10}, "codec is 10: a name as in 'bounded:10' is expected"),
    ({"codec": b"bounded:10"}, "codec is b'bounded:10'"),
    ({"codec": ["bounded:10"]}, "codec is "),
    ({"codec": True}, "codec is True"),
    ({"codec": "gzip"}, "'gzip'"),
    ({"codec": ""}, "'' is not a codec"),
    ({"floor_bytes": "x"}, "floor_bytes is 'x': an integer, 0 or more, is expected"),
    ({"floor_bytes": -1}, "floor_bytes is -1"),
    ({"floor_bytes": 1.5}, "floor_bytes is 1.5"),
    ({"floor_bytes": None}, "floor_bytes is None"),
    ({"floor_bytes": True}, "floor_bytes is True"),
    ({"layers": ["a"]}, r"layers is \['a'\]: a dict of patterns and codecs is expected"),
    ({"layers": []}, "layers is "),
    ({"layers": "0.*"}, "layers is '0.*'"),
    ({"warmup": -1}, "warmup is -1: a number of steps, 0 or more, is expected"),
    ({"warmup": 1.5}, "warmup is 1.5"),
    ({"warmup": True}, "warmup is True"),
]
WRONG_OF_MODELS: list[tuple[dict[str, Any], str]] = [
    ({"layers": {1: None}}, "layers: 1 is not a pattern"),
    ({"layers": {"0.*": 10}}, "codec is 10"),
    ({"layers": {"0.*": "gzip"}}, "'gzip'"),
    (
        {"layers": {"conv*": None, "0.*": None, "fc": None}},
        r"matches conv\*, fc; the model has 0\.weight, 0\.",
    ),
    ({"layers": {"module.0.*": None}}, r"matches module\.0\.\*; the model has 0\.weight"),
]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        *WRONG,
        ({"layers": {"0.*": None}}, "only a .* model has names of parameters"),
        ({"warmup": 3}, "only a model has steps: give `warmup` with a DistributedDataParallel or sharded model"),
    ],
)
def test_a_group_refuses(given: dict[str, Any], text: str) -> None:
    group: Any = dist.group.WORLD
    before = group.compression
    with pytest.raises(ValueError, match=text):
        softnic.torch.compress(None, **{"codec": "bounded:10", **given})
    assert group.compression == before


@pytest.mark.parametrize(("given", "text"), [*WRONG, *WRONG_OF_MODELS])
def test_a_model_refuses(given: dict[str, Any], text: str) -> None:
    model = DistributedDataParallel(network())
    with pytest.raises(ValueError, match=text):
        softnic.torch.compress(model, **{"codec": "bounded:10", **given})
    # Succeeds, as the failed call has set no hook.
    softnic.torch.compress(model, "bounded:10", layers={"0.*": None}, floor_bytes=0)


def test_long_lists_of_names_are_truncated() -> None:
    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(20))))
    with pytest.raises(ValueError, match=r"the model has 0\.weight, .*3\.bias, \.\.\.$"):
        softnic.torch.compress(model, None, layers={"x": None})


def test_targets_of_other_types_are_refused() -> None:
    mesh = init_device_mesh("cpu", (1,))
    gloo = dist.new_group(backend="gloo")
    for target, text in (
        (mesh, r"give mesh\.get_group\(dimension\)"),
        (dist.GroupMember.NON_GROUP_MEMBER, "this process is not a member"),
        (gloo, "is of the backend gloo, not of softnic"),
        ("world", "'world' is not a process group"),
    ):
        for call in (softnic.torch.communicator, lambda group: softnic.torch.compress(group, "bounded:10")):
            with pytest.raises(ValueError, match=text):
                call(target)
    softnic.torch.compress(mesh.get_group(), None)
    with pytest.raises(ValueError, match="a Sequential is not a process group"):
        softnic.torch.communicator(network())
    with pytest.raises(ValueError, match=r"neither a Distributed.* nor sharded: call fully_shard"):
        softnic.torch.compress(network(), "bounded:10")


def test_a_codec_object_is_accepted() -> None:
    group: Any = dist.group.WORLD
    softnic.torch.compress(None, codecs.get("bounded:8"), floor_bytes=0)
    assert (group.compression.codec, group.compression.floor_bytes) == ("bounded:8", 0)
    softnic.torch.compress(None, None)


def step(model: Any) -> None:
    model(torch.ones(2, 4)).sum().backward()


@pytest.fixture
def summed_by(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the codecs of gradients' sums, as they are made."""
    found: list[Any] = []
    layers, shards = SoftnicGroup.sum_by_codec, SoftnicGroup.scatter_sum

    def by_layer(group: SoftnicGroup, tensors: Any, output: Any, use: Any) -> Any:
        found.extend(tensors)
        return layers(group, tensors, output, use)

    def by_shard(group: SoftnicGroup, output: Any, given: Any, op: Any, by: Any) -> Any:
        found.append(by.codec)
        return shards(group, output, given, op, by)

    monkeypatch.setattr(SoftnicGroup, "sum_by_codec", by_layer)
    monkeypatch.setattr(SoftnicGroup, "scatter_sum", by_shard)
    return found


def replicas(**options: Any) -> Any:
    return DistributedDataParallel(network(), **options)


def test_gradients_are_exact_in_the_first_steps(summed_by: list[Any]) -> None:
    model = replicas()
    softnic.torch.compress(model, "bounded:10", warmup=2, floor_bytes=0)
    for _ in range(4):
        step(model)
    assert summed_by == [None, None, "bounded:10", "bounded:10"]


def test_a_step_is_a_back_propagation_of_several_buckets(summed_by: list[Any]) -> None:
    model = replicas(bucket_cap_mb=1e-5)
    softnic.torch.compress(model, "bounded:10", warmup=2, floor_bytes=0)
    step(model)  # after which torch makes the buckets
    for expected in (None, "bounded:10", "bounded:10"):
        summed_by.clear()
        step(model)
        assert len(summed_by) > 1
        assert set(summed_by) == {expected}


def test_a_back_propagation_that_was_aborted_is_no_step(summed_by: list[Any]) -> None:
    model = replicas()
    parameters = list(model.parameters())
    state = LayerCodecs(cast(SoftnicGroup, dist.group.WORLD), model, "bounded:10", {}, 0, warmup=1)
    for is_last in (False, False, True, False, True):
        gradients = [torch.zeros_like(each) for each in parameters]
        bucket: Any = SimpleNamespace(
            buffer=lambda: torch.zeros(4),
            parameters=lambda: parameters,
            gradients=lambda made=gradients: made,
            is_last=lambda last=is_last: last,
            index=lambda last=is_last: int(last),
        )
        layers_hook(state, bucket).wait()
    assert summed_by == [None] * 3 + ["bounded:10"] * 2


def test_a_second_call_replaces_the_first(summed_by: list[Any]) -> None:
    model = replicas()
    for codec in ("bounded:10", "rht:4", None):
        softnic.torch.compress(model, codec, floor_bytes=0)
        step(model)
    softnic.torch.compress(model, "rht:4", floor_bytes=0, warmup=1)
    for _ in range(2):
        step(model)
    assert summed_by == ["bounded:10", "rht:4", None, None, "rht:4"]


def test_shards_and_their_replicas_are_exact_in_the_first_steps(summed_by: list[Any]) -> None:
    """A replicas' group sums the gradients of a step after the shards' group."""
    group, between = cast(SoftnicGroup, dist.group.WORLD), cast(SoftnicGroup, dist.new_group())
    asked = Compression("rht:4", floor_bytes=12, weights="exact:16")
    for warmup, expected in ((0, ["rht:4"] * 3), (2, [None, None, "rht:4"])):
        summed_by.clear()
        between.compression = Compression("bounded:10")
        scatter, seen = GradientScatter(asked, warmup, [between]), []
        for _ in range(3):
            scatter(torch.zeros(4), torch.ones(4), group, dist.ReduceOp.SUM)
            seen.append(between.compression.codec)
        assert summed_by == seen == expected
        assert between.compression == Compression("rht:4", floor_bytes=12)


def test_a_compressed_model_is_not_kept_alive() -> None:
    model = replicas()
    softnic.torch.compress(model, "rht:4", layers={"0.*": None})
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_other_backends_have_their_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    by_nics: list[str] = []
    monkeypatch.setattr(SoftnicGroup, "allreduce", lambda *_, **__: by_nics.append("all_reduce"))
    monkeypatch.setattr(SoftnicGroup, "broadcast", lambda *_, **__: by_nics.append("broadcast"))
    for asked, expected in (("cpu:gloo,cuda:softnic", []), ("cpu:softnic,cuda:gloo", ["all_reduce", "broadcast"])):
        group, tensor = dist.new_group(backend=asked), torch.ones(3)
        by_nics.clear()
        dist.all_reduce(tensor, group=group)
        dist.broadcast(tensor, 0, group=group)
        dist.barrier(group)
        assert by_nics == expected
        if not expected:
            found: list[Any] = [None]
            dist.all_gather_object(found, "an object", group=group)
            assert found == ["an object"]
        dist.destroy_process_group(group)


def test_backends_that_cannot_be_beside_this_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"backend 'cpu:fake': .* gloo and nccl; make another group .*'fake'"):
        dist.new_group(backend="cpu:fake,cuda:softnic")
    for alone in ("cpu:softnic", "cpu:softnic,cuda:softnic", "softnic"):
        assert dist.get_rank(dist.new_group(backend=alone)) == 0


def test_too_many_open_files_are_an_error_that_says_how_many_a_group_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> None:
        raise CommError("too many") from OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(softnic.torch, "init_communicator", exhausted)
    text = r"a group of 1 ranks takes about 6 files .* which may have \d+: raise the limit \(ulimit -n\)"
    with pytest.raises(dist.DistBackendError, match=text):
        dist.new_group()


def test_statistics_of_one_rank() -> None:
    """Nothing is sent, so the ratio is 1."""
    before = softnic.torch.stats()
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    found = softnic.torch.stats() - before
    assert (found.calls, found.given_bytes, found.sent_bytes, found.ratio) == (3, 0, 0, 1.0)
    assert found.exchange_s > 0
    with pytest.raises(ValueError, match="a Sequential is not a process group"):
        softnic.torch.stats(network())


def test_hooks_refuse() -> None:
    method, model = gradients.get("exact"), network()
    for call in (hooks.hook, hooks.average):
        with pytest.raises(ValueError, match="method is 'dgc'"):
            call("dgc", model)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="model is 3"):
            call(method, 3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="comm is 3"):
            call(method, model, comm=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'world' is not a process group"):
            call(method, model, "world")
