"""What wakes a thread that polls."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from tests.facades.comm import Waker, clear, wake

ROOT = Path(__file__).resolve().parents[2]
AT_EXIT = """
import builtins
from tests.facades.comm import Waker
builtins.kept = Waker()  # destroyed after the modules
"""


def is_ready(waker: Waker) -> bool:
    return bool(select.select([waker.fd], [], [], 0)[0])


def test_a_waker_is_ready_until_it_is_cleared() -> None:
    waker = Waker()
    clear(waker)
    assert not is_ready(waker)
    wake(waker)
    wake(waker)
    assert is_ready(waker)
    clear(waker)
    assert not is_ready(waker)


def test_a_closed_waker_touches_no_descriptor() -> None:
    waker = Waker()
    number = waker.fd
    waker.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert other == number, "the number was not free again"
        wake(waker)
        waker.close()
        del waker
        assert not select.select([other], [], [], 0)[0]
    finally:
        os.close(other)


def test_a_waker_that_is_left_at_exit_prints_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_EXIT], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert ended.stderr == ""
