"""Invalid segments cause no exception, no busy loop and no unbounded growth."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softnic.packet.segment import Options, Segment, Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.script import ACK, FIN, LOCAL, MSS, PEER, RST, SYN, Script

near = st.integers(-5, 30) | st.integers(-(2**31), 2**31)
segments = st.tuples(
    st.sampled_from([ACK, ACK | FIN, SYN, SYN | ACK, RST, RST | ACK, 0, ACK | SYN | FIN | RST, 0xFF]),
    near,
    near,
    st.integers(0, 40),
    st.integers(0, 65535),
    st.none() | st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.none() | st.builds(Options, st.none() | st.integers(0, 65535), st.none() | st.integers(0, 255)),
    st.integers(1, 5),
    st.floats(0, 30),
)


def count_of_drops(script: Script) -> int:
    counters = script.host.counters
    return sum(getattr(counters, name) for name in counters.__slots__ if name.startswith("dropped_"))


@settings(max_examples=150, deadline=None)
@example("connect", [(SYN, 0, 0, 0, 0, None, None, 1, 0.0), (ACK, 0, 0, 0, 0, None, None, 1, 0.0)])
@given(st.sampled_from(["connect", "accept", "established", "closing", "listen"]), st.lists(segments, max_size=30))
def test_any_segments_in_any_state(state: str, script_of: list[tuple[int, ...]]) -> None:
    script = Script()
    if state == "listen":
        script.host.listen(0, 80, 5, script.now)
    elif state == "closing":
        connection = script.established()
        connection.send(bytes(3000))
        connection.close(script.now)
    else:
        connection = getattr(script, state)()
        connection.tag(Tag(0x28))
        connection.send(bytes(3001))
    for flags, number, ack, length, window, stamps, options, frames, pause in script_of:
        drops = count_of_drops(script)
        script.receive(
            flags,
            number,
            ack,
            bytes(length),
            window=window,
            timestamps=stamps,  # type: ignore[arg-type]
            options=options,  # type: ignore[arg-type]
            frames=frames,
        )
        assert count_of_drops(script) <= drops + 1
        script.wait(pause)
    for connection in script.host.tcp.connections:
        connection.close(script.now)
    script.wait(1000)
    assert script.host.tcp.connections == []
    assert script.host.next_time() is None


@pytest.mark.parametrize("seed", range(3))
def test_a_flood_of_fragments_stays_bounded(seed: int) -> None:
    rng = Random(seed)
    script = Script(TcpConfig(receive_buffer=100_000))
    connection = script.established()
    for _ in range(20_000):
        start = rng.randrange(2, 90_000)
        script.feed(ACK, start, 1, bytes(rng.randrange(1, 50)))
    assert len(flow(connection).out_of_order) <= 4096
    assert sum(len(payload) for _, payload in flow(connection).out_of_order) <= 100_000
    assert len(script.sent()) <= 64


def test_a_flood_of_syns_stays_bounded() -> None:
    script = Script()
    listener = script.host.listen(0, 80, 5, script.now)
    for number in range(5000):
        segment = Segment(PEER, LOCAL, 1 + number, 80, number, 0, SYN, 1000, options=Options(mss=MSS))
        script.host.receive_segment(segment, script.now)
        script.sent()
    assert len(listener.half_open) == 128
    assert script.host.counters.cookies_sent == 5000 - 128
    script.wait(100)
    assert not listener.half_open


def test_the_rate_of_acks_between_inconsistent_ends_is_bounded() -> None:
    """Two ends with inconsistent state exchange ACKs at a bounded rate only."""
    one, two = Script(), Script()
    first, second = one.established(), two.established()
    assert first.state is second.state is State.ESTABLISHED
    answers = 0
    for _ in range(1000):
        answers += len(one.receive(ACK, 5_000_000, 1)) + len(two.receive(ACK, 5_000_000, 1))
        one.now += 0.001
        two.now += 0.001
    assert answers <= 2 * 1.0 / 0.05 + 2
