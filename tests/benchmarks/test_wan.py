"""Sites: what is sent to whom, what is compared with what, and that the benchmark runs from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.wan import sums
from benchmarks.wan.carrier import by_destination, destination
from benchmarks.wan.lab import SiteHosts, SitePlan
from benchmarks.wan.sums import SumRow, compared, encoded_bytes
from benchmarks.wan.training import StepRow
from benchmarks.wan.training import compared as compared_steps
from softnic.packet.frames import Frames
from tests import needs

ROOT = Path(__file__).resolve().parents[2]
MACS = [bytes([2, 0, 0, 0, 0, number]) for number in range(3)]


def run(tmp_path: Path, *arguments: str) -> list[dict[str, object]]:
    """Run the benchmark and return the rows of all of its tables."""
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.wan", "--quick", *arguments, "--json", str(file)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads(file.read_text())
    return [row for report in (made if isinstance(made, list) else [made]) for row in report["results"]]


def test_a_batch_is_parted_by_destination() -> None:
    frames = [MACS[number] + bytes([index]) * 60 for index, number in enumerate((0, 1, 1, 2, 0))]
    parts = {destination(part): [frame[6] for frame in part] for part in by_destination(Frames.of(frames))}
    assert parts == {MACS[0]: [0, 4], MACS[1]: [1, 2], MACS[2]: [3]}
    (one,) = by_destination(Frames.of(frames[3:4]))
    assert destination(one) == MACS[2]


def test_the_limit_is_what_no_all_reduce_can_beat() -> None:
    assert SitePlan().size == 8
    assert SitePlan().limit_s(10e6) == pytest.approx(2 / 3 * 80e6 / 100e6)
    assert SitePlan(slow_rank=True).limit_s(10e6) == pytest.approx(80e6 / 20e6)
    assert encoded_bytes("exact", 1) == 1e6
    assert encoded_bytes("rht:4", 1) == pytest.approx(1e6 / 7.76, rel=0.01)


def test_rows_stand_beside_gloo_on_the_same_paths_with_the_same_size() -> None:
    rows = [
        SumRow("3 sites", 10, "Gloo, cubic", "exact", over_s=300),
        SumRow("3 sites", 10, "Gloo, bbr", "exact", seconds=20),
        SumRow("3 sites", 10, "softnic", "rht:4", seconds=2),
        SumRow("3 sites", 100, "softnic", "rht:4", seconds=2),
    ]
    found = [(row.than_cubic, row.than_bbr) for row in compared(rows)]
    assert found == [(None, None), (15, 1), (150, 10), (None, None)]
    steps = [
        StepRow("3 sites", "hdc", "Gloo, cubic", "exact", over_s=300),
        StepRow("3 sites", "hdc", "Gloo, bbr", "exact", step_s=3),
        StepRow("3 sites", "hdc", "softnic", "rht:4", step_s=1),
    ]
    assert [(row.than_cubic, row.than_bbr) for row in compared_steps(steps)] == [(None, None), (None, 1), (None, 3)]


@needs.hosts
@needs.tools("ping")
@pytest.mark.slow
def test_paths_between_sites_are_those_of_the_plan() -> None:
    """Round trips within a site and between sites, and losses on the paths between them only."""
    plan = SitePlan(ranks=(2, 1), between={(0, 1): ("30ms", "20%")})
    with SiteHosts(plan) as sites:
        sites.use_kernel("cubic")
        rtts = {}
        for other in ("10.77.0.2", "10.77.0.3"):
            said = sites.hosts[0].run("ping", "-c", "40", "-i", "0.01", "-w", "30", other)
            rtts[other] = float(said.rpartition("= ")[2].split("/")[0])
        counted = sites.counters()
    assert 2 <= rtts["10.77.0.2"] < 62 <= rtts["10.77.0.3"]
    assert 0 < counted["lost"] < counted["sent"]


@needs.hosts
@pytest.mark.slow
def test_softnic_is_measured_and_rows_are_kept(tmp_path: Path) -> None:
    needs.module("torch")
    keep = tmp_path / "kept.json"
    rows = run(tmp_path, "--only", "softnic", "--keep", str(keep))
    assert [row["what"] for row in rows] == ["exact", "rht:4", "bounded:10", "exact", "rht:4", *["exact", "rht:4"] * 2]
    assert [row["why"] for row in rows[:5]] == [""] * 5
    assert all(row["seconds"] for row in rows[:3])
    assert all(row["loss"] for row in rows[3:])
    first, _second, third = (row["seconds"] for row in rows[:3])
    units = json.loads(keep.read_text())["units"]
    assert len(units) == 5
    name = "softnic rht:4, 0.1 MB, 3 sites, one rank at 20mbit"
    units[name]["value"]["seconds"] = 123.0
    keep.write_text(json.dumps({"units": units}))
    again = run(tmp_path, "--only", "softnic", "--what", "sums", "--keep", str(keep))
    assert [row["seconds"] for row in again] == [pytest.approx(value) for value in (first, 123.0, third)]


@needs.hosts
@pytest.mark.slow
def test_gloo_is_measured_on_the_same_paths(tmp_path: Path) -> None:
    needs.module("torch")
    rows = run(tmp_path, "--only", "gloo", "--what", "sums")
    assert [row["who"] for row in rows] == [f"Gloo, {name}" for name in sums.congestion_controls()]
    assert [row["why"] for row in rows] == [""] * len(rows)


@needs.hosts
@pytest.mark.slow
def test_a_call_over_the_limit_is_a_row_that_says_so(tmp_path: Path) -> None:
    rows = run(tmp_path, "--only", "softnic", "--what", "sums", "--limit", "0.01")
    assert [(row["seconds"], row["over_s"]) for row in rows] == [(None, 0.01)] * 3
