"""`softnic run`: output, exit codes, and that no process is left."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, cast

import pytest

from softnic import MPI, Cluster
from softnic.cluster.abort_record import read_abort, record_abort
from softnic.commands.ranks import Ranks
from tests.commands.conftest import LIMIT_S, Start

Softnic = Callable[..., tuple[int, str, str]]


def sh(script: str, *options: str, nodes: int = 2) -> list[str]:
    return ["run", "-n", str(nodes), *options, "--", "sh", "-c", script]


def test_every_rank_runs_and_its_lines_begin_with_its_number(softnic: Softnic) -> None:
    code, out, err = softnic(*sh("echo rank $SOFTNIC_RANK of $SOFTNIC_WORLD_SIZE; echo oops >&2; printf end"))
    assert code == 0
    assert sorted(out.splitlines()) == ["[0] end", "[0] rank 0 of 2", "[1] end", "[1] rank 1 of 2"]
    assert sorted(err.splitlines()) == ["[0] oops", "[1] oops"]


@pytest.mark.parametrize("found", [None, "exit 1", "exit 0"])
def test_python_is_one_that_has_softnic(
    softnic: Softnic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    """`found` is the python on PATH: none, one without softnic, or one with softnic that prints nothing."""
    other = tmp_path / "python3"
    if found is not None:
        other.write_text(f"#!/bin/sh\n{found}\n")
        other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = softnic("run", "-n", "1", "--", "python3", "-c", "import softnic, sys; print(sys.executable)")
    assert code == 0, err
    if found == "exit 0":
        assert (out, err) == ("", "")
    else:
        why = "there is no python3 on PATH" if found is None else f"{other} has no softnic"
        assert (out, err) == (f"[0] {sys.executable}\n", f"softnic run: {why}: ranks run {sys.executable}\n")


def test_links_and_codec_have_the_requested_configuration(softnic: Softnic) -> None:
    code, out, _ = softnic(
        *("run", "-n", "1", "--rate", "1gbit", "--delay", "50us", "--loss", "0.1%", "--codec", "bounded:9"),
        *("--", sys.executable, "-P", "-m", "softnic", "stat", "--json", "-"),
    )
    assert code == 0
    assert '"0x28": "bounded:9"' in out
    assert '"emulated_sent": 0' in out


def test_ranks_share_the_cores_by_default(softnic: Softnic) -> None:
    script = "echo $OMP_NUM_THREADS $SOFTNIC_THREADS $MINE"
    cores = len(os.sched_getaffinity(0))
    assert softnic(*sh(script, nodes=1), MINE="x")[1] == f"[0] 1 {cores} x\n"
    assert softnic(*sh("echo $SOFTNIC_THREADS", nodes=2))[1].splitlines()[0][4:] == str(max(1, cores // 2))
    assert softnic(*sh(script, nodes=1), OMP_NUM_THREADS="2", SOFTNIC_THREADS="3")[1] == "[0] 2 3\n"


def test_programs_for_mpi4py_run_unchanged(softnic: Softnic) -> None:
    program = "from mpi4py import MPI; comm = MPI.COMM_WORLD; print(comm.size, comm.allreduce(comm.rank))"
    code, out, err = softnic("run", "-n", "2", "--mpi4py", "--", sys.executable, "-c", program)
    assert (code, sorted(out.splitlines())) == (0, ["[0] 2 1", "[1] 2 1"]), err


ABORTS = """
import atexit, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 1:
    atexit.register(time.sleep, 2)
    {abort}
comm.Barrier()
"""


@pytest.mark.parametrize(
    ("abort", "code"),
    [
        ("comm.Abort(7)", 7),
        ("MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_ARE_FATAL); MPI.COMM_SELF.Call_errhandler(MPI.ERR_TAG)", MPI.ERR_TAG),
    ],
)
def test_the_exit_code_is_that_of_the_rank_that_aborts_even_if_others_end_first(
    softnic: Softnic, abort: str, code: int
) -> None:
    program = ABORTS.format(abort=abort)
    got, _, err = softnic("run", "-n", "2", "--mpi4py", "--", sys.executable, "-c", program)
    assert (got, err.splitlines()[-1]) == (code, f"softnic run: rank 1 aborted the job with exit code {code}")


def test_any_thread_aborts_the_job_while_no_other_makes_a_call(softnic: Softnic) -> None:
    program = """
import threading, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 1:
    threading.Thread(target=comm.Abort, args=(7,)).start()
time.sleep(1000)
"""
    code, _, err = softnic("run", "-n", "2", "--mpi4py", "--", sys.executable, "-c", program)
    assert (code, err.splitlines()[-1]) == (7, "softnic run: rank 1 aborted the job with exit code 7")


@pytest.mark.parametrize(("status", "code"), [(7, 7), (0, 1), (256, 1), (-1, 255)])
def test_the_first_rank_that_aborts_counts_and_the_job_has_failed(tmp_path: Path, status: int, code: int) -> None:
    record = tmp_path / "abort"
    assert read_abort(record) is None
    for rank, asked in ((2, status), (0, 9)):
        record_abort(asked, {"SOFTNIC_ABORT": str(record), "SOFTNIC_RANK": str(rank)})
    assert read_abort(record) == (2, code)


@pytest.mark.parametrize(
    ("dies", "code", "line"),
    [
        ("exit 3", 3, "softnic run: rank 1 ended with exit code 3; the job is ended"),
        ("kill -9 $$", 137, "softnic run: rank 1 was killed by SIGKILL; the job is ended"),
    ],
)
def test_a_rank_that_ends_with_an_error_ends_the_job(softnic: Softnic, dies: str, code: int, line: str) -> None:
    script = f"[ $SOFTNIC_RANK = 1 ] && {dies}; echo waiting; exec sleep 1000"
    got, out, err = softnic(*sh(script))
    assert (got, err.splitlines()) == (code, [line])
    assert out in ("", "[0] waiting\n")


@pytest.mark.slow
def test_a_rank_that_ignores_sigterm_is_killed(softnic: Softnic) -> None:
    script = "trap '' TERM; [ $SOFTNIC_RANK = 1 ] && exit 4; while :; do sleep 1; done"
    assert softnic(*sh(script))[0] == 4


def test_a_stopped_rank_gets_sigterm_too(softnic: Softnic, tmp_path: Path) -> None:
    """It is continued and handles SIGTERM, before it would be killed."""
    pid = tmp_path / "pid"
    stops = f"trap 'echo stopped; exit' TERM; echo $$ >{pid}; kill -STOP $$; while :; do sleep 0.1; done"
    waits = f"until grep -q '^State:.T' /proc/$(cat {pid})/status; do sleep 0.1; done"
    script = f"[ $SOFTNIC_RANK = 1 ] || {{ {stops}; }}; {waits} 2>/dev/null; exit 4"
    assert softnic(*sh(script))[:2] == (4, "[0] stopped\n")


def test_the_end_of_a_nic_ends_the_job(softnic: Softnic) -> None:
    script = (
        f"[ $SOFTNIC_RANK = 0 ] && kill -9 $({sys.executable} -P -m softnic stat --json - | "
        "sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p'); sleep 1000"
    )
    code, _, err = softnic(*sh(script))
    assert code == 1
    assert err == "softnic run: the NIC of node 0 was killed by SIGKILL; the job is ended\n"


def test_a_missing_command_is_a_one_line_error(softnic: Softnic) -> None:
    assert softnic("run", "-n", "1", "--", "no-such-program") == (
        1,
        "",
        "softnic run: no-such-program: command not found\n",
    )


@pytest.mark.parametrize("arguments", [[], ["--"], ["-n", "2", "--"]])
def test_no_command_is_a_one_line_error(softnic: Softnic, arguments: list[str]) -> None:
    code, out, err = softnic("run", *arguments)
    assert (code, out) == (1, "")
    assert err == "softnic run: no command given: softnic run -n 4 -- python train.py\n"


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--rate", "1", "'1' is not a rate"),
        ("--codec", "zip:9", "zip"),
        ("--codec", "auto:raw", "auto needs a codec that compresses"),
        ("--loss", "101%", "100%"),
        ("--kernel", "0;1", "'0;1' is not a list of ranks, as in 0,2-3 (before a command, write --)"),
        ("-n", "0", "from 1 to 250"),
    ],
)
def test_an_invalid_option_is_a_usage_error(softnic: Softnic, option: str, value: str, hint: str) -> None:
    code, _, err = softnic("run", option, value, "--", "true")
    assert code == 2
    assert hint in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--kernel", "0,2-5"], "--kernel: the ranks are 0 to 3"),
        (["--kernel", "3-1"], "--kernel: the ranks are 0 to 3"),
        (["--uplink"], "--uplink is for ranks with kernels: add --kernel, or --kernel with a list of ranks"),
    ],
)
def test_ranks_without_kernels_are_a_one_line_error(softnic: Softnic, options: list[str], hint: str) -> None:
    assert softnic("run", "-n", "4", *options, "--", "true") == (1, "", f"softnic run: {hint}\n")


def processes_of(pipe: int) -> bytes:
    """Read a pipe until all processes that have its other end are gone."""
    came = b""
    while True:
        assert select.select([pipe], [], [], LIMIT_S)[0], "a process stays behind"
        data = os.read(pipe, 4096)
        if not data:
            return came
        came += data


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_no_process_is_left(start: Start, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """NICs, ranks and their detached children all have a named pipe open, which reports their ends."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    process = start(*sh(f"exec 3>{fifo}; (setsid sleep 1000 &); echo $PPID >&3; exec sleep 1000"))
    try:
        output = b""
        while output.count(b"\n") < 2:
            assert select.select([reader], [], [], LIMIT_S)[0]
            output += os.read(reader, 100)
        supervisor = int(output.split()[0])
        pidfd = os.pidfd_open(supervisor)
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == code
        processes_of(reader)
        assert select.select([pidfd], [], [], LIMIT_S)[0]  # the supervisor ends after the NICs
        os.close(pidfd)
    finally:
        os.close(reader)


def test_ctrl_c_reaches_the_ranks(start: Start) -> None:
    process = start(*sh("trap 'echo interrupted; exit 9' INT; echo up; while :; do sleep 0.05; done", nodes=1))
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] up\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT_S)[0] == "[0] interrupted\n"
    assert process.returncode == 130


def test_a_closed_stdout_ends_the_job(start: Start) -> None:
    process = start(*sh("while :; do echo line; done", nodes=1))
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] line\n"
    process.stdout.close()
    assert process.wait(LIMIT_S) == 1


def test_a_long_line_is_split(softnic: Softnic) -> None:
    code, out, _ = softnic(*sh("head -c 300000 /dev/zero | tr '\\0' x", nodes=1))
    lines = out.splitlines()
    assert code == 0
    assert all(line.startswith("[0] x") for line in lines)
    assert sum(len(line) - 4 for line in lines) == 300000


class Endless:
    """A cluster of one node, whose process ends when `end` is written to."""

    nodes = 1
    nics: ClassVar[list[object]] = []

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.readable, self.end = os.pipe()
        self.code: int | None = None

    def spawn(self, *_: object) -> Endless:
        return self

    def fileno(self) -> int:
        return self.readable

    def poll(self) -> int | None:
        return self.code

    def signal(self, _number: int) -> None:
        pass

    def give_up(self) -> None:
        self.code = 1
        os.write(self.end, b".")


def test_a_signal_just_before_the_wait_ends_it(tmp_path: Path) -> None:
    """Here it is delivered to another thread, which does not interrupt the wait either."""

    class Heard(Exception):
        pass

    def handler(_number: int, _frame: object) -> None:
        raise Heard

    node = Endless(tmp_path)
    former = signal.signal(signal.SIGUSR1, handler)
    timers = [
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)),
        threading.Timer(LIMIT_S, node.give_up),
    ]
    ranks = Ranks(cast("Cluster", node), ["program"])
    for timer in timers:
        timer.start()
    try:
        with pytest.raises(Heard):
            list(ranks.lines())
        assert node.code is None, "it waited for something else"
    finally:
        for timer in timers:
            timer.cancel()
        ranks.close()
        signal.signal(signal.SIGUSR1, former)
        os.close(node.readable)
        os.close(node.end)
