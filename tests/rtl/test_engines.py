"""The engines of native/rtl cycle by cycle, in cocotb: pauses, resets, malformed bodies, latency and rate.

Their bytes are also compared word for word by the tests of codecs (tests/codecs), where `rtl` is an implementation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.simulator import run


@pytest.mark.parametrize("codec", ["inceptionn", "bounded"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_engine(codec: str, side: str, tmp_path: Path) -> None:
    run(f"{codec}_{side}", f"tests.rtl.{side}s", tmp_path / "model")
