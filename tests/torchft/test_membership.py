"""What a member of a torchft job tells its NIC."""

from __future__ import annotations

from typing import Any

import pytest

from softnic import Cluster
from softnic.checkpoint import ReceiptPhase, ReceiptProgress
from softnic.ipc.membership import MembershipInfo
from tests import needs

needs.module("torch")
needs.module("torchft")

from softnic.torchft.membership import MembershipNotes, read_names


def test_epochs_and_receipts_are_shown_until_the_member_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(nodes=1) as cluster:
        monkeypatch.setenv("SOFTNIC_NIC", str(cluster.controls[0]))
        notes = MembershipNotes("job")
        notes.begin("12", 1, ["a:uuid", "b"])
        training = MembershipInfo("job", "12", 1, 2, ["a", "b"], "training")
        assert cluster.stats(0).memberships == [training]
        sources = {"10.77.0.1:5": 3, "10.77.0.3:5": 4}
        notes.on_receipt(ReceiptProgress(9, ReceiptPhase.TRANSFER, 0.5, total=10, held=1, received=7, sources=sources))
        healing = MembershipInfo("job", "12", 1, 2, ["a", "b"], "healing", list(sources), 8, 10)
        assert cluster.stats(0).memberships == [healing]
        notes.on_receipt(ReceiptProgress(9, ReceiptPhase.DONE, 0.7))
        assert cluster.stats(0).memberships == [training]
        notes.close()
        assert cluster.stats(0).memberships == []


def test_without_a_nic_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTNIC_NIC", "/nowhere")
    MembershipNotes("job").begin("1", 0, ["a"])


class Store:
    """As torch's, or one that has ended."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def check(self, keys: list[str]) -> bool:
        if not self._names:
            raise RuntimeError("the store has ended")
        return len(keys) <= len(self._names)

    def multi_get(self, keys: list[str]) -> list[Any]:
        return [list(name.encode()) for name in self._names[: len(keys)]]


@pytest.mark.parametrize(
    ("store", "names"),
    [(Store("a", "b"), ["a", "b"]), (Store("a"), ["rank 0", "rank 1"]), (Store(), ["rank 0", "rank 1"])],
)
def test_members_without_names_are_called_by_their_ranks(store: Store, names: list[str]) -> None:
    assert read_names(store, 2) == names
