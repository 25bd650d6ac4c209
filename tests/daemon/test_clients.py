"""Resources of NICs that have exited are released in the client process."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.daemon.nics import meet, running


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_kept_of_nics_that_have_exited() -> None:
    counts = []
    gc.collect()  # objects of earlier tests close their descriptors now, not between the counts
    for _ in range(4):
        with running(1) as nics:
            meet(nics[0])
        counts.append(descriptors())
    assert counts == [counts[0]] * 4
