"""The scoreboard in C does what the reference in Python does."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from softnic.tcp.scoreboard import Ack, Scoreboard
from tests.tcp.marks import mark_lost, new_ack
from tests.tcp.reference_scoreboard import OUT, ReferenceAck, ReferenceRange, ReferenceScoreboard

KINDS = (
    *("send", "send", "send", "limited", "again", "ack", "sack", "sack", "lose", "head", "renege", "undo"),
    *("detect", "time out", "clear"),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 16),
        st.sampled_from((0.0, 1e-7, 0.001, 0.1)),
    ),
    max_size=80,
)
RANGE = ("start", "end", "wire_bytes", "sent_at", "state", "delivered", "delivered_at", "first_sent_at")
SUMS = (
    *("pipe", "sacked", "lost", "lost_total", "size", "highest"),
    *("delivered", "delivered_at", "first_sent_at", "app_limited_until"),
)
NEWS = ("now", "flight_size", "wire_bytes", "never_retransmitted", "reordered")


def range_state(sent: ReferenceRange) -> tuple[object, ...]:
    return *(getattr(sent, name) for name in RANGE), bool(sent.never_retransmitted), bool(sent.app_limited)


def news(ack: Ack | ReferenceAck) -> tuple[object, ...]:
    """Returns all that an acknowledgement has told; None stands for a newest range that does not exist."""
    newest = ack.newest if isinstance(ack, ReferenceAck) or ack.has_newest else None
    return *(getattr(ack, name) for name in NEWS), None if newest is None else range_state(newest)


def state(board: Scoreboard | ReferenceScoreboard) -> tuple[object, ...]:
    return (
        *(getattr(board, name) for name in SUMS),
        *(bool(board), board.sent_once, board.first_lost()),
        [range_state(sent) for sent in board.ranges],
    )


def stretch(board: Scoreboard | ReferenceScoreboard, first: int, second: int) -> tuple[int, int]:
    """Returns two positions of the scoreboard, in order and not the same."""
    ranges = board.ranges
    low, high = ranges[0].start, ranges[-1].end
    start = low + first % (high - low)
    return start, start + 1 + second % (high - start)


def acknowledge(board: Scoreboard | ReferenceScoreboard, ack: Any, kind: str, a: int, b: int) -> object:
    """Acknowledges a prefix, or reports two blocks, of which the second may lie outside."""
    if kind == "ack":
        board.acknowledge(stretch(board, a, b)[1], ack)
    else:
        start, end = stretch(board, a, b)
        board.sack(start, end, ack)
        board.sack(start + b % 50 - 25, end + a % 5000, ack)
    board.arrived(ack)
    return news(ack)


def apply(board: Scoreboard | ReferenceScoreboard, kind: str, a: int, b: int, now: float) -> object:
    """Returns what the operation has answered."""
    if kind == "limited":
        board.mark_app_limited()
    elif kind == "renege":
        board.on_sack_reneging()
    elif kind == "undo":
        board.undo_lost_marks()
    elif kind == "time out":
        board.time_out(a % 11 * 0.03, b % 5 * 0.02, now)
    elif kind == "clear" and a % 8 == 0:
        board.clear()
    elif not board:
        return None
    elif kind == "detect":
        newest = board.ranges[b % len(board.ranges)]
        return board.detect(newest.sent_at, newest.end, a % 11 * 0.03, now)
    elif kind == "again":
        board.sent_again(*stretch(board, a, b), 66 + a % 3000, now)
    elif kind in ("ack", "sack"):
        new = new_ack if isinstance(board, Scoreboard) else ReferenceAck
        return acknowledge(board, new(now, board.size), kind, a, b)
    elif kind == "lose" and board.ranges[a % len(board.ranges)].state == OUT:
        lost = board.ranges[a % len(board.ranges)]
        if isinstance(board, Scoreboard):
            mark_lost(board, lost)
        else:
            board.mark_lost(lost)
    elif kind == "head":
        board.mark_head_lost(a % 4000)
    return None


@given(st.sampled_from((0, 1 << 33, 1 << 60)), STEPS)
@example(0, [("send", 999, 0, 0.0)] * 3 + [("sack", 2000, 999, 0.1), ("sack", 1000, 999, 0.1)])
def test_any_sequence_of_operations_gives_the_results_of_the_reference(
    nxt: int, steps: list[tuple[str, int, int, float]]
) -> None:
    board, model, now = Scoreboard(), ReferenceScoreboard(), 0.0
    for kind, first, second, wait in steps:
        now += wait
        if kind == "send":
            end = nxt + 1 + first
            wire_bytes = second << 40 if second % 16 == 1 else second
            board.sent(nxt, end, wire_bytes, now)
            model.sent(nxt, end, wire_bytes, now)
            nxt = end
        else:
            assert apply(board, kind, first, second, now) == apply(model, kind, first, second, now)
        assert state(board) == state(model)


@given(st.integers(1, 300), st.integers(0, 40))
def test_ranges_are_kept_while_the_first_leave_and_others_come(waiting: int, taken: int) -> None:
    board, model, una, nxt = Scoreboard(), ReferenceScoreboard(), 0, 0
    for turn in range(200):
        while len(model.ranges) < waiting:
            board.sent(nxt, nxt + 10, nxt % 97, turn)
            model.sent(nxt, nxt + 10, nxt % 97, turn)
            nxt += 10
        una = min(nxt, una + 10 * taken + turn % 10)
        ack, expected = new_ack(turn, board.size), ReferenceAck(turn, model.size)
        board.acknowledge(una, ack)
        model.acknowledge(una, expected)
        assert news(ack) == news(expected)
    assert state(board) == state(model)
