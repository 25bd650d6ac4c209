"""Operations that nothing ends: a garbage collection finds them with all that they keep."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from softnic.collectives.steps import EngineOp


def test_memory_that_is_kept_for_c_is_released_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    gc.collect()
    for _ in range(20):
        memory = memoryview(bytearray(4096))  # made first, so that it is cleared first
        op = EngineOp(1, "Iallreduce", 1, 1)
        start = op.keep(memory)
        op._memory += [op, start]  # a cycle, as an engine is one
        del memory, op, start
    gc.collect()
    assert not said
