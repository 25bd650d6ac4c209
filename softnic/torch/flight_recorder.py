"""The last calls of this process's groups, in the format of torch's flight recorder, whose analyzer reads them.

torch fills its own recorder from C++ alone, for NCCL and Gloo. This one has its format (version 2.10,
torch/csrc/distributed/c10d/FlightRecorder.hpp), its variables and its places, so that what is known of NCCL applies:

- TORCH_FR_BUFFER_SIZE, or TORCH_NCCL_TRACE_BUFFER_SIZE: number of calls kept (2000); 0: none.
- TORCH_FR_DUMP_TEMP_FILE, or TORCH_NCCL_DEBUG_INFO_TEMP_FILE: prefix of the file that is written when a group ends by
  an error; the process's rank follows. Default: comm_lib_trace_rank_ in torch's cache directory.

`torchfrtrace` accepts only the names of backends that it knows: calls are named as Gloo's, `gloo:all_reduce`. A record
holds sizes, types and lines of code, no tensors.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import pickle
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

import torch
import torch.distributed as dist

VERSION = "2.10"
_SIZE = 2000
_IDENTIFIED = 2
"""Calls of a group after which its name does not change any more."""
_FRAMES = 12
"""Most lines of code of a call."""
_NAMES = {
    "all_reduce": ("all_reduce", "allreduce_coalesced"),
    "all_gather_coalesced": ("ALLGATHER_coalesced", "ALLGATHER_coalesced"),
    "reduce_scatter_tensor": ("_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    "all_gather_into_tensor": ("_all_gather_base", "all_gather_into_tensor_coalesced"),
}
"""The analyzer's names of calls of one tensor and of several, where they differ from this package's."""
Shape = tuple[int, ...]
Typed = tuple[Shape, torch.dtype]

log = logging.getLogger("softnic")


class NamedGroup(Protocol):
    """What identifies a process group."""

    def getGroupName(self) -> str: ...
    def getGroupDesc(self) -> str: ...
    def getSize(self) -> int: ...


class CallRecord:
    """One call. Times are in nanoseconds since 1970; 0: not yet."""

    __slots__ = (
        "call", "completed_ns", "created_ns", "frames", "group", "inputs", "number", "outputs", "p2p", "peer",
        "sequence", "started_ns", "thread", "timeout_s",
    )  # fmt: skip

    group: GroupCalls
    """This and what follows is set for calls that are kept only."""
    number: int
    """Of this process's calls."""
    inputs: list[Typed]
    outputs: list[Typed]
    peer: int | None
    """The other rank of a message, below 0: any; None: a collective."""
    sequence: int
    """Collectives of the group so far, this one included."""
    p2p: int
    """Messages of the group so far."""
    frames: list[tuple[CodeType, int]]
    thread: int

    def __init__(self, call: str, timeout_s: float) -> None:
        self.call = call
        self.timeout_s = timeout_s
        self.created_ns = self.started_ns = self.completed_ns = 0

    def start(self) -> None:
        self.started_ns = time.time_ns()

    def complete(self) -> None:
        self.completed_ns = time.time_ns()

    @property
    def state(self) -> str:
        if self.completed_ns:
            return "completed"
        return "started" if self.started_ns else "scheduled"


class GroupCalls:
    """The numbering of one process group's calls."""

    def __init__(self, recorder: FlightRecorder, group: NamedGroup, rank: int) -> None:
        self._recorder = recorder
        self._group = weakref.ref(group)
        self.rank = rank
        self.number = next(recorder.group_numbers)
        self.sequence = 0
        self.p2p = 0
        self.label = ("", "")
        """Name and description of the group, as of its last call."""
        self.ranks: list[int] = []
        """The ranks in the job, by rank in the group."""

    def record(
        self,
        call: str,
        outputs: Sequence[Any],
        timeout_s: float,
        *,
        inputs: Sequence[Any] | None = None,
        peer: int | None = None,
    ) -> CallRecord:
        """Return the record of a new call.

        `inputs` are None if they are the outputs. `peer` is the other rank of a message, below 0: any.
        """
        record = CallRecord(call, timeout_s)
        if self._recorder.is_on:
            record.created_ns = time.time_ns()
            if self.sequence + self.p2p < _IDENTIFIED:
                self._identify()
            if peer is None:
                self.sequence += 1
            else:
                self.p2p += 1
            record.group, record.sequence, record.p2p, record.peer = self, self.sequence, self.p2p, peer
            record.outputs = _typed(outputs)
            record.inputs = record.outputs if inputs is None else _typed(inputs)
            record.frames = _frames(sys._getframe(2))
            record.thread = threading.get_ident()
            self._recorder.add(record)
        return record

    def name(self, record: CallRecord) -> str:
        """Return the analyzer's name of one of its calls."""
        if record.call == "reduce_scatter" and len(_sizes(record)[0]) > 1:
            return "reduce_scatter_v"
        if record.peer is None:
            return _NAMES.get(record.call, (record.call, record.call))[len(record.inputs) > 1]
        return f"{record.call} {self.rank}{'->' if record.call == 'send' else '<-'}{record.peer}"

    def _identify(self) -> None:
        """Note the name and the ranks of the group, which torch sets after it was created and forgets at its end."""
        if (group := self._group()) is None:
            return
        self.label = (group.getGroupName(), group.getGroupDesc())
        try:
            self.ranks = list(dist.get_process_group_ranks(group))  # type: ignore[arg-type]
        except (KeyError, ValueError, RuntimeError):  # not torch's
            self.ranks = list(range(group.getSize()))


class FlightRecorder:
    """The last calls of all groups of a process."""

    def __init__(self, size: int) -> None:
        self._calls: deque[CallRecord] = deque(maxlen=size)
        self._numbers = itertools.count()
        self.group_numbers = itertools.count()
        self._writing = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self._calls.maxlen != 0

    def add(self, record: CallRecord) -> None:
        """Add a call, in place of the oldest one where all are kept."""
        record.number = next(self._numbers)
        self._calls.append(record)

    def dump(self) -> dict[str, Any]:
        """Return everything as torch's recorder does."""
        calls = sorted(list(self._calls), key=lambda each: each.number)
        groups = {record.group.number: record.group for record in calls}
        lines: dict[tuple[CodeType, int], dict[str, Any]] = {}
        return {
            "version": VERSION,
            "pg_config": {
                group.label[0]: {"name": group.label[0], "desc": group.label[1], "ranks": str(group.ranks)}
                for group in groups.values()
            },
            "pg_status": {str(number): _status(calls, group) for number, group in groups.items()},
            "comm_lib_version": "softnic",
            "entries": [_entry(record, lines) for record in calls],
        }

    def write(self) -> str:
        """Write everything to this process's file; return its path, empty if there is none."""
        if not self._calls:
            return ""
        path = Path(f"{_prefix(os.environ)}{_rank(os.environ)}")
        try:
            with self._writing:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(pickle.dumps(self.dump()))
        except Exception as error:  # the error that ends the group counts
            log.warning("the last calls cannot be written to %s: %s", path, error)
            return ""
        return str(path)


def _status(calls: Sequence[CallRecord], group: GroupCalls) -> dict[str, int]:
    """Return the numbers of a group's last collectives that are enqueued, started and completed; -1: none."""
    those = [record for record in calls if record.group is group and record.peer is None]
    started = [record.sequence for record in those if record.started_ns]
    completed = [record.sequence for record in those if record.completed_ns]
    return {
        "last_enqueued_collective": max((record.sequence for record in those), default=-1),
        "last_started_collective": max(started, default=-1),
        "last_completed_collective": max(completed, default=-1),
    }


def _entry(record: CallRecord, lines: dict[tuple[CodeType, int], dict[str, Any]]) -> dict[str, Any]:
    """Return a call as torch's recorder does; `lines` are the lines of code so far, which calls share."""
    group, (inputs, outputs) = record.group, _sizes(record)
    entry = {
        "frames": [lines.get(place) or lines.setdefault(place, _line(*place)) for place in record.frames],
        "record_id": record.number,
        "pg_id": group.number,
        "process_group": group.label,
        "thread_id": str(record.thread),
        "thread_name": "",
        "collective_seq_id": record.sequence,
        "p2p_seq_id": record.p2p,
        "op_id": record.sequence + record.p2p,
        "profiling_name": f"gloo:{group.name(record)}",
        "time_created_ns": record.created_ns,
        "input_sizes": [list(shape) for shape in inputs],
        "input_dtypes": [str(dtype).removeprefix("torch.") for _, dtype in record.inputs],
        "output_sizes": [list(shape) for shape in outputs],
        "output_dtypes": [str(dtype).removeprefix("torch.") for _, dtype in record.outputs],
        "state": record.state,
        "time_discovered_started_ns": record.started_ns or None,
        "time_discovered_completed_ns": record.completed_ns or None,
        "retired": bool(record.completed_ns),
        "timeout_ms": round(min(record.timeout_s, 1e9) * 1000),
        "is_p2p": record.peer is not None,
    }
    if record.completed_ns and record.started_ns:
        entry["duration_ms"] = (record.completed_ns - record.started_ns) / 1e6
    return entry


def _line(code: CodeType, instruction: int) -> dict[str, Any]:
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    line = next(lines, None) or code.co_firstlineno
    return {"name": code.co_qualname, "filename": code.co_filename, "line": line}


def _sizes(record: CallRecord) -> tuple[list[Shape], list[Shape]]:
    """Return the sizes of inputs and outputs as NCCL records them.

    The lists of all_gather and reduce_scatter are one tensor with a row for each rank there.
    """
    inputs, outputs = [shape for shape, _ in record.inputs], [shape for shape, _ in record.outputs]
    if record.call == "all_gather":
        return inputs, _as_one(outputs)
    if record.call == "reduce_scatter":
        return _as_one(inputs), outputs
    return (inputs, outputs) if record.call != "barrier" else ([()], [()])


def _as_one(shapes: list[Shape]) -> list[Shape]:
    """Return the shape of tensors of the same number of elements as rows of one; as they are where these differ."""
    if len({math.prod(shape) for shape in shapes}) != 1:
        return shapes
    return [(len(shapes), *shapes[0])]


def _typed(tensors: Sequence[Any]) -> list[Typed]:
    """Return shapes and types of tensors, in nested lists or not."""
    found: list[Typed] = []
    for each in tensors:
        if isinstance(each, torch.Tensor):
            found.append((each.shape, each.dtype))
        else:
            found += _typed(each)
    return found


def _frames(frame: Any) -> list[tuple[CodeType, int]]:
    """Return the code and the instructions that made a call, innermost first."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _FRAMES:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def _first_of(names: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    return (environment[name] for name in names if name in environment)


def _size_of(environment: Mapping[str, str]) -> int:
    """Return the number of calls to keep."""
    text = next(_first_of(("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), environment), "")
    return int(text) if text.isdecimal() else _SIZE


def _prefix(environment: Mapping[str, str]) -> str:
    """Return the path of the file without the rank."""
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    default = f"{cache}/torch/comm_lib_trace_rank_"
    return next(_first_of(("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), environment), default)


def _rank(environment: Mapping[str, str]) -> str:
    """Return this process's rank in the job."""
    if dist.is_initialized():
        return str(dist.get_rank())
    return environment.get("RANK", "0")


recorder = FlightRecorder(_size_of(os.environ))
