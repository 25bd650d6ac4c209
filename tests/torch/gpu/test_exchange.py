"""Calls on a stand-in for a GPU, by the kernels in Triton's interpreter and real NICs, have the bits of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch import jobs
from tests.torch.gpu.needed import NEEDED

pytestmark = NEEDED


def test_bits_are_those_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ON_KERNELS", "1")
    for (found,) in jobs.results("on_device", 2, tmp_path / "store"):
        assert len(found) == 6
        assert [name for name, outcome in found.items() if not outcome["same bits"]] == []
