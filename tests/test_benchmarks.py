"""The programs in benchmarks/ run; their figures are not checked here."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ddp.rank import EXACT, FP16
from benchmarks.peers.collectives import GLOO, SOFTNIC, AllreduceRow, beside_gloo, missing
from tests import needs

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = (
    "breakeven",
    "codec",
    "crossover",
    "ddp",
    "errors",
    "figures",
    "fsdp2",
    "link",
    "monitoring",
    "nic",
    "osu",
    "path",
    "peers",
    "reduce",
    "relay",
    "root_causes",
    "rounding",
    "rtl",
    "scale",
    "small",
    "strangers",
    "tap",
    "tcp",
    "training_data",
    "turn",
    "wan",
    "waves",
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_has_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)  # another benchmark may have imported it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert f"python -m benchmarks.{name}" in out


def test_peers_without_tools_or_rights_is_one_line() -> None:
    code = "import os, runpy; os.geteuid = lambda: 1000; runpy.run_module('benchmarks.peers', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "need root" in done.stderr


@pytest.mark.slow
def test_the_table_of_link_rates_is_made(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(
        *("benchmarks.breakeven", "--rate", "100mbit", "--rate", "unlimited", "--seconds", "0.05", "--rounds", "1"),
        *("--codec", "bounded:9", "--markdown", "--json", str(file)),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| link", "| ---", "| 100mbit", "| unlimited"]
    assert "bounded:9, MB/s" in lines[0]
    slow, fast = json.loads(file.read_text())["results"]
    assert slow["auto_compressed_share"] > 0
    assert slow["exact_of_link"] > 0
    assert fast["exact_of_link"] is None
    assert all(row["why"].startswith("auto: ") for row in (slow, fast))


def test_the_table_of_errors_is_made(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(
        *("benchmarks.errors", "--ranks", "3", "--ranks", "8", "--count", "1000", "--codec", "exact"),
        *("--codec", "bounded:8", "--codec", "truncate:10", "--markdown", "--json", str(file)),
    )
    assert done.returncode == 0, done.stderr
    cases = [line.split(" | ")[:2] for line in done.stdout.splitlines()[2:]]
    assert cases == [[f"| {codec}", ranks] for codec in ("exact", "bounded:8", "truncate:10") for ranks in ("3", "8")]
    rows = json.loads(file.read_text())["results"]
    assert len(rows) == 2 * 3 * 5
    for row in rows:
        assert 0 < row["rms_error"] < row["max_error"]
        assert row["codec"] != "exact" or row["max_error"] < 1e-7
        assert row["codec"] != "bounded:8" or row["max_error"] <= row["ranks"] * 2**-8


def test_the_table_of_sums_is_made(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(
        *("benchmarks.sums", "--ranks", "2", "--ranks", "8", "--count", "4096", "--codec", "rht:4"),
        *("--data", "laplace", "--markdown", "--json", str(file)),
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[:2] for line in done.stdout.splitlines()[2:]] == [["| rht:4", "2"], ["| rht:4", "8"]]
    rows = json.loads(file.read_text())["results"]
    assert {row["algorithm"] for row in rows if row["ranks"] == 8 and row["chosen"]} == {"wa", "direct"}


@pytest.mark.slow
def test_the_table_of_sizes_is_made(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(
        *("benchmarks.crossover", "-n", "2", "--size", "1024", "--size", "65536", "--algorithm", "tree", "--algorithm"),
        *("ring", "--rounds", "2", "--rate", "none", "--markdown", "--json", str(file)),
    )
    assert done.returncode == 0, done.stderr
    cases = [line.split(" | ")[:2] for line in done.stdout.splitlines()]
    assert cases[0] == ["| buffer", "floats"]
    assert cases[2:] == [[f"| {size}", case] for size in ("1.0 KB", "65.5 KB") for case in ("exact", "bounded:10")]
    for row in json.loads(file.read_text())["results"]:
        assert set(row["seconds"]) == set(row["cpu_s"]) == {"tree", "ring"}
        assert all(seconds > 0 for seconds in row["seconds"].values())


def test_the_codec_benchmark_runs() -> None:
    done = run("benchmarks.codec", "--megabytes", "0.1", "--rounds", "1", "--data", "zeros", "--codec", "raw")
    assert done.returncode == 0, done.stderr
    assert "roundtrip" in done.stdout


def test_the_benchmark_of_turns_runs_hot_and_cold(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run("benchmarks.turn", "--segments", "20", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["results"]
    assert {row["caches"] for row in rows} == {"hot", "slept", "evicted"}
    assert {row["codec"] for row in rows} == {"untagged", "bounded:10"}
    for row in rows:
        parts = [row[name] for name in ("send_data", "take_data", "send_ack", "take_ack")]
        assert min(parts) > 0
        assert row["turn"] == pytest.approx(sum(parts))


@pytest.mark.slow
def test_the_benchmark_of_reductions_runs() -> None:
    done = run("benchmarks.reduce", "--megabytes", "0.1", "--rounds", "1", "--threads", "2", "--codec", "bounded:10")
    assert done.returncode == 0, done.stderr
    assert "sum and round trip" in done.stdout
    assert "decode, 2 threads" in done.stdout


def test_an_all_reduce_of_peers_stands_beside_gloo_of_the_same_run() -> None:
    rows = [
        AllreduceRow("1gbit", SOFTNIC, EXACT, seconds=2.0, machine_cpu_s=3.0, processes_cpu_s=2.0),
        AllreduceRow("1gbit", GLOO, EXACT, seconds=1.0, machine_cpu_s=1.5, processes_cpu_s=0.5),
        AllreduceRow("1gbit", GLOO, FP16, seconds=0.5, machine_cpu_s=1.0),
        AllreduceRow("1gbit", "Open MPI", "", why="not installed: mpirun"),
    ]
    found = [(row.than_exact, row.than_fp16, row.cpu_of_gloo) for row in beside_gloo(rows)]
    assert found == [(0.5, 0.25, 2.0), (1.0, 0.5, 1.0), (2.0, 1.0, pytest.approx(2 / 3)), (None, None, None)]
    assert [row.processes_of_gloo for row in beside_gloo(rows)] == [4.0, 1.0, None, None]
    assert [row.cpu_of_gloo for row in beside_gloo(rows[:1])] == [None]


def test_an_absent_peer_is_named_by_its_module_or_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(GLOO, "no_such_module", sys.executable) == "no_such_module"
    assert missing(GLOO, "json", sys.executable) == missing(SOFTNIC, "", sys.executable) == ""
    monkeypatch.setenv("PATH", "")
    assert missing("Open MPI", "json", sys.executable) == "mpirun"


@pytest.mark.slow
def test_the_table_of_a_small_all_reduce_is_made(tmp_path: Path) -> None:
    needs.module("torch")
    file = tmp_path / "figures.json"
    done = run("benchmarks.small", "-n", "2", "--calls", "5", "--rounds", "2", "--json", str(file))
    assert done.returncode == 0, done.stderr
    gloo, softnic = json.loads(file.read_text())["results"]
    assert (gloo["backend"], gloo["of_gloo"], softnic["backend"]) == ("gloo", 1.0, "softnic")
    assert softnic["p50_us"] > 0
    assert softnic["of_gloo"] > 0


@pytest.mark.slow
@needs.hosts
def test_the_table_of_training_steps_is_made(tmp_path: Path) -> None:
    needs.module("torch")
    file = tmp_path / "figures.json"
    done = run("benchmarks.ddp", "--model", "hdc", "--steps", "2", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["results"]
    assert [(row["backend"], row["what"]) for row in rows] == [
        ("gloo", "exact"),
        ("gloo", "fp16"),
        ("softnic", "exact"),
        ("softnic", "bounded:10"),
        ("softnic", "hook:feedback:relative:0"),
    ]
    assert (rows[0]["of_gloo"], rows[1]["of_fp16"]) == (1.0, 1.0)
    assert rows[0]["off_gloo"] == 0.0 < rows[1]["off_gloo"]


@pytest.mark.slow
def test_an_injected_fault_is_named(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(
        "benchmarks.root_causes", "--kind", "mismatched call", "--faults", "1", "--markdown", "--json", str(file)
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["results"]
    assert (row["kind"], row["faults"]) == ("mismatched call", 1)
    # Before a third rank has called anything, the two calls that differ are equal, and either rank may be named.
    assert row["named"] == 1 or row["missed"].startswith("seed 1: mismatched call, rank "), row["missed"]
