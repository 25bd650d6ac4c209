"""What the tests of GPU kernels need: Triton, which comes with torch's builds for GPUs, imported for its interpreter.

A test imports this before anything that imports Triton.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest

_IS_LATE = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
if not _IS_LATE:
    os.environ["TRITON_INTERPRET"] = "1"
NEEDED = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: pip install --no-deps triton"),
    pytest.mark.skipif(_IS_LATE, reason="triton is imported, and not for its interpreter: TRITON_INTERPRET=1 pytest"),
]
