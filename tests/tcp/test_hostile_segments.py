"""What no honest peer sends gets the same answers, counters and limits from the fast path in C as from Python alone.

Also which segments stay in C: each condition of `sn_flow_receives` has a segment that fails it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from random import Random

import pytest

from softnic.packet.segment import Segment
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.tcp.flow_state import differences, state_of
from tests.tcp.script import ACK, FIN, MSS, PSH, RST, SYN, Script

STAMP = 5000
"""The timestamp of the peer's handshake."""
WINDOW = 4000
"""Bytes of the host's receive buffer."""
WRITTEN = 3 * MSS

Prepare = Callable[[Script, Connection], object]


def nothing(_script: Script, _connection: Connection) -> None:
    pass


def write(script: Script, connection: Connection) -> None:
    """Leave three frames unacknowledged."""
    connection.set_nodelay(True)
    connection.send(bytes(WRITTEN))
    script.sent()


def fill(script: Script, _connection: Connection) -> None:
    """Close the host's window, except for a byte."""
    feed(script, data=bytes(WINDOW - 1))
    script.sent()


def close_window(script: Script, connection: Connection) -> None:
    fill(script, connection)
    feed(script, seq=WINDOW, data=b"x")
    script.sent()


def leave_gap(script: Script, connection: Connection) -> None:
    write(script, connection)
    feed(script, seq=1001, data=bytes(100))
    script.sent()


def back_off(script: Script, connection: Connection) -> None:
    write(script, connection)
    script.wait(5)


def end(script: Script, connection: Connection) -> None:
    write(script, connection)
    feed(script, flags=FIN | ACK)
    script.sent()


def finish(script: Script, connection: Connection) -> None:
    write(script, connection)
    connection.shutdown_write()
    script.sent()


def abandon(script: Script, connection: Connection) -> None:
    write(script, connection)
    connection.close(script.now)
    script.sent()


def report_loss(script: Script, connection: Connection) -> None:
    write(script, connection)
    feed(script, sacks=((1 + MSS, 1 + 2 * MSS),))
    script.sent()


def wait_long(script: Script, connection: Connection) -> None:
    """Receive buffer tuning has a round to end."""
    feed(script, data=bytes(100))
    connection.recv(100)
    script.wait(1)


SITUATIONS: dict[str, Prepare] = {
    each.__name__: each
    for each in (
        *(nothing, write, fill, close_window, leave_gap, back_off, end, finish, abandon, report_loss, wait_long),
    )
}


def prepared(situation: str, fast_path: bool, *, timestamps: bool = True, scale: int | None = None) -> Script:
    """A host with a connection in this situation, and its counters."""
    script = Script(TcpConfig(fast_path=fast_path, receive_buffer=WINDOW, receive_buffer_max=WINDOW, gap_s=60.0))
    options: dict[str, object] = {"timestamps": (STAMP, 0)} if timestamps else {}
    if scale is not None:
        options["window_scale"] = scale
    connection = script.accept(sack_permitted=True, **options)  # type: ignore[arg-type]
    SITUATIONS[situation](script, connection)
    return script


def feed(
    script: Script,
    flags: int = ACK,
    seq: int = 1,
    ack: int = 1,
    data: bytes = b"",
    window: int = 65535,
    stamp: int | None = STAMP,
    sacks: tuple[tuple[int, int], ...] = (),
) -> None:
    uses = script.connection.use_timestamps
    stamps = None if stamp is None or not uses else (stamp % (1 << 32), 0)
    script.feed(flags, seq, ack, data, window=window, timestamps=stamps, sacks=sacks)


def hostile(random: Random, script: Script) -> dict[str, object]:
    """A segment that is right but for one or two of its fields, which are near a limit that the connection has now."""
    c = script.connection
    nxt, right = c.rcv.rcv_nxt, c.rcv.rcv_adv
    una, sent = c.snd.snd_una, c.snd.snd_nxt
    recent, half = c.timestamps.ts_recent, 1 << 31
    limits: dict[str, tuple[object, ...]] = {
        "flags": (ACK | PSH, 0, PSH, FIN | ACK, SYN, SYN | ACK, RST, RST | ACK, FIN, FIN | SYN),
        "seq": (nxt - 1, nxt + 1, right - 1, right, right + 1, nxt - 500, nxt + half),
        "ack": (sent, una + 1, una - 1, sent + 1, una - WRITTEN, una + half, una + MSS),
        "data": tuple(bytes(size) for size in (0, 1, 1000, WINDOW, WINDOW + 1)),
        "window": (0, 1, 500, 65534),
        "stamp": (recent + 1, recent - 1, recent - 500, recent - 1000, recent + half, None),
        "sacks": (((una + 1, una + 2),), ((sent, sent + 9),), ((una, una),)),
    }
    segment: dict[str, object] = {
        "flags": ACK,
        "seq": nxt,
        "ack": una,
        "data": bytes(random.choice((0, 10))),
        "window": 65535,
        "stamp": recent,
        "sacks": (),
    }
    for field in random.sample(sorted(limits), random.choice((1, 1, 2))):
        segment[field] = random.choice(limits[field])
    return segment


def picture(script: Script, answers: list[Segment]) -> tuple[object, ...]:
    """Answers, counters and events, which are to be the same."""
    counters = {name: value for name, value in asdict(script.host.counters).items() if "fast_path" not in name}
    described = [(s.flags, s.seq, s.ack, s.window, s.timestamps, s.sacks, bytes(s.payload), s.tos) for s in answers]
    events = [type(event).__name__ for event in script.host.events]
    script.host.events.clear()
    return described, counters, events


def numbers(script: Script) -> dict[str, str | int | None]:
    """Every number of the connection, which is to be the same."""
    return {name: value for name, value in state_of(script.connection).items() if not name.endswith("fast_path")}


TAKEN: dict[str, tuple[str, dict[str, object], bool]] = {
    "data in order": ("write", {"data": b"x"}, True),
    "data with PSH": ("write", {"flags": ACK | PSH, "data": b"x"}, True),
    "an ACK of new data": ("write", {"ack": 1 + MSS}, True),
    "an ACK of all data": ("write", {"ack": 1 + WRITTEN}, True),
    "an ACK that changes the window": ("write", {"window": 5000}, True),
    "an ACK while nothing is unacknowledged": ("nothing", {}, True),
    "a newer timestamp": ("write", {"data": b"x", "stamp": STAMP + 1}, True),
    "the last byte of the window": ("fill", {"seq": WINDOW, "data": b"x"}, True),
    "more than the window has": ("fill", {"seq": WINDOW, "data": b"xy"}, True),
    "an empty segment at a closed window": ("close_window", {"seq": WINDOW + 1}, True),
    "data at a closed window": ("close_window", {"seq": WINDOW + 1, "data": b"x"}, False),
    "a duplicate ACK": ("write", {}, True),
    "an older timestamp": ("write", {"data": b"x", "stamp": STAMP - 1}, False),
    "a much older timestamp": ("write", {"data": b"x", "stamp": STAMP - 999}, False),
    "a timestamp half the circle ahead": ("write", {"data": b"x", "stamp": STAMP + (1 << 31)}, False),
    "no timestamp": ("write", {"data": b"x", "stamp": None}, False),
    "no ACK": ("write", {"flags": PSH, "data": b"x"}, False),
    "a FIN": ("write", {"flags": ACK | FIN, "data": b"x"}, False),
    "a SYN": ("write", {"flags": ACK | SYN, "data": b"x"}, False),
    "a RST": ("write", {"flags": ACK | RST, "data": b"x"}, False),
    "SACK blocks": ("write", {"data": b"x", "sacks": ((1 + MSS, 1 + 2 * MSS),)}, True),
    "a byte again": ("write", {"seq": 0, "data": b"x"}, False),
    "a byte ahead": ("write", {"seq": 2, "data": b"x"}, True),
    "an ACK of what is not sent": ("write", {"ack": 2 + WRITTEN, "data": b"x"}, False),
    "an ACK of the past": ("write", {"ack": 0, "data": b"x"}, True),
    "an ACK of the distant past": ("write", {"ack": -70_000, "data": b"x"}, False),
    "data before a gap": ("leave_gap", {"data": b"x"}, True),
    "data after a timeout": ("back_off", {"data": b"x"}, True),
    "an ACK after a timeout": ("back_off", {"ack": 1 + WRITTEN}, True),
    "an ACK behind the peer's FIN": ("end", {"seq": 2, "ack": 1 + WRITTEN}, False),
    "an ACK behind our FIN": ("finish", {"ack": 1 + WRITTEN}, False),
    "data for nobody": ("abandon", {"data": b"x"}, False),
    "data while a loss is repaired": ("report_loss", {"data": b"x"}, True),
}
"""Situation, segment, and whether C takes it."""


@pytest.mark.parametrize("name", TAKEN)
def test_which_segments_stay_in_c(name: str) -> None:
    situation, segment, expected = TAKEN[name]
    script = prepared(situation, True)
    before = script.host.counters.fast_path_received
    feed(script, **segment)  # type: ignore[arg-type]
    assert script.host.counters.fast_path_received - before == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("has_soft_error", True), ("syn_pending", True), ("persisting", True)),
        *(("established", False), ("use_sack", False), ("fast_path", False), ("orphaned", True)),
    ],
)
def test_each_flag_of_a_connection_keeps_its_segments_from_c(field: str, value: object) -> None:
    script = prepared("write", True)
    before = script.host.counters.fast_path_received
    setattr(script.connection, field, value)
    feed(script, data=b"x")
    assert script.host.counters.fast_path_received == before


@pytest.mark.parametrize(
    ("field", "value", "taken"),
    [
        *(("nodelay", True, True), ("path_mtu_until", 100.0, False), ("path_mtu_until", 100.1, True)),
        *(("corked", True, False), ("blocked", True, False), ("syn_pending", True, False)),
        *(("persisting", True, False), ("dup_acks_pending", 1, True), ("use_sack", False, False)),
    ],
)
def test_which_output_stays_in_c(field: str, value: object, taken: bool) -> None:
    """`path_mtu_until` is a time; the script's clock says 100."""
    script = prepared("write", True)
    feed(script, ack=1 + WRITTEN)
    connection, before = script.connection, script.host.counters.fast_path_sent
    setattr(connection, field, value)
    connection.send(bytes(MSS))
    script.sent()
    assert (script.host.counters.fast_path_sent > before) is taken


def test_a_fin_that_is_known_keeps_its_segments_from_c() -> None:
    """It came before what precedes it, which was dropped since."""
    script = prepared("write", True)
    before = script.host.counters.fast_path_received
    script.connection.rcv.fin = 3000
    feed(script, data=b"x")
    assert script.host.counters.fast_path_received == before


@pytest.mark.parametrize(("consumed", "taken"), [(0, True), (WINDOW, False)])
def test_a_receive_buffer_that_is_to_grow_is_python_s(consumed: int, taken: bool) -> None:
    """Its bytes come from the budget of all connections."""
    script = Script(TcpConfig(fast_path=True, receive_buffer=WINDOW, receive_buffer_max=1 << 20))
    connection = script.accept(sack_permitted=True, timestamps=(STAMP, 0))
    feed(script, data=bytes(10))
    connection.recv(10)
    script.wait(0.2)
    tuning = connection.receive_tuning
    tuning.started, tuning.round_ends, tuning.rtt_s = script.now - 0.0005, script.now, 0.001
    tuning.position = 10 - consumed
    before = script.host.counters.fast_path_received
    feed(script, seq=11, data=b"x")
    assert (script.host.counters.fast_path_received > before) is taken


@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_python_and_c_answer_the_same(situation: str, timestamps: bool) -> None:
    taken = 0
    for seed in range(12):
        random = Random(seed)
        scale = random.choice((None, 0, 7))
        pair = [prepared(situation, fast, timestamps=timestamps, scale=scale) for fast in (False, True)]
        for step in range(12):
            segment, pause = hostile(random, pair[0]), random.choice((0.0, 0.0, 0.001, 0.3))
            read = random.choice((0, 0, 1, 500, WINDOW))
            pictures = []
            for script in pair:
                feed(script, **segment)  # type: ignore[arg-type]
                script.connection.recv(read)
                pictures.append(picture(script, script.wait(pause)))
            assert pictures[0] == pictures[1], f"seed {seed}, step {step}: {segment}"
        assert not differences(*(numbers(script) for script in pair)), f"seed {seed}"
        taken += pair[1].host.counters.fast_path_received
    assert taken or situation not in ("nothing", "write", "fill", "close_window", "wait_long")
