"""Text of others on a terminal, and standard files that are closed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.terminal import printable

COMMAND = (
    "import os, sys; [os.close(each) for each in {}]; os.execv(sys.executable, [sys.executable, '-m', 'softnic', {}])"
)


@given(st.text(), st.sampled_from(["", "\n", "\n\t"]))
def test_nothing_that_a_terminal_interprets_is_left(text: str, keep: str) -> None:
    cleaned = printable(text, keep)
    assert len(cleaned) == len(text)
    assert all(
        new == old if old.isprintable() or old in keep else new == "?" for old, new in zip(text, cleaned, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 中", "plain ü 中"),
        ("\x1b[2J", "?[2J"),
        ("a\x9b31mb\x7f", "a?31mb?"),
        ("\u202eevil\ud800", "?evil?"),
        ("", ""),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("closed", "argument", "code", "said"),
    [
        ((1,), "stat", 1, "softnic stat: "),
        ((0, 1), "stat", 1, "softnic stat: "),
        ((2,), "--version", 0, "softnic "),
        ((0, 1, 2), "stat", 1, ""),
        ((2,), "nothing", 2, ""),
    ],
)
def test_a_command_without_standard_files(closed: tuple[int, ...], argument: str, code: int, said: str) -> None:
    script = COMMAND.format(closed, repr(argument))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    shown = done.stderr + done.stdout
    assert (shown.startswith(said), len(shown.splitlines())) == (True, bool(said))
