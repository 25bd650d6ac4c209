"""A NIC's secrets cannot be derived from data visible to its peers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.packet import ipv4
from softnicd.config import Config
from softnicd.daemon import Daemon
from softnicd.selector import Selector

OWN, PEER = (ipv4.address("10.77.0.1"), 80), (ipv4.address("10.77.0.2"), 40_000)


class Reconstructed(random.Random):
    """A random generator that starts, even without a seed, in the state an observer has computed from its output."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(624 if seed is None else seed)


@contextlib.contextmanager
def nic(directory: Path, seed: int | None) -> Iterator[Daemon]:
    config = Config(ip="10.77.0.1", control=str(directory / "nic"), wire="127.0.0.1:0", seed=seed)
    selector = Selector()
    loop = asyncio.SelectorEventLoop(selector)
    daemon = Daemon(config, loop, selector)
    try:
        yield daemon
    finally:
        daemon.close()
        loop.close()


def sequence_number(directory: Path, seed: int | None) -> int:
    with nic(directory, seed) as daemon:
        return daemon.first.host.tcp.initial_sequence(OWN, PEER, 0.0)


def test_sequence_numbers_do_not_depend_on_a_reconstructed_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "Random", Reconstructed)
    assert sequence_number(tmp_path, None) != sequence_number(tmp_path, None)


def test_a_seed_repeats_sequence_numbers(tmp_path: Path) -> None:
    assert sequence_number(tmp_path, 7) == sequence_number(tmp_path, 7)
    assert sequence_number(tmp_path, 7) != sequence_number(tmp_path, 8)
