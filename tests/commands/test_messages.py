"""Wrong usage of every command is one line that says what to do, with exit code 1 or 2, before any work."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from softnic import arguments, commands
from softnic.bench import codec
from softnic.commands import main

PAPER = ["model", "predict", "--parameters", "paper", "--nodes", "1,2", "--strategy", "ring"]


@pytest.fixture(autouse=True)
def no_nic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No NIC is found, and paths are relative to an empty directory."""
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no capture")


def ended(argv: list[str]) -> int:
    """The exit code of a command, wrong arguments included."""
    try:
        return main(argv)
    except SystemExit as left:
        return int(left.code or 0)


OUTPUTS = [
    ["stat", "--why", "--samples", "FILE", "--nic", "n.sock"],
    ["stat", "--why", "--nic", "n.sock", "--json", "FILE"],
    ["stat", "--nic", "n.sock", "--json", "FILE"],
    ["doctor", "--json", "FILE"],
    ["capture", "--nic", "n.sock", "-o", "x.pcapng", "--json", "FILE"],
    ["inspect", "text", "--json", "FILE"],
    ["inspect", "text", "--html", "FILE"],
    ["inspect", "text", "--flow", "1", "--floats", "FILE"],
    ["inspect", "text", "--flow", "1", "--bytes", "FILE"],
    ["bench", "codec", "--json", "FILE"],
    ["bench", "stream", "--json", "FILE"],
    ["bench", "allreduce", "--json", "FILE"],
    ["bench", "overlap", "--json", "FILE"],
    ["bench", "latency", "--json", "FILE"],
    ["bench", "connections", "--json", "FILE"],
    ["model", "calibrate", "--json", "FILE"],
    ["model", "calibrate", "--out", "FILE"],
    [*PAPER, "--json", "FILE"],
    [*PAPER, "--png", "FILE.png"],
    ["model", "check", "--json", "FILE"],
    ["model", "exchange", "--json", "FILE"],
    ["train", "--json", "FILE"],
    ["train", "--picture", "FILE.png"],
    ["demo", "--json", "FILE"],
    ["demo", "--capture", "FILE"],
    ["compare", "--json", "FILE"],
    ["compare", "--advise", "--json", "FILE"],
    ["compare", "--out", "FILE"],
    ["compare", "--results", "FILE"],
    ["reproduce", "inceptionn", "table3", "--json", "FILE"],
    ["reproduce", "inceptionn", "table3", "--out", "FILE"],
    ["reproduce", "inceptionn", "table3", "--results", "FILE"],
]


@pytest.mark.parametrize("argv", OUTPUTS, ids=" ".join)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`text` is a file: no file and no directory can be below it."""
    if {"compare", "train", "reproduce"} & {*argv} or "--png" in argv:
        pytest.importorskip("matplotlib.figure")  # looks for fonts by a program, once
        pytest.importorskip("torch")
    refused = AssertionError("it worked first")

    def work(*_arguments: object, **_named: object) -> None:
        raise refused

    monkeypatch.setattr("subprocess.Popen", work)
    monkeypatch.setattr("time.sleep", work)
    monkeypatch.setattr(codec, "run", work)
    assert ended([each.replace("FILE", "text/below") for each in argv]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    expected = "n.sock" if argv[:3] == ["stat", "--nic", "n.sock"] else "text"
    assert expected in line
    assert line.startswith(f"softnic {argv[0]}: ")
    assert "below" not in [path.name for path in Path().rglob("*")]


USAGE: list[tuple[list[str], int, str]] = [
    (["train", "--picture", "x.txt"], 2, "'x.txt' is no picture's name: it ends in .png, .svg or .pdf"),
    (["train", "--picture", "picture"], 2, "'picture' is no picture's name: it ends in .png, .svg or .pdf"),
    ([*PAPER, "--png", "x.svg"], 2, "'x.svg' is no picture's name: it ends in .png"),
    ([*PAPER, "--compute", "120"], 2, "'120' is not a time: the unit is missing, as in 120ms"),
    ([*PAPER, "--compute", "0ms"], 1, "a step's computation takes more than 0 s"),
    ([*PAPER, "--rate", "1gb"], 2, "'1gb' is not a rate: is it bits or bytes? Write 1gbit or 8gbit"),
    ([*PAPER, "--nodes", "2,x"], 2, "'x' is not a whole number"),
    (["model", "predict", "--parameters", "text"], 1, "text is not a file of a machine's parameters"),
    (["model", "predict", "--parameters", "none"], 1, "none: No such file or directory"),
    (["model"], 2, "required: calibrate|predict|check|exchange"),
    (["bench"], 2, "required: codec|stream|allreduce|overlap|latency|connections"),
    (["bench", "stream", "--rate", "100mbps"], 2, "Write 100mbit or 800mbit"),
    (["bench", "latency", "--size", "5"], 2, "expected a multiple of 4"),
    (["bench", "codec", "--codec", "zip"], 2, "unknown codec 'zip'"),
    (["demo", "--rate", "1gb"], 2, "Write 1gbit or 8gbit"),
    (["demo", "--limit", "256k"], 2, "write 256kb (decimal) or 256kib (binary)"),
    (["demo", "--loss", "2"], 2, "it is more than 100%"),
    (["run", "--delay", "50", "--", "true"], 2, "the unit is missing, as in 50ms"),
    (["run"], 1, "no command"),
    (["exec"], 1, "no command given"),
    (["exec", "--", "true"], 1, "no NIC: pass --nic PATH"),
    (["exec", "--tag", "x", "--", "true"], 2, "--tag"),
    (["stat", "--nic", "none.sock"], 1, "no NIC answers at none.sock"),
    (["stat", "--count", "2"], 1, "--count needs --watch"),
    (["top", "--sort", "size"], 2, "invalid choice: 'size'"),
    (["top", "--once", "--nic", "none.sock"], 1, "no NIC answers at none.sock"),
    (["capture", "-o", "x"], 1, "no NIC given: use --nic PATH"),
    (["capture", "--nic", "none.sock", "-o", "x"], 1, "no NIC answers at none.sock"),
    (["capture", "-o", "x", "--duration", "2m"], 2, "'2m' is not a time: write 120s"),
    (["inspect", "none"], 1, "none: No such file or directory"),
    (["inspect", "folder"], 1, "folder: Is a directory"),
    (["inspect", "text"], 1, "text: "),
    (["inspect", "text", "--floats", "x"], 1, "--floats and --bytes need --flow N or --packet N"),
    (["extcap"], 1, "softnic extcap --install"),
    (["compare", "--steps", "0"], 2, "'0' is not a whole number, at least 1"),
    (["compare", "--method", "zip"], 2, "zip"),
    (["compare", "--advise", "--compute", "1s"], 1, "--compute needs --parameters"),
    (["reproduce"], 1, "name a paper: "),
    (["reproduce", "inceptionn", "table99"], 1, "inceptionn has no item 'table99'"),
    (["doctor", "a:b:c:99999999"], 2, "is not HOST or HOST:PORT"),
    (["doctor", "--rate", "fast"], 2, "'fast' is not a rate"),
]


@pytest.mark.parametrize(("argv", "code", "text"), USAGE, ids=[" ".join(argv) for argv, _, _ in USAGE])
def test_wrong_usage_says_what_to_do(
    argv: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: pytest.fail("it worked"))
    assert ended(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert text in last
    if code == 1:
        assert err == f"{last}\n"
        assert last.startswith(f"softnic {argv[0]}: ")
    assert not any(path.name in ("x", "x.txt", "x.svg") for path in Path().iterdir())


@pytest.mark.parametrize(
    "argv",
    [[*PAPER, "--json", "/dev/full"], [*PAPER], ["stat", "--schema"]],
    ids=" ".join,
)
def test_a_full_device_is_named(argv: list[str], softnic_to: Callable[..., tuple[int, str]]) -> None:
    code, err = softnic_to("/dev/full", *argv)
    assert code == 1
    name = "/dev/full" if "/dev/full" in argv else "standard output"
    assert err == f"softnic {argv[0]}: {name}: No space left on device\n"


def test_a_closed_standard_output_is_named() -> None:
    arguments = ["-c", "import os, sys; os.close(1); os.execv(sys.executable, sys.orig_argv[:1] + sys.argv[1:])"]
    command = [sys.executable, *arguments, "-P", "-m", "softnic", "stat", "--schema"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, "softnic stat: standard output: Bad file descriptor\n")


@pytest.fixture
def softnic_to() -> Callable[..., tuple[int, str]]:
    """Runs `softnic` with its standard output in a file: exit code and stderr."""

    def call(target: str, *argv: str) -> tuple[int, str]:
        with Path(target).open("w") as out:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "softnic", *argv], stdout=out, stderr=subprocess.PIPE, text=True,
                timeout=120, check=False,
            )  # fmt: skip
        return done.returncode, done.stderr

    return call


def test_what_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("before")
    link = tmp_path / "link"
    link.symlink_to("linked")
    commands.check_writable(None, "-", kept, link, str(tmp_path / "new"), "/dev/full", os.devnull)
    assert kept.read_text() == "before"
    assert link.is_symlink()
    assert not any((tmp_path / name).exists() for name in ("new", "linked"))


def test_a_pipe_is_not_opened_before_there_is_something_to_write(tmp_path: Path) -> None:
    """Its reader would take the end of that for the end of the document; without a reader, opening would wait."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    commands.check_writable(pipe)


def test_an_error_without_a_file_gets_its_name() -> None:
    with pytest.raises(OSError, match="No space left") as full, commands.named("/dev/full"):
        commands.write_file("/dev/full", b"x")
    assert full.value.filename == "/dev/full"
    with pytest.raises(FileNotFoundError) as absent, commands.named("outer"):
        Path("/none/inner").read_bytes()
    assert absent.value.filename == "/none/inner"


def accepts(convert: Callable[[str], object], text: str) -> bool:
    try:
        convert(text)
    except argparse.ArgumentTypeError:
        return False
    return True


def test_both_ends_of_a_range_are_in_it() -> None:
    whole, open_ended, real = arguments.count(2, 5), arguments.count(2), arguments.number(0.5, 1.5, "a share")
    assert [text for text in map(str, range(8)) if accepts(whole, text)] == ["2", "3", "4", "5"]
    assert [text for text in ("1", "2", "10000", "-2", "2.0", "\u0663", "") if accepts(open_ended, text)] == [
        "2",
        "10000",
    ]
    tried = ("0.49", "0.5", "1", "1.5", "1.51", "nan", "inf", "x")
    assert [text for text in tried if accepts(real, text)] == ["0.5", "1", "1.5"]
