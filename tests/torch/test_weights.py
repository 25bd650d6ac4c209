"""Codecs of copies: gathered shards and broadcasts keep every bit with a lossless codec, and agree with another."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import softnic.torch
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import Compression
from tests.torch.groups import run
from tests.torch.test_collectives import options

Tensor = torch.Tensor
SIZE = 3
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def bits(rank: int, dtype: torch.dtype, count: int) -> Tensor:
    """Return elements with any bits, NaNs included."""
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return drawn.view(dtype)


def copies(group: SoftnicGroup, given: Tensor) -> list[Tensor]:
    """Return all ranks' tensors, gathered in both ways, and rank 1's tensor, broadcast."""
    whole, parts = given.new_empty(SIZE * given.numel()), [torch.empty_like(given) for _ in range(SIZE)]
    sent = given.clone()
    group.all_gather_single(whole, given).wait()
    group.allgather([parts], [given]).wait()
    group.broadcast([sent], options(dist.BroadcastOptions, rootRank=1)).wait()
    return [whole, torch.cat(parts), sent]


@pytest.mark.parametrize("count", [1, 6, 7, 300, 1001])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8], ids=str)
def test_a_lossless_codec_keeps_every_bit(dtype: torch.dtype, count: int) -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        group.compression = Compression(weights="exact:16", floor_bytes=0)
        return copies(group, bits(group.rank(), dtype, count))

    expected = torch.cat([bits(rank, dtype, count) for rank in range(SIZE)]).view(torch.uint8)
    for whole, parts, sent in run(SIZE, program):
        assert torch.equal(whole.view(torch.uint8), expected)
        assert torch.equal(parts.view(torch.uint8), expected)
        assert torch.equal(sent.view(torch.uint8), bits(1, dtype, count).view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_with_a_lossy_codec_all_ranks_have_the_same_bits(dtype: torch.dtype) -> None:
    """The rank that had the elements, too."""

    def program(group: SoftnicGroup) -> list[Tensor]:
        group.compression = Compression(weights="mx:e4m3", floor_bytes=0)
        return copies(group, torch.linspace(-1, 1, 257 + group.rank()).to(dtype)[:257])

    results = run(SIZE, program)
    for found in results:
        for one, other in zip(found, results[0], strict=True):
            assert torch.equal(one, other)
    exact = torch.linspace(-1, 1, 258).to(dtype)[:257].float()
    error = (results[0][2].float() - exact).abs().max()
    assert 0 < error < 0.13


@pytest.mark.parametrize(
    ("dtype", "count", "codec"),
    [
        (torch.bfloat16, 1000, "exact:16"),
        (torch.float16, 1000, "exact:16"),
        (torch.float32, 1000, "exact:32"),
        (torch.uint8, 4000, "exact:32"),
        (torch.bfloat16, 1001, None),
        (torch.float64, 1000, None),
        (torch.int32, 1000, None),
        (torch.float32, 10, None),
    ],
    ids=str,
)
def test_what_is_encoded(dtype: torch.dtype, count: int, codec: str | None) -> None:
    found = Compression(weights="exact:32", floor_bytes=1000).copied_by(dtype, count)
    assert (found and found.name) == codec
    assert Compression(floor_bytes=0).copied_by(dtype, count) is None


def test_arguments_that_are_refused() -> None:
    for arguments, text in (
        ({"weights": "exact:17"}, "exact"),
        ({"weights": "either"}, "either"),
        ({"weights": 3}, "codec is 3"),
        ({"gradients": "rht:4", "codec": "rht:4"}, "two names of one argument"),
    ):
        with pytest.raises(ValueError, match=text):
            softnic.torch.compress(None, **arguments)
