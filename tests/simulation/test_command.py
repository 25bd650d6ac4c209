"""The command: what it says of worlds that fail, and how they are seen again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softnic.stack.tcp import timers
from softnic.testing.__main__ import main


def test_worlds_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--processes", "2"]) == 0
    assert re.search(r"3 worlds, .* hours of their time in .* s: 0 failed", capsys.readouterr().out)


def test_a_failing_seed_comes_with_the_command_that_shows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(timers, "_on_close_time", crash)
    monkeypatch.chdir(tmp_path)
    assert main(["--seeds", "50", "--processes", "1", "--failures", "1"]) == 1
    shown = capsys.readouterr().out
    found = re.search(r"seed (\d+): at .*planted.*\n  to see it: python -m softnic.testing (.*)", shown)
    assert found is not None
    assert main(found[2].split()) == 1
    shown = capsys.readouterr().out
    assert f"seed {found[1]}: at " in shown
    assert "planted" in shown
    assert (tmp_path / f"world-{found[1]}.pcapng").stat().st_size > 1000


def test_capture_goes_with_a_seed() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--seeds", "1", "--capture", "x"])
    assert ended.value.code == 2
