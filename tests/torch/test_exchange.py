"""Exchanges of groups on a stand-in for a GPU: which ones are encoded there, and how they end when a rank does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from softnic import codecs
from softnic.torch import backend, device_codecs, device_items
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import Compression, DeviceUse
from softnic.torch.device_codecs import DeviceCodecError, check_bits
from tests.torch.groups import outcomes, run
from tests.torch.host_slots import HostSlots
from tests.torch.stand_in import on_stand_in

COUNT = 3 * 128 * 200


class Counted(HostSlots):
    """Counts encodings."""

    encodings = 0

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        Counted.encodings += 1
        return super().encode_slots(words)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Counted.encodings = 0
    monkeypatch.setattr(backend, "device_codec", lambda name, _: Counted(codecs.get(name)))
    monkeypatch.setattr(device_items, "LEAST_WORDS", 1 << 13)
    with on_stand_in():
        yield


def summed(group: SoftnicGroup, count: int = COUNT, codec: str = "rht:4", **use: Any) -> torch.Tensor:
    group.compression = Compression(codec, use=DeviceUse(**use))
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(group.rank()))
    group.allreduce([tensor]).wait()
    return tensor


def direct(size: int, count: int, codec: str) -> torch.Tensor:
    """Return the sum by the documented order, each part by its owner."""
    rounds = codecs.get(codec)
    given = [torch.randn(count, generator=torch.Generator().manual_seed(rank)).numpy() for rank in range(size)]
    length, found = count // size, []
    for owner in range(size):
        part = slice(owner * length, (owner + 1) * length)
        total = given[owner][part].copy()
        for step in range(1, size):
            total += rounds.decode(rounds.encode(given[(owner - step) % size][part]), length)
        found.append(np.array(rounds.decode(rounds.encode(total), length)))
    return torch.from_numpy(np.concatenate(found))


@pytest.mark.parametrize("size", [2, 3])
def test_sums_are_made_in_the_documented_order(size: int) -> None:
    count = size * 128 * 300
    for tensor in run(size, lambda group: summed(group, count)):
        assert torch.equal(tensor, direct(size, count, "rht:4"))
    assert Counted.encodings


@pytest.mark.parametrize("piece_bytes", [4 * 128, 1 << 14, 1 << 30])
def test_the_length_of_pieces_changes_no_bit(piece_bytes: int) -> None:
    for tensor in run(2, lambda group: summed(group, 2 * 128 * 100, piece_bytes=piece_bytes)):
        assert torch.equal(tensor, direct(2, 2 * 128 * 100, "rht:4"))
    assert Counted.encodings


def test_a_rank_without_kernels_leaves_all_to_nics(monkeypatch: pytest.MonkeyPatch) -> None:
    have = iter([True, False, True])
    monkeypatch.setattr(backend, "device_codec", lambda name, _: Counted(codecs.get(name)) if next(have) else None)
    run(3, summed)
    assert not Counted.encodings


@pytest.mark.parametrize("codec", ["bounded:10", "either"])
def test_codecs_without_kernels_are_the_nics(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "device_codec", lambda *_: None)
    run(2, lambda group: summed(group, codec=codec))
    assert not Counted.encodings


def test_short_sums_are_the_nics() -> None:
    run(2, lambda group: summed(group, 8000))
    run(2, lambda group: summed(group, encodes=False))
    assert not Counted.encodings


def test_other_bits_end_the_rank_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = iter([False, True])

    def found(name: str, _: torch.device) -> HostSlots:
        if next(ranks):
            raise DeviceCodecError("other bits")
        return Counted(codecs.get(name))

    monkeypatch.setattr(backend, "device_codec", found)
    kinds = sorted(type(outcome).__name__ for outcome in outcomes(2, summed))
    assert kinds == ["DeviceCodecError", "DistBackendError"]


def test_a_rank_that_leaves_is_named_by_the_others() -> None:
    def program(group: SoftnicGroup) -> object:
        summed(group)
        if group.rank() == 1:
            group.shutdown()
            return None
        return summed(group)

    first, _, third = outcomes(3, program)
    for error in (first, third):
        assert isinstance(error, dist.DistBackendError)
        assert "rank 1" in str(error)


class Wrong(HostSlots):
    """Encodes, or decodes, one bit wrongly."""

    def __init__(self, codec: codecs.Codec, what: str) -> None:
        super().__init__(codec)
        self._what = what

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        slots, sizes = super().encode_slots(words)
        slots[70] ^= self._what == "encodes"
        return slots, sizes

    def decode_slots(self, slots: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        super().decode_slots(slots, words, add=add)
        words.view(torch.int32)[5] ^= self._what == "decodes"


@pytest.mark.parametrize("what", ["encodes", "decodes"])
def test_one_wrong_bit_is_found(what: str) -> None:
    codec, device = codecs.get("rht:4"), torch.device("cpu")
    check_bits(HostSlots(codec), codec, device)
    with pytest.raises(DeviceCodecError, match=f"rht:4 {what} to other bits on cpu"):
        check_bits(Wrong(codec, what), codec, device)


def test_codecs_are_left_to_the_host_if_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTNIC_GPU", "off")
    device_codecs.device_codec.cache_clear()
    assert device_codecs.device_codec("rht:4", torch.device("cuda")) is None
    device_codecs.device_codec.cache_clear()
