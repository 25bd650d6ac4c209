"""Words of all kinds, for tests of GPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

SPECIAL = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00001, 0x80000000, 0xFF800000]
WORDS = st.integers(0, 2**32 - 1) | st.sampled_from(SPECIAL)


def words_of(kind: str, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "bits":
        return rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    makers: dict[str, Callable[[], Any]] = {
        "gaussian": lambda: rng.normal(0, 0.01, count),
        "scales": lambda: rng.normal(0, 1, count) * 10.0 ** np.repeat(rng.uniform(-44, 37, count // 16), 16),
        "heavy": lambda: rng.standard_t(1, count),
        "denormal": lambda: rng.normal(0, 1e-40, count),
        "equal": lambda: np.full(count, 0.3),
        "zeros": lambda: np.where(rng.random(count) < 0.5, 0.0, -0.0),
        "halves": lambda: rng.integers(-64, 64, count) / 32,
        "sparse": lambda: rng.normal(0, 1, count) * (np.repeat(rng.random(count // 16), 16) < 0.3),
    }
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(makers[kind](), np.float32)


KINDS = ["gaussian", "scales", "heavy", "denormal", "equal", "zeros", "halves", "sparse", "bits"]
