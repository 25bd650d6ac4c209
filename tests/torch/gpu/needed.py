"""What the tests of GPU kernels need: Triton, which comes with torch's builds for GPUs, and runs without one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

NEEDED = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: pip install --no-deps triton"),
]
