"""The packet path of native/rtl, in cocotb: frames through both directions of both codecs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.simulator import run
from tests.slow import slow_after


@pytest.mark.parametrize(("decodes", "is_bounded"), slow_after(2, [(0, 1), (1, 1), (0, 0), (1, 0)]))
def test_packet_path(decodes: int, is_bounded: int, tmp_path: Path) -> None:
    run("packet_path", "tests.rtl.packets", tmp_path / "model", DECODES=decodes, IS_BOUNDED=is_bounded)
