"""The dispatcher: which command runs, and what its failures look like."""

from __future__ import annotations

import argparse
import errno
import re
import signal
import sys
import types
from collections.abc import Callable

import pytest

from softnic import arguments, commands, units
from softnic.commands import CommandError, main


def install(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> None:
    """Puts a command of the test's own in the place of `softnic stat`."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rate", type=arguments.argument(units.rate_bps))
        parser.add_argument("--nodes", type=arguments.count(2, 200), default=4)

    module = types.ModuleType("softnic.commands.stat")
    vars(module).update(NAME="stat", HELP="100% of a test", add_arguments=add_arguments, run=run)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_command_gets_its_arguments_and_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args)
        return 7

    install(monkeypatch, run)
    assert main(["stat", "--rate", "1gbit"]) == 7
    assert (seen[0].rate, seen[0].nodes) == (1e9, 4)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """But for a signal that is ignored, as nohup has it."""
    tidied: list[str] = []

    def run(_args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(number)
            return 7
        finally:
            tidied.append("up")

    install(monkeypatch, run)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["stat"])
        assert (ended.value.code, tidied, signal.getsignal(number)) == (128 + number, ["up"], signal.SIG_DFL)
        signal.signal(number, signal.SIG_IGN)
        assert main(["stat"]) == 7
    finally:
        signal.signal(number, before)


def test_what_a_cluster_noted_of_its_nics_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_args: argparse.Namespace) -> int:
        cause = OSError("no such stream")
        cause.add_note("the NIC of node 1 was killed by SIGKILL")
        error = CommandError("no such stream")
        error.add_note("no such stream")
        raise error from cause

    install(monkeypatch, run)
    assert main(["stat"]) == 1
    assert lines(capsys) == ["softnic stat: no such stream; the NIC of node 1 was killed by SIGKILL"]


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        (CommandError("no such flow: try inspect"), "softnic stat: no such flow: try inspect"),
        (OSError(errno.ENETDOWN, "the NIC is gone"), "softnic stat: the NIC is gone"),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "softnic stat: Too many open files (`ulimit -n` sets the limit)",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x"),
            "softnic stat: x: No such file or directory",
        ),
        (
            ModuleNotFoundError("No module named 'sklearn'", name="sklearn.datasets"),
            f"softnic stat: the module sklearn is not installed: {sys.executable} -m pip install 'scikit-learn>=1.4'",
        ),
        (
            ImportError("libfoo.so: cannot open shared object file", name="numpy.core"),
            "softnic stat: numpy is installed but does not load: libfoo.so: cannot open shared object file",
        ),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: Exception, line: str
) -> None:
    def run(_args: argparse.Namespace) -> int:
        raise raised

    install(monkeypatch, run)
    assert main(["stat"]) == 1
    assert lines(capsys) == [line]


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda _args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["stat"])


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    install(monkeypatch, run)
    assert main(["stat"]) == 130


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        ([], "required: COMMAND"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["--nonsense", "stat"], "--nonsense"),
        (["--", "stat"], "softnic: error: "),
        (["stat", "--rate", "fast"], "'fast' is not a rate: a number and one of bit"),
        (["stat", "--nodes", "1"], "'1' is not a whole number from 2 to 200"),
        (["stat", "--nodes", "-3"], "--nodes"),
        (["stat", "--nodes", "²"], "'²' is not a whole number"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], hint: str
) -> None:
    install(monkeypatch, lambda _args: 0)
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert hint in lines(capsys)[-1]


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    listed = re.findall(r"^ {4}(\w+)", capsys.readouterr().out, re.MULTILINE)  # help that wraps is indented further
    assert [name for name in listed if name in commands.COMMANDS] == list(commands.COMMANDS)


def test_a_command_that_cannot_load_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "softnic.commands.capture", None)  # what a broken import leaves
    install(monkeypatch, lambda _args: 0)
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "capture (not usable here: the module softnic.commands.capture" in text
    assert "stat 100% of a test" in text
    assert main(["capture"]) == 1
    assert main(["stat"]) == 0
