"""A state is received bit for bit, or not at all: from sources that die at every stage, lie, send too much or stall."""

from __future__ import annotations

import random
from contextlib import ExitStack

import numpy as np
import pytest

from softnic.checkpoint import CheckpointError, Partial, ReceiptPhase, ReceiptProgress, TrainingState, receive, state_of
from softnic.checkpoint.protocol import FrameKind
from tests.checkpoint.peers import PIECE_BYTES, StandIn, a_state, an_honest, terms


def assert_equal(found: TrainingState, expected: TrainingState) -> None:
    assert found.leaves == expected.leaves
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        assert one.tobytes() == other.tobytes()


def test_each_piece_is_asked_once_of_three_sources() -> None:
    state = a_state(1)
    with ExitStack() as stack:
        sources = [stack.enter_context(StandIn(state, pause_s=0.003)) for _ in range(3)]
        receipt = receive([each.address for each in sources], 5, terms())
    assert_equal(receipt.state, state)
    asked = [piece for each in sources for piece in each.asked]
    again = sum(share.asked_again for share in receipt.shares.values())
    assert sorted(set(asked)) == list(range(len(sources[0].pieces)))
    assert len(asked) == len(set(asked)) + again
    assert all(each.asked for each in sources)
    assert receipt.progress.received == receipt.progress.total == sum(leaf.nbytes for leaf in state.leaves)
    assert receipt.progress.lost == {}


def test_a_fast_source_sends_more() -> None:
    with StandIn(a_state(1), pause_s=0.1) as slow, StandIn(a_state(1), pause_s=0.002) as fast:
        receipt = receive([slow.address, fast.address], 5, terms())
    pieces = [share.pieces for share in receipt.shares.values()]
    assert pieces[0] < pieces[1]
    assert_equal(receipt.state, a_state(1))


@pytest.mark.parametrize("kind", [FrameKind.ACCEPTED, FrameKind.DIGEST, FrameKind.MANIFEST, None])
def test_a_source_may_die_at_every_stage(kind: FrameKind | None) -> None:
    state = a_state(2)
    with StandIn(state, dies_at=kind, dies_after=2) as dying, StandIn(state, pause_s=0.002) as other:
        receipt = receive([dying.address, other.address], 5, terms())
        lost = receipt.progress.lost
    assert_equal(receipt.state, state)
    if kind in (FrameKind.ACCEPTED, FrameKind.DIGEST):
        assert [*lost.values()] == ["the connection was closed"]
    sent_by_dying = next(iter(receipt.shares.values())).pieces
    assert sent_by_dying <= 2


def test_only_missing_pieces_are_asked_after_a_failure() -> None:
    state, partial = a_state(3), Partial()
    with (
        StandIn(state, dies_after=6) as dying,
        pytest.raises(CheckpointError, match=r"no source has the state of step 5: .*: the connection was closed"),
    ):
        receive([dying.address], 5, terms(), partial=partial)
    assert len(partial.digests) == 6
    with StandIn(state) as other:
        receipt = receive([other.address], 5, terms(), partial=partial)
    assert_equal(receipt.state, state)
    assert receipt.held_pieces == 6
    assert sorted(other.asked) == list(range(6, len(other.pieces)))


def test_pieces_that_a_later_step_left_alone_are_kept_and_changed_memory_is_not() -> None:
    first, partial = a_state(4), Partial()
    with StandIn(first) as source:
        receive([source.address], 5, terms(), partial=partial)
    later = state_of({leaf.name: first.array(leaf.name).copy() for leaf in first.leaves})
    later.array("weight").reshape(-1)[0] += 1
    partial.arrays[0][3 * PIECE_BYTES] ^= 1  # of piece 3, by the owner of the memory
    with StandIn(later, step=6) as source:
        receipt = receive([source.address], 6, terms(), partial=partial)
    assert_equal(receipt.state, later)
    assert sorted(source.asked) == [0, 3]


def test_a_source_with_another_state_is_left_out_and_named() -> None:
    state = a_state(5)
    with StandIn(a_state(6)) as other, StandIn(state) as one, StandIn(state) as two:
        receipt = receive([other.address, one.address, two.address], 5, terms())
    assert_equal(receipt.state, state)
    name = f"127.0.0.1:{other.address[1]}"
    assert receipt.progress.lost == {name: "its state differs from that of most other sources, or of the first"}
    assert other.asked == []


def test_of_two_that_differ_the_first_counts() -> None:
    with StandIn(a_state(5)) as one, StandIn(a_state(6)) as two:
        assert_equal(receive([one.address, two.address], 5, terms()).state, a_state(5))
        assert_equal(receive([two.address, one.address], 5, terms()).state, a_state(6))


def flipped(piece: int, data: bytes) -> bytes:
    return an_honest(piece, bytes([data[0] ^ 1]) + data[1:])


LIES = {
    "other bytes": (flipped, "has not the digest of the manifest"),
    "too much": (lambda piece, data: an_honest(piece, data + b"x"), "in place of piece"),
    "too little": (lambda piece, data: an_honest(piece, data[:-1] or b"xy"), "in place of piece"),
    "another piece": (lambda piece, data: an_honest(piece + 1, data), "in place of piece"),
    "no frame": (lambda *_: b"\xff" * 64, "a frame of the unknown kind 255"),
    "a frame that is too long": (lambda *_: b"\x09\0\0\0\xff\xff\xff\xff", "a PIECE of 4294967295 bytes"),
    "nothing of its kind": (lambda *_: b"\x04\0\0\0\0\0\0\0", "a WAITING of 0 bytes in place of piece"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_source_that_lies_is_given_up_and_named(lie: str) -> None:
    state, (piece, text) = a_state(7), LIES[lie]
    target = [np.full(leaf.nbytes, 0xEE, np.uint8) for leaf in state.leaves]
    with StandIn(state, piece=piece) as liar:
        with pytest.raises(CheckpointError, match=text):
            receive([liar.address], 5, terms(), allocate=lambda _: target)
        assert all((array == 0xEE).all() for array in target)  # nothing unchecked was written
        with StandIn(state, pause_s=0.005) as honest:
            receipt = receive([liar.address, honest.address], 5, terms())
    assert_equal(receipt.state, state)
    assert [text in why for why in receipt.progress.lost.values()] == [True]


def test_a_manifest_with_another_digest_is_refused() -> None:
    state = a_state(8)
    with (
        StandIn(state, digest=bytes(32)) as liar,
        pytest.raises(CheckpointError, match="its manifest has not the digest that it reported"),
    ):
        receive([liar.address], 5, terms())


def test_a_source_that_stalls_holds_nobody_up() -> None:
    with StandIn(a_state(9), stalls=True) as stuck, StandIn(a_state(9)) as other:
        receipt = receive([stuck.address, other.address], 5, terms(stall_s=0.5))
    assert_equal(receipt.state, a_state(9))
    again = [share.asked_again for share in receipt.shares.values()]
    assert again == [0, 2]  # the two that the stuck one was asked for


def test_time_is_bounded_and_the_error_names_the_phase() -> None:
    with (
        StandIn(a_state(9), pause_s=0.2) as slow,
        pytest.raises(CheckpointError, match=r"step 5 timed out after 0.5 s in the phase transfer"),
    ):
        receive([slow.address], 5, terms(timeout_s=0.5))


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"epoch": "another"}, "it refuses: the receiver is of another epoch than this source"),
        ({"secret": b"another"}, "it refuses: the receiver has not this source's SOFTNIC_JOB_SECRET"),
        ({"secret": b""}, "it refuses: the receiver has not this source's SOFTNIC_JOB_SECRET"),
    ],
)
def test_strangers_get_nothing(named: dict[str, object], text: str) -> None:
    with StandIn(a_state(1), secret=b"secret") as source:
        with pytest.raises(CheckpointError, match=text):
            receive([source.address], 5, terms(**{"secret": b"secret"} | named))
        assert_equal(receive([source.address], 5, terms(secret=b"secret")).state, a_state(1))


def test_progress_has_phases_sources_and_a_line() -> None:
    seen: list[ReceiptProgress] = []
    with StandIn(a_state(1)) as source:
        receipt = receive([source.address], 5, terms(), report=seen.append)
    phases = [ReceiptPhase.CONNECT, ReceiptPhase.MANIFEST, ReceiptPhase.TRANSFER, ReceiptPhase.LOAD]
    assert [each.phase for each in seen] == phases
    line = receipt.progress.line()
    assert line.startswith("softnic: state of step 5: load, 0.1 of 0.1 MB, ")
    assert f"from 127.0.0.1:{source.address[1]} (0.1 MB)" in line


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_with_an_honest_source_ends_with_the_state(seed: int) -> None:
    rng = random.Random(seed)
    state = a_state(seed, size=rng.choice([4, 5_000, 90_000]))
    with ExitStack() as stack:
        sources = [StandIn(state, pause_s=0.001)]
        for _ in range(rng.randrange(1, 4)):
            faults: list[dict[str, object]] = [
                {"dies_at": rng.choice([FrameKind.ACCEPTED, FrameKind.DIGEST, FrameKind.MANIFEST])},
                {"dies_after": rng.randrange(12)},
                {"piece": rng.choice(list(LIES.values()))[0]},
                {"stalls": True},
                {"pause_s": rng.random() / 50},
            ]
            sources.append(StandIn(state, **rng.choice(faults)))  # type: ignore[arg-type]
        rng.shuffle(sources)
        for each in sources:
            stack.enter_context(each)
        receipt = receive([each.address for each in sources], 5, terms(stall_s=0.4))
    assert_equal(receipt.state, state)
