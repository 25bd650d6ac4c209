"""SOFTNIC_DEBUG: one line a rank on what its communicator runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from softnic import codecs
from softnic.comm import debug_info
from softnic.ipc.control import NicInfo

NIC = NicInfo(
    version=3, name="node1", ip="10.77.0.2", mac="", mtu=1426, mode="fill", offloads={}, codecs=[], pid=os.getpid()
)
RANK = debug_info.RankDescription(
    1, 3, "torchrun", {0: "10.77.0.1", 2: "10.77.0.3"}, NIC, "/run/nic.sock", "rht:4"
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "level"), [("", "warn"), ("warn", "warn"), ("WARN", "warn"), ("info", "info"), ("INFO", "info")]
)
def test_levels(value: str, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert debug_info.level({"SOFTNIC_DEBUG": value}) == level
    assert debug_info.level({}) == "warn"
    assert capsys.readouterr().err == ""


def test_an_unknown_level_is_warned_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("trace", "trace", "5"):
        assert debug_info.level({"SOFTNIC_DEBUG": value}) == "warn"
    assert capsys.readouterr().err.splitlines() == [
        "softnic: SOFTNIC_DEBUG=trace is neither warn nor info: taken as warn",
        "softnic: SOFTNIC_DEBUG=5 is neither warn nor info: taken as warn",
    ]


def test_the_line_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_info, "log_of", lambda pid: f"/tmp/{pid}.log")
    assert debug_info.describe(RANK) == (
        f"softnic: rank 1 of 3 (torchrun): NIC node1 10.77.0.2 at /run/nic.sock (pid {os.getpid()}); codec rht:4; "
        f"compressed allreduce tree below 64 KiB, direct; mtu 1426; mode fill; simd {codecs.simd()}; "
        f"peers 0 10.77.0.1, 2 10.77.0.3; log /tmp/{os.getpid()}.log"
    )
    monkeypatch.setattr(debug_info, "log_of", lambda _pid: "")
    without = debug_info.describe(replace(RANK, codec=""))
    assert "; codec none; " in without
    assert without.endswith("; log not known")
    alone = debug_info.RankDescription(0, 1, "none", {}, None, "", "raw")
    assert debug_info.describe(alone) == f"softnic: rank 0 of 1 (no launcher): alone, no NIC, simd {codecs.simd()}"


@pytest.mark.parametrize(
    ("others", "shown"), [(8, "; peers 1 a, 2 a, 3 a, 4 a, 5 a, 6 a, 7 a, 8 a; "), (11, ", 3 more; ")]
)
def test_many_peers_are_counted(others: int, shown: str) -> None:
    line = debug_info.describe(replace(RANK, rank=0, size=others + 1, peers=dict.fromkeys(range(1, others + 1), "a")))
    assert shown in line
    assert ("more" in line) == (others > 8)


@pytest.mark.parametrize(
    ("size", "codec", "text"),
    [
        (4, "bounded:10", "tree below 64 KiB, direct below 8 MiB, ring"),
        (32, "bounded:10", "tree below 64 KiB, direct below 8 MiB, hierarchical"),
        (4, "rht:4", "tree below 64 KiB, direct"),
        (128, "rht:4", "wa below 16 KiB, direct"),
    ],
)
def test_algorithms_by_size(size: int, codec: str, text: str) -> None:
    assert debug_info.algorithms(size, codec) == text


def test_the_log_of_a_process(tmp_path: Path) -> None:
    log = tmp_path / "nic.log"
    with log.open("w") as errors, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=errors) as process:
        assert debug_info.log_of(process.pid) == str(log)
        process.communicate()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert debug_info.log_of(process.pid) == ""
        process.communicate()
    assert debug_info.log_of(1 << 22) == ""


PROGRAM = """
from softnic import MPI

MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize(("level", "lines"), [("info", 2), ("warn", 0)])
def test_each_rank_of_a_job_says_it(level: str, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "softnic", "run", "-n", "2", "--", sys.executable, "-c", PROGRAM],
        env={**os.environ, "SOFTNIC_DEBUG": level}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = sorted(done.stderr.splitlines())
    assert len(found) == lines, done.stderr
    for rank, line in enumerate(found):
        assert line.startswith(f"[{rank}] softnic: rank {rank} of 2 (softnic): NIC node{rank} 10.77.0.{rank + 1} at ")
        assert f"peers {1 - rank} 10.77.0.{2 - rank}; " in line
        assert line.endswith(f"node{rank}.log")
