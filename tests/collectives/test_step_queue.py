"""Received bytes and the steps that wait for them, however the bytes are cut: the C of the engine without a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi, lib
from tests.tcp.flows import FlowMemory

Array = npt.NDArray[Any]
TYPES = {"float32": lib.SN_FLOAT32, "float64": lib.SN_FLOAT64, "int16": lib.SN_INT16}


@dataclass
class Queue:
    """A queue with one operation, whose steps all receive; `fields` are those of the steps."""

    c: Any
    engine: Any
    op: Any
    steps: Any
    memory: list[Array]

    @property
    def is_done(self) -> bool:
        return bool(self.engine.first_done)

    def take(self, data: bytes) -> int:
        return int(lib.sn_step_queue_take(self.c, ffi.from_buffer("uint8_t[]", data), len(data)))

    def take_all(self, stream: bytes, cuts: list[int]) -> None:
        """Give the queue a stream in chunks of these sizes, repeated; what it leaves comes again with the next."""
        kept, at, number = b"", 0, 0
        while at < len(stream) or kept:
            size = cuts[number % len(cuts)]
            kept, at, number = kept + stream[at : at + size], at + size, number + 1
            while kept and (used := self.take(kept)):
                kept = kept[used:]
            lib.sn_step_queue_settle(self.c)
            if at >= len(stream):
                break
        assert not kept


def queue(*fields: dict[str, Any], memory: list[Array]) -> Queue:
    engine, op = ffi.new("sn_engine *"), ffi.new("sn_engine_op *", {"number": 1, "pending": len(fields)})
    steps, c = ffi.new("sn_step[]", len(fields)), ffi.new("sn_step_queue *", {"engine": engine, "matched": 1})
    for step, each, array in zip(steps, fields, memory, strict=True):
        step.op, step.queue, step.size, step.item = op, c, array.nbytes, array.itemsize
        step.memory = ffi.from_buffer("uint8_t[]", array, require_writable=True)
        for name, value in each.items():
            setattr(step, name, value)
    made = Queue(c, engine, op, steps, memory)
    for index in range(len(fields)):
        lib.sn_step_post(ffi.addressof(steps, index))
    return made


def combining(dtype: str, base: Array) -> dict[str, Any]:
    address = ffi.from_buffer("uint8_t[]", base)
    return {"kind": lib.SN_STEP_COMBINE, "operation": lib.SN_SUM, "type": TYPES[dtype], "base": address}


@given(
    dtype=st.sampled_from(sorted(TYPES)),
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    pads=st.integers(0, 70),
)
def test_blocks_are_combined_whole_elements_at_a_time(
    dtype: str, counts: list[int], cuts: list[int], pads: int
) -> None:
    bases = [np.arange(count).astype(dtype) for count in counts]
    came = [(100 * (index + 1) + np.arange(count)).astype(dtype) for index, count in enumerate(counts)]
    memory = [np.zeros_like(base) for base in bases]
    made = queue(*({**combining(dtype, base), "pad_left": pads} for base in bases), memory=memory)
    made.take_all(b"".join(each.tobytes() + bytes(pads) for each in came) or b"", cuts)
    made.take(b"")
    assert made.is_done
    for result, base, other in zip(memory, bases, came, strict=True):
        assert result.tobytes() == (base + other).tobytes()


def test_less_than_an_element_is_left() -> None:
    base, memory = np.ones(3, np.float64), np.zeros(3, np.float64)
    made = queue(combining("float64", base), memory=[memory])
    data = np.array([1.0, 2.0, 3.0]).tobytes()
    assert [made.take(data[:size]) for size in (0, 1, 7)] == [0, 0, 0]
    assert made.take(data[:15]) == 8
    assert made.take(data[8:]) == 16
    assert memory.tolist() == [2.0, 3.0, 4.0]


def test_a_header_that_has_not_matched_keeps_the_blocks_back() -> None:
    memory = np.zeros(4, np.float32)
    made = queue({"kind": lib.SN_STEP_COPY}, memory=[memory])
    made.c.matched = 0
    assert made.take(bytes(16)) == 0
    assert lib.sn_step_queue_place(made.c, 16) == ffi.NULL
    made.c.matched = 1
    assert lib.sn_step_queue_place(made.c, 16) == made.steps[0].memory
    assert lib.sn_step_queue_place(made.c, 17) == ffi.NULL


@pytest.mark.parametrize("sent", [0, 8, 15, 16])
def test_memory_that_is_still_being_sent_is_no_place(sent: int) -> None:
    """Sends of the same memory, of which the stream has taken 16 bytes without a copy, and sent some for good."""
    flow, memory = FlowMemory(1 << 16), np.zeros(8, np.float32)
    flow.send_buffer.zerocopy.completed_bytes = 100 + sent
    other = ffi.new("sn_step_queue *", {"flow": flow.c})
    reader = ffi.new("sn_step *", {"queue": other, "first_position": 100, "zerocopied": 16, "done": 32})
    readers = ffi.new("sn_step *[]", [reader])
    made = queue({"kind": lib.SN_STEP_COPY, "readers": readers, "reader_count": 1}, memory=[memory])
    places = [size for size in range(33) if lib.sn_step_queue_place(made.c, size) != ffi.NULL]
    assert places == list(range(sent + 1 if sent < 16 else 33))
    reader.done = 20
    assert lib.sn_step_writable_end(ffi.addressof(made.steps, 0)) == 20


AHEAD, LEAST = 1 << 20, 32 << 10
"""Bytes that are rounded at a time while others are transmitted, and that are handed over at least."""


class Rounding:
    """A block of this rank's that is rounded by a codec in parts as it is sent, and the stream that takes it."""

    def __init__(self, count: int, codec: str, staged: int | None = None) -> None:
        chosen = codecs.get(codec)
        self.given = np.random.default_rng(count).standard_normal(count).astype(np.float32)
        self.rounded, self.memory = chosen.roundtrip(self.given), self.given.copy()
        memory = ffi.from_buffer("uint8_t[]", self.memory, require_writable=True)
        self.flow = FlowMemory(1 << 24)
        self._engine, self._op = ffi.new("sn_engine *"), ffi.new("sn_engine_op *", {"number": 1, "pending": 1})
        self._queue = ffi.new("sn_step_queue *", {"engine": self._engine, "matched": 1, "flow": self.flow.c})
        self.source = ffi.new("sn_step *", {"kind": lib.SN_STEP_ROUND, "size": self.memory.nbytes, "memory": memory})
        self.source.codec, self.source.parameter = chosen.number, chosen.parameter
        self.staged = ffi.new("sn_step *", {"kind": lib.SN_STEP_STAGED, "ready": staged or 0})
        self.source.before = ffi.NULL if staged is None else self.staged
        fields = {"kind": lib.SN_STEP_SEND, "size": self.memory.nbytes, "memory": memory, "block": 64}
        self.step = ffi.new("sn_step *", {**fields, "op": self._op, "queue": self._queue, "source": self.source})
        self.step.owner = id(self.memory)
        lib.sn_step_post(self.step)

    def send(self, untransmitted: int) -> tuple[int, int]:
        """Return how much is rounded and handed over after another turn; of what it had, the stream still has
        `untransmitted` bytes to transmit.
        """
        self.flow.send.snd_nxt = self.flow.send_buffer.end - untransmitted
        lib.sn_step_queue_send(self._queue)
        ready = self.source.ready // 4
        assert self.memory[:ready].tobytes() == self.rounded[:ready].tobytes()
        assert self.memory[ready:].tobytes() == self.given[ready:].tobytes()
        return self.source.ready, self.step.done


@pytest.mark.parametrize("codec", ["bounded:8", "rht:4"])
def test_a_block_is_rounded_when_the_stream_has_little_left_to_transmit(codec: str) -> None:
    block = Rounding(3 * AHEAD // 4 + 5005, codec)
    size = block.memory.nbytes
    assert block.send(0) == (AHEAD, AHEAD)
    assert block.send(AHEAD) == (AHEAD, AHEAD)
    assert block.send(AHEAD - 1) == (2 * AHEAD, 2 * AHEAD)
    assert block.send(2 * AHEAD) == (2 * AHEAD, 2 * AHEAD)
    assert block.send(0) == (3 * AHEAD, 3 * AHEAD)
    assert block.send(0) == (size, size)


def test_no_more_is_rounded_than_the_stream_takes() -> None:
    block = Rounding(2 * AHEAD // 4, "bounded:8")
    block.flow.connection.writable = False
    assert [block.send(0) for _ in range(3)] == [(AHEAD, 0)] * 3
    block.flow.connection.writable = True
    assert block.send(0) == (AHEAD, AHEAD)
    assert block.send(0) == (2 * AHEAD, 2 * AHEAD)


def test_what_is_staged_is_rounded_in_whole_blocks_of_the_codec() -> None:
    """All of it when the contribution is complete, and until then no less than is handed over."""
    block = Rounding(4 * LEAST // 4 + 5003, "rht:4", staged=LEAST - 4)
    whole = codecs.get("rht:4").block_bytes
    assert block.send(0) == (0, 0)
    block.staged.ready = LEAST
    assert block.send(0) == (LEAST, LEAST)
    block.staged.ready = 2 * LEAST - 4
    assert block.send(0) == (LEAST, LEAST)
    block.staged.ready = 3 * LEAST - 4
    assert block.send(0) == (3 * LEAST - whole, 3 * LEAST - whole)
    block.staged.ready = 4 * LEAST
    assert block.send(0) == (4 * LEAST, 4 * LEAST)
    block.staged.ready = block.memory.nbytes
    assert block.send(0) == (block.memory.nbytes, block.memory.nbytes)
