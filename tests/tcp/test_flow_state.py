"""The state of a flow is all of it, is the same for the same history, and shows what differs."""

from __future__ import annotations

import pytest

from softnic._fields import SendFields
from softnic.packet.segment import Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.recovery import RecoveryState
from tests.tcp.flow_state import Plain, differences, numbers_of, state_of
from tests.tcp.flows import flow
from tests.tcp.lab import TAGGED, Lab, Wire


def in_recovery(congestion: str = "cubic", size: int = 100_000) -> tuple[Connection, Connection]:
    """A connection that has lost frames of a tagged range and is sending them again."""
    lab = Lab(Wire(loss=0.05), config=TcpConfig(congestion=congestion))
    sender, receiver = lab.pair()
    sender.tag(Tag(TAGGED, "bounded:12"))
    sender.send(bytes(size))
    lab.run(limit_s=0.003)
    return sender, receiver


def sent_state(size: int = 100_000) -> dict[str, Plain]:
    return state_of(in_recovery(size=size)[0])


def test_it_has_the_numbers_of_all_parts() -> None:
    sender, _ = in_recovery()
    state = state_of(sender)
    view = flow(sender)
    assert state["snd.snd_una"] == view.snd_una > 1
    assert state["rtt.srtt"] == view.srtt.hex()
    assert state["congestion.cwnd"] == view.cwnd
    assert state["recovery.state"] == RecoveryState.RECOVERY
    assert state["snd.buffer.end"] == 100_001
    ranges = view.scoreboard.ranges
    assert state["snd.scoreboard.ranges.len"] == len(ranges) > 1
    assert state["snd.scoreboard.ranges[1].start"] == ranges[1].start
    parts = {path.split(".")[0] for path in state if "." in path}
    assert parts >= {"rcv", "rack", "pacer", "timestamps", "delayed_ack", "receive_tuning", "send_tuning", "congestion"}
    assert "bounded:12" in state.values()
    assert any(path.startswith("congestion.hystart.") for path in state)


def test_values_are_plain_and_shared_services_are_left_out() -> None:
    _, receiver = in_recovery()
    state = state_of(receiver)
    assert {type(value) for value in state.values()} <= {int, bool, str, type(None)}
    assert state["rcv._reassembly.count"] != 0
    assert not [path for path in state if path.startswith(("tcp.", "listener.")) or "budget" in path]
    assert not [path for path, value in state.items() if " at 0x" in str(value)]


@pytest.mark.parametrize("congestion", ["reno", "cubic", "bbr"])
def test_the_same_history_gives_the_same_state(congestion: str) -> None:
    for one, other in zip(in_recovery(congestion), in_recovery(congestion), strict=True):
        assert not differences(state_of(one), state_of(other))


def test_differences_are_shown_with_both_values() -> None:
    sender, _ = in_recovery()
    before = state_of(sender)
    sender.set_nodelay(True)
    flow(sender).cwnd += 1
    cwnd = flow(sender).cwnd
    found = differences(before, state_of(sender))
    assert found == [f"congestion.cwnd: {cwnd - 1} and {cwnd}", "nodelay: False and True"]
    assert differences({"a": 1}, {"b": 2}) == ["a: 1 and nothing", "b: nothing and 2"]
    assert "snd.buffer.end: 100001 and 90001" in differences(before, sent_state(90_000))


def test_fields_of_c_types_are_read_and_their_addresses_are_not() -> None:
    first, second = SendFields(), SendFields()
    assert state_of(first) == state_of(second)
    assert {"snd_una", "snd_nxt", "snd_wnd", "fin_queued"} <= state_of(first).keys()
    assert {"memory", "address"}.isdisjoint(state_of(first))
    first.snd_una = 5  # type: ignore[attr-defined]
    assert differences(state_of(first), state_of(second)) == ["snd_una: 5 and 0"]


def test_the_numbers_in_memory_are_the_same_without_pointers() -> None:
    (one, _), (other, _) = in_recovery(), in_recovery()
    assert numbers_of(one) == numbers_of(other)
    other.fast_path = not other.fast_path
    assert numbers_of(one) == numbers_of(other)
    flow(other).cwnd += 1
    assert numbers_of(one) != numbers_of(other)
