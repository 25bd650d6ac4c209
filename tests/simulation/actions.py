"""What the two endpoints of a TCP connection do, and the bytes that each has to receive.

An endpoint's actions happen one after the other. It reads at the same time, as its settings say.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from softnic import codecs
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.node import TOS

WORD_CODECS = (None, None, "bounded:4", "bounded:10", "inceptionn:10", "truncate:16", "raw", "auto:bounded:8")
"""Codecs whose result for a float does not depend on where a segment was cut. None: the codec of the NIC's table."""
BLOCK_CODECS = ("bfp:7", "bfp:3")
"""Codecs whose result depends on it, so their writers fill whole coding blocks (`Connection.set_blocks`)."""
WRITES = (1, 3, 64, 700, 1448, 5000, 40_000)
"""Mean sizes of writes."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write bytes under a tag."""

    tag: Tag
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for a time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AwaitBytes:
    """Wait until this number of bytes has been received in all."""

    count: int


@dataclass(frozen=True, slots=True)
class ShutdownWrite:
    """Shut down the sending direction; keep reading to the end."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, whatever may still arrive."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Abort the connection."""


Action = Write | Sleep | AwaitBytes | ShutdownWrite | Close | Reset


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """One endpoint of a connection: its actions and its settings."""

    actions: tuple[Action, ...]
    read_bytes: int
    """The most that one read takes."""
    read_pause_s: float
    """Between two reads; 0: reads at once what arrives."""
    early_write: bool
    """Writes before the connection is established."""
    tag_ahead: bool
    """Sets the next range's tag at an offset that has not been written yet."""
    zero_copy: bool
    """Sends from its own memory, which stays unchanged until it is acknowledged."""
    nodelay: bool
    whole_blocks: bool
    user_timeout_s: float
    keepalive: tuple[float, float, int] | None

    @property
    def ends_early(self) -> bool:
        """Whether it may end the connection before all bytes are exchanged."""
        return any(isinstance(action, Close | Reset) for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A connection that node `client` opens to node `server` at a time."""

    number: int
    at: float
    client: int
    server: int
    port: int
    """Of the client; 0: any. A fixed port makes connections with the same addresses follow each other closely."""
    endpoints: tuple[EndpointSpec, EndpointSpec]
    """The client's and the server's."""


def received_bytes(actions: tuple[Action, ...], table_codec: str | None) -> bytes:
    """Return what the peer has to receive of an endpoint's writes. `table_codec` None: its ranges are not encoded."""
    writes = [action for action in actions if isinstance(action, Write)]
    parts = []
    for tag, group in groupby(writes, key=lambda write: write.tag):
        data = b"".join(write.data for write in group)
        parts.append(data if tag.tos != TOS or table_codec is None else roundtrip(tag.codec or table_codec, data))
    return b"".join(parts)


def roundtrip(codec: str, data: bytes) -> bytes:
    """Return a tagged range as it arrives: decoded floats and an unaltered tail."""
    words = np.frombuffer(data, np.float32, len(data) // 4)
    return codecs.get(codec).roundtrip(words).tobytes() + data[len(words) * 4 :]


class ConversationGenerator:
    """Draws conversations from a random number generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._arrays = np.random.default_rng(rng.getrandbits(64))

    def draw(self, number: int, at: float, client: int, server: int, *, may_end_early: bool) -> Conversation:
        """Draw a conversation. `may_end_early`: an endpoint may close before the peer has sent all, or be lost."""
        kind = self._rng.choice((self._streams, self._streams, self._requests))
        first, second, blocks = kind()
        if may_end_early and self._rng.random() < 0.3:
            first = self._cut_short(first)
        if may_end_early and self._rng.random() < 0.2:
            second = self._cut_short(second)
        endpoints = (
            self._endpoint(first, second, blocks, may_end_early),
            self._endpoint(second, first, blocks, may_end_early),
        )
        port = self._rng.choice((0, 0, 0, 40_001, 40_002))
        return Conversation(number=number, at=at, client=client, server=server, port=port, endpoints=endpoints)

    def _endpoint(self, own: list[Action], peers: list[Action], blocks: bool, may_end_early: bool) -> EndpointSpec:
        """An endpoint with nothing to send notices a lost peer only by keepalive: it has it if its peer may be lost."""
        rng = self._rng
        keepalives = ((1.0, 1.0, 5), (10.0, 2.0, 3), (60.0, 10.0, 3))
        slow = rng.random() < 0.25
        size = max(1, sum(len(action.data) for action in peers if isinstance(action, Write)))
        return EndpointSpec(
            actions=tuple(own),
            read_bytes=max(size // 8, rng.choice((1, 100, 5000)), 200) if slow else 1 << 30,
            read_pause_s=rng.choice((0.01, 0.3, 3.0)) if slow else 0.0,
            early_write=rng.random() < 0.2,
            tag_ahead=rng.random() < 0.3,
            zero_copy=rng.random() < 0.2,
            nodelay=rng.random() < 0.5,
            whole_blocks=blocks,
            user_timeout_s=rng.choice((60.0, 60.0, 25.0)),
            keepalive=None if not may_end_early and rng.random() < 0.5 else rng.choice(keepalives),
        )

    def _streams(self) -> tuple[list[Action], list[Action], bool]:
        """Both endpoints write at their own pace."""
        blocks = self._rng.random() < 0.35
        both: list[list[Action]] = []
        for _ in range(2):
            actions: list[Action] = []
            for _ in range(self._rng.randrange(6)):
                actions += self._range(blocks)
                if self._rng.random() < 0.2:
                    actions.append(Sleep(self._rng.choice((0.001, 0.05, 0.5, 3.0)) * self._rng.random()))
            both.append([*actions, ShutdownWrite()])
        return both[0], both[1], blocks

    def _requests(self) -> tuple[list[Action], list[Action], bool]:
        """Requests, each answered before the next one. Whoever waits for an answer has written whole words and no part
        of a coding block: an incomplete one would not be sent."""
        client: list[Action] = []
        server: list[Action] = []
        requested = answered = 0
        for _ in range(self._rng.randrange(1, 12)):
            request, answer = self._message(), self._message()
            client.append(request)
            requested += len(request.data)
            server += [AwaitBytes(requested), answer]
            answered += len(answer.data)
            client.append(AwaitBytes(answered))
        return [*client, ShutdownWrite()], [*server, ShutdownWrite()], False

    def _message(self) -> Write:
        tagged = self._rng.random() < 0.4
        size = max(1, self._size())
        if not tagged:
            return Write(PLAIN, self._rng.randbytes(size))
        return Write(Tag(TOS, self._rng.choice(WORD_CODECS)), self._floats(-(-size // 4)))

    def _range(self, blocks: bool) -> list[Action]:
        """One tagged or untagged range, in one write or several."""
        rng = self._rng
        tag = PLAIN
        size = self._size()
        if rng.random() < 0.5:
            tag = Tag(TOS, rng.choice(BLOCK_CODECS if blocks and rng.random() < 0.5 else WORD_CODECS))
            data = self._floats(size // 4) + rng.randbytes(rng.choice((0, 0, 1, 2, 3)))
        else:
            data = rng.randbytes(size)
        actions: list[Action] = []
        start = 0
        while start < len(data):
            count = 1 + int(rng.choice(WRITES) * rng.random() * 2)
            count = max(count, len(data) // 10)
            actions.append(Write(tag, data[start : start + count]))
            start += count
            if rng.random() < 0.2:
                actions.append(Sleep(0.05 * rng.random()))
        return actions

    def _size(self) -> int:
        """Mostly small."""
        return int(10 ** self._rng.uniform(0, 4.2 if self._rng.random() < 0.95 else 5.3))

    def _floats(self, count: int) -> bytes:
        if self._rng.random() < 0.1:
            return self._arrays.bytes(4 * count)  # any bits: NaN, infinities, subnormal numbers
        sigma = np.float32(10 ** self._rng.uniform(-3, 1))
        return (self._arrays.standard_normal(count, np.float32) * sigma).tobytes()

    def _cut_short(self, actions: list[Action]) -> list[Action]:
        """End between two ranges: what arrives of a part of a range depends on how much of it was sent."""
        ends = [0] + [
            index
            for index in range(1, len(actions))
            if not (isinstance(actions[index - 1], Write) and self._continues(actions, index))
        ]
        end = self._rng.choice(ends)
        return [*actions[:end], self._rng.choice((Close(), Reset()))]

    @staticmethod
    def _continues(actions: list[Action], index: int) -> bool:
        before = actions[index - 1]
        later = next((action for action in actions[index:] if isinstance(action, Write)), None)
        return isinstance(before, Write) and later is not None and later.tag == before.tag
