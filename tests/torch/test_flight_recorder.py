"""The records of calls, read by torch's own analyzer."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.flight_recorder.components.types import MatchState, Op

import softnic.torch
from softnic.torch.backend import SoftnicGroup
from softnic.torch.flight_recorder import FlightRecorder, GroupCalls
from tests.torch.groups import outcomes, run

RANKS = 2
MEMBERS = {"test": set(range(RANKS))}


class Named:
    """A group as torch names it."""

    def getGroupName(self) -> str:
        return "7"

    def getGroupDesc(self) -> str:
        return "test"

    def getSize(self) -> int:
        return RANKS


def every_call(group: SoftnicGroup) -> None:
    rank, other, row = group.rank(), 1 - group.rank(), torch.ones(2, 3)
    rows = [torch.ones(2, 3) for _ in range(RANKS)]
    both = torch.ones(2 * RANKS, 3)
    reduce_to = dist.ReduceOptions()
    scatter = dist.ScatterOptions()
    works = [
        group.allreduce([row]),
        group.allreduce([row, torch.ones(4)]),
        group.reduce([row], reduce_to),
        group.reduce_scatter([row], [rows]),
        group.reduce_scatter([torch.ones(1 + rank)], [[torch.ones(1), torch.ones(2)]]),
        group.reduce_scatter_single(row, both),
        group.broadcast([row], dist.BroadcastOptions()),
        group.allgather([rows], [row]),
        group.allgather_coalesced([[row, row], [row, row]], [row, row]),
        group.all_gather_single(both, row),
        group.barrier(),
        group.gather([rows] if rank == 0 else [], [row], dist.GatherOptions()),
        group.scatter([row], [rows] if rank == 0 else [], scatter),
        group.alltoall(rows, rows),
        group.all_to_all_single(both, torch.ones(2 * RANKS, 3)),
        group.send([row], other) if rank == 0 else group.recv([row], other),
    ]
    for work in works:
        work.wait()


def test_the_analyzer_finds_every_call_of_two_ranks_to_match() -> None:
    before = {entry["record_id"] for entry in pickle.loads(softnic.torch.dump_fr_trace())["entries"]}
    run(RANKS, every_call)
    made = [e for e in pickle.loads(softnic.torch.dump_fr_trace())["entries"] if e["record_id"] not in before]
    first, second = sorted({entry["pg_id"] for entry in made})
    pairs = zip(*([entry for entry in made if entry["pg_id"] == each] for each in (first, second)), strict=True)
    for mine, theirs in pairs:
        match = Op(mine, MEMBERS, "test").match(Op(theirs, MEMBERS, "test"))
        uneven = mine["profiling_name"] == "gloo:reduce_scatter_v"  # each rank's own length is its output
        expected = {MatchState.SIZE_OR_SYNTAX_MISMATCH if uneven else MatchState.FULLY_MATCHED}
        if "all_to_all" in mine["profiling_name"]:  # the analyzer adds up the sizes of all ranks; from 2.15, of both
            expected.add(MatchState.UNDECIDED)
        assert match.state in expected, mine["profiling_name"]
        assert mine["state"] == theirs["state"] == "completed"
        assert mine["collective_seq_id"] == theirs["collective_seq_id"]
        assert any(frame["name"] == "every_call" and frame["filename"] == __file__ for frame in mine["frames"])


def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: dict[int, list[tuple[str, Any]]]) -> None:
    """Write a file for each rank, whose calls are given with their tensors; the last one is not complete."""
    group = Named()
    for rank, those in calls.items():
        recorder = FlightRecorder(100)
        own = GroupCalls(recorder, group, rank)
        records = [own.record(call, [tensor], 1.0) for call, tensor in those]
        for record in records:
            record.start()
        for record in records[:-1]:
            record.complete()
        monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/rank_")
        monkeypatch.setenv("RANK", str(rank))
        assert recorder.write() == f"{tmp_path}/rank_{rank}"


def test_an_entry_has_the_state_of_its_call() -> None:
    """`retired`: torch's recorder no longer watches the call. The analyzer names calls that are not."""
    recorder = FlightRecorder(100)
    calls = GroupCalls(recorder, Named(), 0)
    scheduled, started, completed = (calls.record("all_reduce", [torch.ones(5)], 1.5) for _ in range(3))
    started.start()
    completed.start()
    completed.complete()
    completed.started_ns, completed.completed_ns = 5_000_000, 8_500_000
    entries = recorder.dump()["entries"]
    assert [entry["state"] for entry in entries] == ["scheduled", "started", "completed"]
    assert [entry["retired"] for entry in entries] == [False, False, True]
    assert [entry.get("duration_ms") for entry in entries] == [None, None, 3.5]
    assert [entry["time_discovered_started_ns"] is None for entry in entries] == [True, False, False]
    assert [entry["time_discovered_completed_ns"] is None for entry in entries] == [True, True, False]
    assert [entry["timeout_ms"] for entry in entries] == [1500] * 3
    assert scheduled.created_ns <= started.created_ns


def analyzed(directory: Path) -> str:
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(directory), "--prefix", "rank_"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout + done.stderr


def test_the_analyzer_names_the_rank_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ("all_reduce", torch.ones(5))
    recorded(tmp_path, monkeypatch, {0: [one, one, one], 1: [one, one]})
    found = analyzed(tmp_path)
    assert "Not all ranks joining collective, sequence number: 3" in found
    assert "missing ranks: {1}" in found


def test_the_analyzer_names_the_rank_whose_call_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ("all_reduce", torch.ones(5))
    recorded(tmp_path, monkeypatch, {0: [one, one], 1: [one, ("broadcast", torch.ones(5))]})
    found = analyzed(tmp_path)
    assert "Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH" in found
    assert "Collective sequence number: 2 has errors" in found


def test_a_recorder_keeps_the_last_calls_and_none_if_it_is_off() -> None:
    group = Named()
    for size, expected in ((3, [2, 3, 4]), (0, [])):
        recorder = FlightRecorder(size)
        calls = GroupCalls(recorder, group, 0)
        for _ in range(5):
            calls.record("all_reduce", [torch.ones(2)], 1.0).start()
        dump = recorder.dump()
        assert [entry["record_id"] for entry in dump["entries"]] == expected
        assert recorder.is_on is bool(size)
    assert recorder.write() == ""


def test_a_record_keeps_no_tensor_alive() -> None:
    group, recorder = Named(), FlightRecorder(3)
    tensor = torch.ones(2)
    references = sys.getrefcount(tensor)
    GroupCalls(recorder, group, 0).record("all_reduce", [tensor], 1.0)
    assert sys.getrefcount(tensor) == references


def test_a_file_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/file/rank_")
    group, recorder = Named(), FlightRecorder(3)
    GroupCalls(recorder, group, 0).record("barrier", [], 1.0)
    assert recorder.write() == ""


def test_the_error_of_a_timeout_names_what_is_missing_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/rank_")
    met = threading.Event()

    def program(group: SoftnicGroup) -> str:
        if group.rank() == 1:
            met.wait(60)
            return ""
        with pytest.raises(dist.DistBackendError) as caught:
            group.recv([torch.zeros(1)], 1).wait(timedelta(milliseconds=50))
        met.set()
        return str(caught.value)

    text = outcomes(2, program)[0]
    assert "no message from rank 1" in text
    assert f"torchfrtrace reads {tmp_path}/rank_" in text
    [path] = tmp_path.iterdir()
    [entry] = [each for each in pickle.loads(path.read_bytes())["entries"] if each["state"] != "completed"][-1:]
    assert entry["profiling_name"] == "gloo:recv 0<-1"


def test_a_future_has_the_timeout_of_its_call() -> None:
    met = threading.Event()

    def program(group: SoftnicGroup) -> str:
        if group.rank() == 1:
            met.wait(60)
            return ""
        group.set_timeout(timedelta(seconds=0.05))
        future = group.allreduce([torch.ones(3)]).get_future()
        with pytest.raises(RuntimeError) as caught:
            future.wait()
        met.set()
        return str(caught.value)

    assert "all_reduce took longer than the timeout of 0.05 s" in outcomes(2, program)[0]
