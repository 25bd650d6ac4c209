"""The steps of an operation in memory for C (native/collectives/engine.h), which executes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softnic._native import ffi, lib
from softnic.codecs import Codec
from softnic.collectives.operations import ElementReduction
from softnic.collectives.peer_queue import PeerQueue, Step
from softnic.collectives.stream import CODING_BLOCK

COPY_AT_END = 1 << 20
"""Limit of what is copied at the end of a collective, whose ranks wait, instead of waiting for acknowledgements."""


class Block:
    """Bytes [start, start + size) of an operation's memory; on the wire, `pad` zeros follow."""

    __slots__ = ("pad", "size", "start")

    def __init__(self, start: int, size: int, codec: Codec | None) -> None:
        self.start = start
        self.size = size
        # Longer blocks are counted from the start of each Block, so its end needs no alignment.
        self.pad = -size % CODING_BLOCK if codec is not None and codec.block_bytes == CODING_BLOCK else 0


class EngineOp:
    """Base of what the engine executes, in `most` steps or fewer. `pending` steps and headers are not done."""

    __slots__ = ("_last_sends", "_memory", "_steps", "c", "call", "number")

    def __init__(self, number: int, call: str, most: int, pending: int, most_copied: int = COPY_AT_END) -> None:
        self.number = number
        self.call = call
        """The user's call, for error messages."""
        self._steps = ffi.new("sn_step[]", most)
        fields = {"number": number, "pending": pending, "most_copied": most_copied, "steps": self._steps}
        self.c = ffi.new("sn_engine_op *", fields)
        self._last_sends: dict[PeerQueue, Step] = {}
        self._memory: list[Any] = []
        """What C reads and writes."""

    def keep(self, memory: Any) -> Any:
        """Keep memory for C as long as the operation. Returns where it begins.

        The result does not hold the buffer: where a garbage collection finds both, Python would release it twice.
        """
        self._memory.append(memory)
        return ffi.cast("uint8_t *", ffi.from_buffer("uint8_t[]", memory))

    def expected_headers(self, messages: Sequence[bytes]) -> Any:
        """Return an `sn_header` for each of these messages, which another rank has to send."""
        data = {message: self.keep(message) for message in messages}
        headers = ffi.new("sn_header[]", [{"op": self.c, "data": data[each], "size": len(each)} for each in messages])
        self._memory.append(headers)
        return headers

    def staged(self, block: Block) -> Step:
        """Add a block of this rank's contribution, which its process is still copying to where the NIC reads it."""
        return self._add(lib.SN_STEP_STAGED, block)

    def rounded(self, block: Block, memory: Any, codec: Codec, staged: Step | None) -> Step:
        """Add a block that this rank has from the start, rounded by the codec in parts as it is sent."""
        step = self._add(lib.SN_STEP_ROUND, block, memory)
        step.codec, step.parameter = codec.number, codec.parameter
        step.before = staged or ffi.NULL
        return step

    def send(self, queue: PeerQueue, block: Block, memory: Any, codec: str | None, source: Step | None) -> Step:
        """Add a block to be sent, as far as `source` has made it ready (None: all of it is)."""
        step = self._add(lib.SN_STEP_SEND, block, memory)
        step.tag, step.tos, step.words, step.block = queue.stream.tag_of(codec)
        step.source, step.owner = source or ffi.NULL, id(memory)
        if (before := self._last_sends.get(queue)) is not None:
            before.is_last = False
        step.is_last = True
        self._last_sends[queue] = step
        queue.post(step)
        return step

    def copy(self, queue: PeerQueue, block: Block, memory: Any, before: Step | None, readers: list[Step]) -> Step:
        """Add a block to be received, behind what `before` has made ready of it, and behind `readers`."""
        step = self._add(lib.SN_STEP_COPY, block, memory)
        self._overwrites(step, before, readers)
        queue.post(step)
        return step

    def combine(
        self, queue: PeerQueue, block: Block, memory: Any, before: Step | None, readers: list[Step], base: Any
    ) -> Step:
        """Add a block to be received that is combined with `base`. `reduce_by` says how."""
        step = self._add(lib.SN_STEP_COMBINE, block, memory)
        step.base = base + block.start
        self._overwrites(step, before, readers)
        queue.post(step)
        return step

    def reduce_by(self, step: Step, reduction: ElementReduction, divisor: int) -> None:
        """Set how the blocks of a step are combined, and by what the combination is divided; 0: by nothing."""
        step.operation, step.type, step.item = reduction.operation, reduction.type, reduction.item
        step.divisor = divisor

    def round_by(self, step: Step, codec: Codec) -> None:
        """Have the result of a step rounded."""
        step.rounds, step.codec, step.parameter = True, codec.number, codec.parameter

    def _add(self, kind: int, block: Block, memory: Any = None) -> Step:
        step = self._steps + self.c.step_count
        self.c.step_count += 1
        step.kind, step.op, step.size = kind, self.c, block.size
        if memory is not None:
            step.memory = memory + block.start
        step.pad_left = block.pad
        return step

    def _overwrites(self, step: Step, before: Step | None, readers: list[Step]) -> None:
        step.before = before or ffi.NULL
        if readers:
            step.readers = array = ffi.new("sn_step *[]", readers)
            step.reader_count = len(readers)
            self._memory.append(array)
