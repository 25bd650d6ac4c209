"""The send buffer in C does what the reference in Python does."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.send_buffer import Cuts, SendBuffer
from tests.tcp.reference_send_buffer import ReferenceSendBuffer

LENT = memoryview(Random(1).randbytes(1 << 14))
TAGS = (PLAIN, Tag(0x28), Tag(0x28, "raw"))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("write", "tag", "cut", "lend", "copy", "release", "blocks", "floats", "memory", "grow")),
        st.integers(0, 400),
        st.integers(0, 1 << 16),
    ),
    max_size=60,
)


def apply(buffer: SendBuffer | ReferenceSendBuffer, kind: str, size: int, seed: int) -> str:
    """Returns the error, if there is one."""
    try:
        if kind == "write":
            data = Random(seed).randbytes(min(size, len(buffer.write_space())))
            buffer.write_space()[: len(data)] = data
            buffer.wrote(len(data))
        elif kind == "tag":
            tag = TAGS[seed % len(TAGS)]
            buffer.tag(tag, buffer.end + size % 90 - 5, tag.tos != 0, Cuts(512 if seed % 5 == 0 else 64, seed % 3 == 0))
        elif kind == "cut":
            buffer.cut_at(min(buffer.end, buffer.start + size))
        elif kind == "lend":
            count = buffer.zerocopy_len(size) if seed % 5 else size
            if count:
                buffer.send_zerocopy(LENT, seed % 1000 if seed % 3 else buffer.end % 4096, count)
        elif kind == "copy":
            buffer.zerocopy.copy_out(size if seed % 2 else None)
        elif kind == "release":
            position = min(buffer.end, buffer.start + size)
            buffer.release(position)
        elif kind == "blocks":
            buffer.set_blocks(bool(seed % 2))
        elif kind == "floats" and seed % 16 == 0:
            buffer.no_floats()
        elif kind == "memory":
            buffer.release_memory()
        elif kind == "grow":
            buffer.grow(size)
    except ValueError as error:
        return str(error)
    return ""


def zerocopy_end(buffer: SendBuffer | ReferenceSendBuffer) -> int:
    """Returns the position behind the last zero-copy run."""
    return buffer.zerocopy.zerocopy_end if isinstance(buffer, SendBuffer) else buffer.zerocopy.end


def state(buffer: SendBuffer | ReferenceSendBuffer, position: int, limit: int) -> tuple[object, ...]:
    """Returns all that a buffer says about itself and about a position."""
    runs = buffer.zerocopy
    return (
        *(buffer.start, buffer.end, buffer.capacity, buffer.free, buffer.blocks, buffer.last_tag),
        *(bool(runs), zerocopy_end(buffer), runs.outstanding, runs.completed_bytes),
        *(tuple(buffer.tag_range(position)), buffer.segment_start(position)),
        *(buffer.reach(position, limit, flush) for flush in (False, True)),
        *((tuple(found), end, closed) for found, end, closed in (buffer.extent(position, f) for f in (False, True))),
        *(buffer.zerocopy_len(limit), buffer.tag_range(position).cut_before(position, limit)),
    )


def contents(buffer: SendBuffer | ReferenceSendBuffer) -> list[bytes]:
    """Returns the bytes kept, extent by extent."""
    found, position = [], buffer.start
    while position < buffer.end:
        end = min(buffer.extent(position, True)[1], buffer.end)
        found.append(bytes(buffer.view(position, end)))
        position = end
    return found


@given(st.integers(16, 400), STEPS)
def test_any_sequence_of_operations_gives_the_results_of_the_reference(
    capacity: int, steps: list[tuple[str, int, int]]
) -> None:
    buffer, model = SendBuffer(capacity), ReferenceSendBuffer(capacity)
    for kind, size, seed in steps:
        assert apply(buffer, kind, size, seed) == apply(model, kind, size, seed)
        position = buffer.start + seed % (buffer.end - buffer.start + 1)
        limit = position + size
        assert state(buffer, position, limit) == state(model, position, limit)
        assert contents(buffer) == contents(model)
    buffer.clear()
    model.clear()
    assert state(buffer, buffer.end, buffer.end) == state(model, model.end, model.end)
