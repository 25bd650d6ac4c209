"""Which ranks of a group sum by hosts: pure functions of NICs' addresses and of what launchers say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softnic.torch.hosts import Hosts, RankPlace, have_own_gpus, hosts_of, launcher_agrees

PLACES = [RankPlace(0, 4, "GPU 0"), RankPlace(1, 4, "GPU 1"), RankPlace(3, 4, "GPU 3")]
"""Three of the four ranks of a host."""


@pytest.mark.parametrize(
    ("nics", "hosts"),
    [
        ("AABB", ((0, 1), (2, 3))),
        ("ABBA", ((0, 3), (1, 2))),
        ("ABCABCABC", ((0, 3, 6), (1, 4, 7), (2, 5, 8))),
        ("AABBB", None),
        ("AAAA", None),
        ("ABCD", None),
        ("A", None),
    ],
)
def test_ranks_of_one_nic_are_on_one_host(nics: str, hosts: Hosts | None) -> None:
    assert hosts_of(nics) == hosts


def test_some_ranks_of_a_host_agree() -> None:
    assert launcher_agrees(PLACES)


@pytest.mark.parametrize(
    "change",
    [
        {"local_size": 0},
        {"local_size": 8},
        {"local_rank": 0},
        {"local_rank": 4},
        {"local_rank": -1},
    ],
)
def test_what_does_not_fit_the_others_is_refused(change: dict[str, int]) -> None:
    *others, last = PLACES
    assert not launcher_agrees([*others, replace(last, **change)])  # type: ignore[arg-type]


@pytest.mark.parametrize(("gpu", "own"), [("GPU 3", True), ("GPU 1", False), ("", False)])
def test_each_rank_has_a_gpu_of_its_own(gpu: str, own: bool) -> None:
    *others, last = PLACES
    assert have_own_gpus([*others, replace(last, gpu=gpu)]) is own
