"""`MPI.pickle`: the serializer of objects, which programs may replace."""

from __future__ import annotations

import json
import marshal
import pickle
from typing import Any

import numpy as np
import pytest

from softnic import MPI


def test_it_is_pickle_until_a_program_sets_another() -> None:
    chosen = MPI.Pickle()
    assert chosen.dumps([1, "a"]) == pickle.dumps([1, "a"], pickle.HIGHEST_PROTOCOL)
    chosen.__init__(lambda obj: json.dumps(obj).encode(), json.loads)  # type: ignore[misc]
    assert (chosen.dumps([1]), chosen.loads(b"[1]"), chosen.PROTOCOL) == (b"[1]", [1], None)
    chosen.__init__(marshal.dumps, marshal.loads, 2)  # type: ignore[misc]
    assert chosen.dumps([1]) == marshal.dumps([1], 2)
    chosen.__init__(protocol=2)  # type: ignore[misc]
    assert chosen.dumps([1]) == pickle.dumps([1], 2)
    chosen.PROTOCOL = None
    assert chosen.PROTOCOL == pickle.HIGHEST_PROTOCOL


def test_large_buffers_stay_outside() -> None:
    chosen = MPI.Pickle(threshold=1000)
    assert chosen.THRESHOLD == 1000
    values: dict[str, Any] = {"small": np.arange(10), "large": np.arange(1000)}
    data, buffers = chosen.dumps_oob(values)
    assert len(data) < 1000
    assert [len(buffer) for buffer in buffers] == [values["large"].nbytes]
    found = chosen.loads_oob(data, buffers)
    assert all(np.array_equal(found[name], values[name]) for name in values)
    assert np.shares_memory(found["large"], values["large"])
    chosen.THRESHOLD = None
    assert len(chosen.dumps_oob(values)[1]) == 0


def test_the_environment_sets_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_PICKLE_PROTOCOL", "3")
    monkeypatch.setenv("MPI4PY_PICKLE_THRESHOLD", "10")
    chosen = MPI.Pickle()
    assert (chosen.PROTOCOL, chosen.THRESHOLD) == (3, 10)
