"""The command: its exit code, its report of failures, and the replay of one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from softnic.capture import reader
from softnic.capture.flows import is_host
from tests.simulation import trace
from tests.simulation.__main__ import main
from tests.simulation.planted import crash_on_close_timer


def test_worlds_without_violations() -> None:
    """As a user runs it: spawned processes find the code that they run by its name."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "3", "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"3 worlds, .* hours of virtual time in .* s: 0 failed", done.stdout)


def test_traces_are_recorded_shown_and_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trace, "FILE", tmp_path / "traces.json")
    few = ["--seeds", "3", "--processes", "1", "--traces"]
    assert main([*few, "record"]) == 0
    assert main([*few, "compare"]) == 0
    capsys.readouterr()
    assert main([*few, "show"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    kept = trace.recorded()
    assert {int(seed): found for seed, found in shown.items()} == kept
    assert main([*few, "compare", "--fast-path", "off"]) == 0  # the same traces; how much C did is not compared
    trace.record({1: f"{kept[1]}0"})
    assert main([*few, "compare"]) == 1
    capsys.readouterr()
    trace.record({1: "another one"})
    assert main([*few, "compare"]) == 1
    assert "1 of 3 traces are not those of traces.json: seeds 1" in capsys.readouterr().out
    assert trace.recorded() == kept | {1: "another one"}


def test_a_fast_path_that_would_not_be_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--soak", "1", "--fast-path", "on"])
    assert "--fast-path" in capsys.readouterr().err


def test_python_and_c_record_the_same_capture(tmp_path: Path) -> None:
    files = [tmp_path / f"{mode}.pcapng" for mode in ("off", "on", "mixed")]
    for file in files:
        assert main(["--seed", "3", "--fast-path", file.stem, "--capture", str(file)]) == 0
    assert len({file.read_bytes() for file in files}) == 1


def test_a_capture_changes_nothing_with_queues(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain = ["--seed", "3", "--queues", "2"]
    assert main(plain) == main([*plain, "--capture", str(tmp_path / "world.pcapng")]) == 0
    digests = re.findall(r"digest (\w+)", capsys.readouterr().out)
    assert len(digests) == 2
    assert digests[0] == digests[1]


def test_a_capture_of_a_world_is_like_one_of_daemons(tmp_path: Path) -> None:
    """`softnic inspect` recognises sides by the names of interfaces."""
    file = tmp_path / "world.pcapng"
    assert main(["--seed", "17", "--capture", str(file)]) == 0
    capture = reader.read(file)
    assert [one.name for one in capture.interfaces] == [
        f"node{index}:{side}" for index in range(3) for side in ("host", "wire")
    ]
    assert [is_host(one) for one in capture.interfaces] == [True, False] * 3


def test_a_failing_seed_is_printed_with_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    crash_on_close_timer(monkeypatch, crash)
    monkeypatch.chdir(tmp_path)
    assert main(["--seeds", "50", "--processes", "1", "--failures", "1"]) == 1
    shown = capsys.readouterr().out
    found = re.search(r"seed (\d+): at .*planted.*\n  to replay it: python -m tests.simulation (.*)", shown)
    assert found is not None
    assert main(found[2].split()) == 1
    shown = capsys.readouterr().out
    assert f"seed {found[1]}: at " in shown
    assert "planted" in shown
    assert (tmp_path / f"world-{found[1]}.pcapng").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--seeds", "1", "--capture", "x"], "--capture goes with --seed"),
        (["--seed", "1", "--traces", "show"], "--traces goes with --seeds"),
        (
            ["--seeds", "1", "--queues", "2", "--traces", "compare"],
            "--queues goes with --seeds or --seed, without",
        ),
        (["--seed", "1", "--queues", "9"], "--queues is from 1 to 8"),
        (["--seeds", "0"], "--seeds, --processes and --failures are at least 1"),
        (["--seeds", "1", "--processes", "0"], "--seeds, --processes and --failures are at least 1"),
    ],
)
def test_contradictory_options_are_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], hint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


def test_a_capture_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--seed", "17", "--capture", str(tmp_path / "none" / "x")]) == 1
    line = f"python -m tests.simulation: {tmp_path}/none/x: No such file or directory\n"
    assert capsys.readouterr().err == line
