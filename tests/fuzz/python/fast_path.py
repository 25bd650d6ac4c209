"""A hostile peer's segments and an application's calls, with the fast path on and off.

Both hosts send the same segments and have the same numbers after each operation, and end in the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from softnic.packet.segment import Segment, Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.state import State
from tests.fuzz.python._input import Input
from tests.tcp.flow_state import differences, numbers_of, state_of
from tests.tcp.lab import TAGGED
from tests.tcp.script import ACK, PSH, Script

_OPERATIONS = 8
_MOST = 200
"""Operations of one input."""
_NAMES = [field.name for field in fields(Segment) if field.name != "flow"]


class _Both:
    """The same host twice, each with a connection that the peer has opened."""

    def __init__(self, given: Input) -> None:
        options = given.number(1)
        self.stamped = bool(options & 1)
        timestamps = (1000, 0) if self.stamped else None
        congestion = ("cubic", "reno", "bbr", "cubic")[options >> 1 & 3]
        self.scripts = [
            Script(TcpConfig(congestion=congestion, fast_path=on, receive_buffer=1 << 16)) for on in (False, True)
        ]
        self.ends = [
            script.accept(timestamps=timestamps, window_scale=7, sack_permitted=bool(options & 8))
            for script in self.scripts
        ]

    def receive(self, given: Input) -> None:
        kind = given.number(1)
        position = given.number(2, signed=True) if kind & 1 else 0
        ack = given.number(2, signed=True) if kind & 2 else 0
        flags = given.number(1) if kind & 4 else ACK | PSH
        window = given.number(2) if kind & 8 else 512
        size = given.number(1) * 16 if kind & 16 else 0
        stamp = given.number(1, signed=True) if kind & 32 else 0
        sacks = ((given.number(1) * 100, given.number(2)),) if kind & 64 else ()
        for script, end in zip(self.scripts, self.ends, strict=True):
            at = max(0, end.rcv.rcv_nxt + position)
            timestamps = None
            if self.stamped and not kind & 128:
                echo = end.timestamps.value(script.now - 0.001)
                timestamps = (end.timestamps.ts_recent + stamp) & 0xFFFFFFFF, echo
            acknowledged = (end.snd.snd_nxt if kind & 2 else end.snd.snd_una) + ack
            script.feed(
                flags,
                at,
                max(0, acknowledged),
                bytes(size),
                window=window,
                timestamps=timestamps,
                frames=size // 1000 + 1,
                sacks=sacks,
            )

    def act(self, operation: int, given: Input) -> None:
        amount = given.number(2)
        for script, end in zip(self.scripts, self.ends, strict=True):
            if operation == 1:
                end.send(bytes(amount))
            elif operation == 2:
                end.recv(amount)
            elif operation == 3:
                script.now += amount / 10_000
            elif operation == 4:
                end.set_nodelay(bool(amount & 1))
            elif operation == 5 and not (end.bytes_written % 4 or amount % 7):
                end.tag(Tag(TAGGED if amount & 1 else 0))
            elif operation == 6 and not amount % 50:
                end.shutdown_write()

    def check(self) -> None:
        one, two = ([_plain(segment) for segment in script.sent()] for script in self.scripts)
        assert one == two
        one_events, two_events = ([type(event) for event in script.host.events] for script in self.scripts)
        assert one_events == two_events
        if numbers_of(self.ends[0]) != numbers_of(self.ends[1]):
            self.check_all()

    def check_all(self) -> None:
        slow, fast = (
            {name: value for name, value in state_of(end).items() if "fast_path" not in name} for end in self.ends
        )
        assert not differences(slow, fast)


def _plain(segment: Segment) -> list[object]:
    return [bytes(value) if name == "payload" else value for name in _NAMES for value in [getattr(segment, name)]]


def feed(data: bytes) -> None:
    """Input: options (1 byte), then operations (1 byte each) with their arguments."""
    given = Input(data)
    both = _Both(given)
    for _ in range(_MOST):
        if not given or both.ends[0].state is State.CLOSED:
            break
        operation = given.number(1) % _OPERATIONS
        if operation in (0, 7):
            both.receive(given)
        else:
            both.act(operation, given)
        both.check()
    both.check_all()


def seeds() -> Iterator[bytes]:
    write, read, wait = b"\x01\x00\x20", b"\x02\xff\xff", b"\x03\x05\x00"
    acknowledge, data, both = b"\x00\x02\x00\x00", b"\x00\x10\x40", b"\x00\x12\x00\x00\x40"
    for options in (8, 9, 11, 13):
        start = bytes([options])
        yield start + (write + wait + acknowledge) * 20
        yield start + (data + read + wait) * 20
        yield start + (write + both + wait + read) * 15
        yield start + (write + data + b"\x00\x40\x05\x10\x27" + wait + acknowledge) * 10
