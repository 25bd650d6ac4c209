"""All collectives on tensors of a stand-in for a GPU, whose copies are late: their results are those of the host."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from softnic.torch.backend import SoftnicGroup
from tests.torch import test_collectives
from tests.torch.groups import run
from tests.torch.stand_in import StandIn, on_stand_in

globals().update(
    {f"{name}_of_a_device": test for name, test in vars(test_collectives).items() if name.startswith("test_")}
)


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[type[StandIn]]:
    with on_stand_in() as kind:
        yield kind


def _sums(group: SoftnicGroup) -> list[torch.Tensor]:
    """Start many calls, the short ones behind long ones, and return their results."""
    tensors = [torch.full((count,), float(group.rank() + 1)) for count in (200_000, 5, 70_000, 1, 0, 30_000)]
    works = [group.allreduce([tensor]) for tensor in tensors]
    for work in works:
        work.wait()
    return tensors


def _check(found: list[Any]) -> None:
    for tensors in found:
        assert all(bool((tensor == 6).all()) for tensor in tensors)


def test_ranks_post_in_the_order_of_their_calls_whatever_is_loaded_first() -> None:
    _check(run(3, _sums))


def test_memory_is_locked_once_and_unlocked_at_the_end(stand_in: type[StandIn]) -> None:
    def program(group: SoftnicGroup) -> set[int]:
        _sums(group)
        locked = set(stand_in.locked)
        _sums(group)
        assert set(stand_in.locked) >= locked
        return set(stand_in.locked)

    run(2, program)
    assert not stand_in.locked


def test_memory_that_cannot_be_locked_is_used_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with on_stand_in(refuses=True), caplog.at_level(logging.WARNING, "softnic"):
        _check(run(3, _sums))
    assert [record.message for record in caplog.records if "page-locked" in record.message]
