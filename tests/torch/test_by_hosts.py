"""Sums in two levels: ranks as processes with real NICs, where ranks of one host share a NIC."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.nics import TOLD_S
from tests.slow import some
from tests.torch import jobs

pytestmark = pytest.mark.slow


def _run(nodes: list[int], store: Path, **more: dict[str, str]) -> list[list[dict[str, Any]]]:
    """Run by_hosts.py with the node of each rank, and `more` variables of a rank, as in `rank_2`."""
    each, numbers = [], Counter[int]()
    for rank, node in enumerate(nodes):
        launcher = {
            "NODE": str(node),
            "HOSTS": " ".join(map(str, nodes)),
            "GPU": f"GPU {rank}",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(nodes)),
            "LOCAL_RANK": str(numbers[node]),
            "LOCAL_WORLD_SIZE": str(nodes.count(node)),
        }
        numbers[node] += 1
        each.append(launcher | more.get(f"rank_{rank}", {}))
    return jobs.results("by_hosts", len(set(nodes)), store, each)


@pytest.mark.parametrize(
    ("nodes", "has_own_gpus"),
    some(
        2,
        [
            pytest.param([0, 0, 0, 1, 1, 1], True, id="nccl"),
            pytest.param([0, 1, 1, 0, 0, 1], False, id="memory-mixed"),
            pytest.param([0, 1, 2, 2, 1, 0], True, id="nccl-mixed"),
        ],
    ),
)
def test_sums_by_hosts(nodes: list[int], has_own_gpus: bool, tmp_path: Path) -> None:
    more = {} if has_own_gpus else {f"rank_{rank}": {"GPU": "shared"} for rank in range(len(nodes))}
    ranks = _run(nodes, tmp_path / "store", **more)
    *_, last = ranks
    number = len(set(nodes))
    share = 2 * (number - 1) / len(nodes)
    """Of the bytes of a sum, what each rank sends to other hosts."""
    for first, *others in ranks:
        cases = {name: found for name, found in first.items() if isinstance(found, dict) and "bits" in found}
        assert len(cases) == 30
        assert [name for name, found in cases.items() if not found["expected"] or not found["by hosts"]] == []
        assert [name for name, found in cases.items() if found["bits"] != last[0][name]["bits"]] == []
        assert first["gloo"] == (2 if has_own_gpus else 0)
        ratio, times_sent = first["figures"]
        assert 0.9 < ratio < 1.1
        assert 0.5 * share < times_sent < 1.1 * share
        calls = [found for name, found in first.items() if name.startswith("other ")]
        assert calls == [[True, True]] * 4
        for other in others:
            assert f"rank {len(nodes) - 1}" in other["error"]
            assert other["seconds"] < TOLD_S
    late = ", ".join(str(rank) for rank, node in enumerate(nodes) if node == nodes[-1])
    text = f"longer than the timeout of 1 s: not all of ranks {late}, of one host, take part"
    assert [text in first["late"] for first, *_ in ranks[:-1]] == [True] * (len(nodes) - 1)


@pytest.mark.parametrize(
    ("nodes", "more"),
    [
        ([0, 0, 1], {}),
        ([0, 0, 1, 1], {"rank_2": {"SOFTNIC_LOCAL": "off"}}),
    ],
)
def test_sums_that_do_not_go_by_hosts(nodes: list[int], more: dict[str, dict[str, str]], tmp_path: Path) -> None:
    for (found,) in _run(nodes, tmp_path / "store", **more):
        assert found == {"plain": {"": True, "rht:4": True}, "sums": 0}
