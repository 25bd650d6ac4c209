"""A rank: reads the programs to run from standard input, one a line, and says of each what it holds in the end."""

from __future__ import annotations

import json
import sys
import traceback
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

import softnic
from softnic import MPI
from softnic.collectives.elements import raw
from softnic.collectives.schedule import offsets, partition
from tests.mpi.programs.check import Array, Mismatch, check
from tests.mpi.programs.contents import contribution
from tests.mpi.programs.program import Call, Program, make


@dataclass
class Made:
    """A call that was made: its buffers, and what is to become of them."""

    call: Call
    source: Array | None
    """The send buffer; None in place."""
    result: Array | None
    request: MPI.Request | None = None


class Rank:
    """One program on this rank."""

    def __init__(self, comm: MPI.Comm, program: Program) -> None:
        self._comm = comm
        self._program = program
        self._pending: list[Made] = []
        self.digests: list[int] = []
        """Of results that all ranks must hold alike, by call."""

    def run(self) -> list[int]:
        calls = self._program.calls
        digests: dict[int, int] = {}
        for call in calls:
            made = self._make(call)
            if made.request is not None:
                self._pending.append(made)
            else:
                digests[call.index] = self._finish(made)
            for waiting in [each for each in self._pending if each.call.wait_after <= call.index]:
                self._wait(waiting)
                self._pending.remove(waiting)
                digests[waiting.call.index] = self._finish(waiting)
        MPI.Request.Waitall([each.request for each in self._pending if each.request is not None])
        for waiting in self._pending:
            digests[waiting.call.index] = self._finish(waiting)
        return [digests[index] for index in range(len(calls))]

    def _wait(self, made: Made) -> None:
        assert made.request is not None
        if made.call.polls:
            while not made.request.Test():
                pass
        else:
            made.request.Wait()

    def _input(self, call: Call, rank: int) -> Array:
        return contribution(self._program.seed, call, rank)

    def _make(self, call: Call) -> Made:
        """Makes the call, with buffers of its own."""
        rank, size = self._comm.rank, self._comm.size
        mine = self._input(call, rank)
        made = Made(call, None, None)
        arguments: list[Any] = []
        if call.collective == "bcast":
            made.result = self._buffer(call, mine)
            arguments = [made.result]
        elif call.collective == "allgather":
            made.result = self._buffer(call, np.zeros(call.count * size, mine.dtype))
            if call.in_place:
                made.result[call.count * rank : call.count * (rank + 1)] = mine
            else:
                made.source = self._buffer(call, mine)
            arguments = [self._send(made), made.result]
        else:
            self._reduction(made, mine)
            arguments = [self._send(made), made.result]
        keywords: dict[str, Any] = {}
        if call.collective in ("reduce", "bcast"):
            keywords["root"] = call.root
        if call.reduces:
            keywords["op"] = getattr(MPI, call.op)
        if call.collective == "reduce_scatter":
            keywords["recvcounts"] = call.counts
        if call.compressed:
            keywords["codec"] = call.codec
            if call.reduces:
                keywords["algorithm"] = call.algorithm
        made.request = getattr(self._comm, call.name)(*arguments, **keywords)
        return made

    def _reduction(self, made: Made, mine: Array) -> None:
        """The buffers of one."""
        call = made.call
        if call.collective == "reduce" and self._comm.rank != call.root:
            made.source = self._buffer(call, mine)
        elif call.in_place:
            made.result = self._buffer(call, mine)
        else:
            made.source = self._buffer(call, mine)
            length = self._own(call).stop - self._own(call).start if "scatter" in call.collective else call.count
            made.result = self._buffer(call, np.zeros(length, mine.dtype))

    def _buffer(self, call: Call, contents: Array) -> Array:
        buffer = softnic.empty(contents.size, contents.dtype) if call.registered else np.empty_like(contents)
        buffer[:] = contents
        return buffer

    def _send(self, made: Made) -> Any:
        return MPI.IN_PLACE if made.source is None else made.source

    def _own(self, call: Call) -> slice:
        """Of a reduce_scatter's result, this rank's block."""
        size = self._comm.size
        blocks = partition(call.count, size) if call.counts is None else offsets(call.counts)
        return blocks[self._comm.rank]

    def _finish(self, made: Made) -> int:
        """Checks what came of a call. Returns a digest of what all ranks must have alike, 0 where each has its own."""
        call, seed, size, rank = made.call, self._program.seed, self._comm.size, self._comm.rank
        try:
            if made.source is not None and made.source.tobytes() != self._input(call, rank).tobytes():
                raise Mismatch("the send buffer was written to")
            if made.result is None:
                return 0
            if "scatter" in call.collective:
                own = self._own(call)
                check(seed, call, size, made.result[: own.stop - own.start], own)
                return 0
            if call.collective == "reduce" or rank == call.index % size:  # the others have the same bits, or else
                check(seed, call, size, made.result, slice(0, made.result.size))
        except Mismatch as error:
            raise Mismatch(f"{call.name} on rank {rank}: {error}\n  {call}") from None
        return 0 if call.collective == "reduce" else zlib.crc32(raw(made.result))


def main() -> None:
    comm = MPI.COMM_WORLD
    comm.Init()
    for line in sys.stdin:
        options = json.loads(line)
        try:
            told: dict[str, Any] = {"digests": Rank(comm, make(**options)).run()}
        except Exception as error:
            where = "" if isinstance(error, (Mismatch, MPI.Exception)) else traceback.format_exc()
            told = {"error": f"{type(error).__name__}: {error}\n{where}".strip()}
        print(json.dumps(told), flush=True)
        if "error" in told:
            break
    comm.Free()


if __name__ == "__main__":
    main()
