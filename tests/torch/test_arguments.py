"""Invalid arguments of softnic.torch: each error says what is expected, and no setting changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import needs

torch = needs.module("torch")

import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import HashStore  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import softnic.torch  # noqa: E402
from softnic import codecs, gradients  # noqa: E402
from tests.facades.torch_backend import hooks  # noqa: E402


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
    ("given", "text"), [*WRONG, ({"layers": {"0.*": None}}, "only a .* model has names of parameters")]
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
