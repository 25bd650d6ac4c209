"""Every result of a call on a device has the bits of the same call on the host, with real NICs and delayed copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch import jobs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ranks", [2, 3])
def test_bits_are_those_of_the_host(ranks: int, tmp_path: Path) -> None:
    for found, figures in jobs.results("on_device", ranks, tmp_path / "store"):
        assert figures["ratio"] == pytest.approx(512 / 66, rel=0.02)
        assert len(found) > 50
        assert [name for name, outcome in found.items() if not outcome["same bits"]] == []
        by_nics = [name for name, outcome in found.items() if not outcome["blocks"]]
        assert all(name.startswith(("exact ", "None ")) or name.endswith("bfloat16") for name in by_nics)
        assert by_nics[-2:] == ["bfp:7 gathered torch.bfloat16", "bfp:7 broadcast torch.bfloat16"]
