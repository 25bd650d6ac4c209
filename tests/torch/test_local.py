"""What becomes of sums by hosts where the ranks of a host cannot connect, or fail later."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in its __all__

from softnic.comm.errors import CommError
from softnic.torch import backend, local_nccl
from softnic.torch.backend import SoftnicGroup
from softnic.torch.group_thread import GroupThread
from softnic.torch.hosts import RankPlace
from softnic.torch.local_nccl import NcclShares
from tests.torch.groups import run
from tests.torch.stand_in import on_stand_in

CPU = torch.device("cpu")


def test_all_ranks_sum_in_one_level_where_one_cannot_connect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[int] = []

    class Connected:
        def __init__(self, rank: int) -> None:
            self.rank, self.shares = rank, self

        def close(self) -> None:
            closed.append(self.rank)

    def connect(_store: Any, _hosts: Any, rank: int, *_: Any) -> Any:
        if rank == 2:
            raise CommError("there is no way")
        return Connected(rank)

    monkeypatch.setattr(GroupThread, "nic_addresses", lambda _: ["A", "A", "B", "B"])
    monkeypatch.setattr(backend, "exchange_places", lambda *_: [RankPlace(rank % 2, 2) for rank in range(4)])
    monkeypatch.setattr(backend, "connect", connect)

    def program(group: SoftnicGroup) -> list[float]:
        group._store = object()  # type: ignore[assignment]
        tensor = torch.full((20_000,), float(group.rank()))
        for _ in range(2):
            group.allreduce([tensor]).wait()
        return sorted(set(tensor.tolist()))

    with on_stand_in(), caplog.at_level(logging.WARNING, "softnic"):
        assert run(4, program) == [[24.0]] * 4
    assert [record.message for record in caplog.records] == ["sums do not go by hosts: there is no way"]
    assert sorted(closed) == [0, 1, 3]


def test_what_a_group_uses_is_freed_when_it_ends() -> None:
    freed: list[str] = []

    def program(group: SoftnicGroup) -> list[str]:
        group._thread.at_end(lambda: freed.append("at the end"))
        assert freed == []
        group.shutdown()
        group._thread.at_end(lambda: freed.append("after it"))
        return freed

    assert run(1, program) == [["at the end", "after it"]]


class Group:
    """A process group of torch's, in whose calls nothing happens."""

    def __init__(self) -> None:
        self.ended = ""

    def abort(self) -> None:
        self.ended = "aborted"
        raise RuntimeError("the others have ended theirs")

    def shutdown(self) -> None:
        self.ended = "shut down"


@pytest.mark.parametrize(("running", "ended"), [([], "shut down"), ([object()], "aborted")])
def test_groups_are_aborted_only_while_something_is_in_progress(running: list[object], ended: str) -> None:
    groups = Group(), Group()
    shares = NcclShares([4, 7], *groups)
    shares._running += running
    shares.close()
    assert [group.ended for group in groups] == [ended] * 2


def test_the_error_of_nccl_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_backend(*_: Any) -> None:
        raise RuntimeError("no GPU")

    monkeypatch.setattr(local_nccl, "nccl_backend", no_backend)
    with pytest.raises(CommError, match="ranks 4, 7, of one host, cannot connect: no GPU"):
        local_nccl.connect(HashStore(), [4, 7], 0, "name", CPU, 60)


def test_ranks_that_do_not_meet_are_waited_for_as_long_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(local_nccl, "nccl_backend", lambda *_: over.wait(60))
    with pytest.raises(CommError, match=r"cannot connect: not within 0\.01 s"):
        local_nccl.connect(HashStore(), [4, 7], 0, "name", CPU, 0.01)
    over.set()
