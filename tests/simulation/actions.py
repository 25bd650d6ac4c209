"""What the two ends of a connection do, and what each has to receive.

A script is a row of actions, done one after the other. Reading goes on beside it, as the half's habits say.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from softnic import codecs
from tests.facades.packet import PLAIN, Tag

TOS = 0x28
WORD_CODECS = (None, None, "bounded:4", "bounded:10", "inceptionn:10", "truncate:16", "raw", "auto:bounded:8")
"""What they make of a float does not depend on where a segment was cut. None: what the NIC's table says."""
BLOCK_CODECS = ("bfp:7", "bfp:3")
"""Of these it does, so their writers fill whole blocks (`Connection.set_blocks`)."""
WRITES = (1, 3, 64, 700, 1448, 5000, 40_000)
"""About so long are writes."""


@dataclass(frozen=True, slots=True)
class Write:
    tag: Tag
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Until so many bytes in all have come."""

    count: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Writes no more; reads on to the end."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Closes, whatever may still come."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Resets."""


Action = Write | Sleep | Await | Finish | Leave | Abort


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One end: its script, its habits, its settings."""

    script: tuple[Action, ...]
    read_bytes: int
    """At a time."""
    read_pause_s: float
    """Between two reads; 0: reads whatever comes at once."""
    eager: bool
    """Writes before the connection stands."""
    ahead: bool
    """Says beforehand where the next range's tag will begin."""
    lends: bool
    """What it writes stays in its memory until that is acknowledged, as with registered memory."""
    nodelay: bool
    blocks: bool
    user_timeout_s: float
    keepalive: tuple[float, float, int] | None

    @property
    def quits(self) -> bool:
        """It may end the connection before all is said."""
        return any(isinstance(action, Leave | Abort) for action in self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A connection that `client` opens to `server` (machines, by index) some time."""

    number: int
    at: float
    client: int
    server: int
    port: int
    """The client's; 0: any. The same one again and again makes connections follow each other closely."""
    halves: tuple[Half, Half]
    """The client's and the server's."""


def arrives(script: tuple[Action, ...], table_codec: str | None) -> bytes:
    """What the other end has to receive of a script's bytes. None: its ranges are not encoded."""
    writes = [action for action in script if isinstance(action, Write)]
    parts = []
    for tag, group in groupby(writes, key=lambda write: write.tag):
        data = b"".join(write.data for write in group)
        parts.append(data if tag.tos != TOS or table_codec is None else roundtrip(tag.codec or table_codec, data))
    return b"".join(parts)


def roundtrip(codec: str, data: bytes) -> bytes:
    """A tagged range as its floats arrive; its tail stays as it was."""
    words = np.frombuffer(data, np.float32, len(data) // 4)
    return codecs.get(codec).roundtrip(words).tobytes() + data[len(words) * 4 :]


class Author:
    """Writes scripts, as its random numbers come."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._arrays = np.random.default_rng(rng.getrandbits(64))

    def conversation(self, number: int, at: float, client: int, server: int, *, quits: bool) -> Conversation:
        """`quits`: an end may leave before the other has said all, or be lost."""
        kind = self._rng.choice((self._streams, self._streams, self._answers))
        first, second, blocks = kind()
        if quits and self._rng.random() < 0.3:
            first = self._cut_short(first)
        if quits and self._rng.random() < 0.2:
            second = self._cut_short(second)
        halves = self._half(first, second, blocks, quits), self._half(second, first, blocks, quits)
        port = self._rng.choice((0, 0, 0, 40_001, 40_002))
        return Conversation(number=number, at=at, client=client, server=server, port=port, halves=halves)

    def _half(self, script: list[Action], peers: list[Action], blocks: bool, quits: bool) -> Half:
        """Who has nothing to send learns of a peer that is gone by keepalive alone: all have it whose peer may be."""
        rng = self._rng
        keepalives = ((1.0, 1.0, 5), (10.0, 2.0, 3), (60.0, 10.0, 3))
        slow = rng.random() < 0.25
        size = max(1, sum(len(action.data) for action in peers if isinstance(action, Write)))
        return Half(
            script=tuple(script),
            read_bytes=max(size // 8, rng.choice((1, 100, 5000)), 200) if slow else 1 << 30,
            read_pause_s=rng.choice((0.01, 0.3, 3.0)) if slow else 0.0,
            eager=rng.random() < 0.2,
            ahead=rng.random() < 0.3,
            lends=rng.random() < 0.2,
            nodelay=rng.random() < 0.5,
            blocks=blocks,
            user_timeout_s=rng.choice((60.0, 60.0, 25.0)),
            keepalive=None if not quits and rng.random() < 0.5 else rng.choice(keepalives),
        )

    def _streams(self) -> tuple[list[Action], list[Action], bool]:
        """Both ends write, at their own pace."""
        blocks = self._rng.random() < 0.35
        both: list[list[Action]] = []
        for _ in range(2):
            script: list[Action] = []
            for _ in range(self._rng.randrange(6)):
                script += self._range(blocks)
                if self._rng.random() < 0.2:
                    script.append(Sleep(self._rng.choice((0.001, 0.05, 0.5, 3.0)) * self._rng.random()))
            both.append([*script, Finish()])
        return both[0], both[1], blocks

    def _answers(self) -> tuple[list[Action], list[Action], bool]:
        """Requests, each answered before the next one. What waits for an answer leaves no word unfinished, and no
        block: neither would leave."""
        client: list[Action] = []
        server: list[Action] = []
        asked = answered = 0
        for _ in range(self._rng.randrange(1, 12)):
            request, answer = self._message(), self._message()
            client.append(request)
            asked += len(request.data)
            server += [Await(asked), answer]
            answered += len(answer.data)
            client.append(Await(answered))
        return [*client, Finish()], [*server, Finish()], False

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
            return self._arrays.bytes(4 * count)  # any bits: NaN, infinities, denormal numbers
        sigma = np.float32(10 ** self._rng.uniform(-3, 1))
        return (self._arrays.standard_normal(count, np.float32) * sigma).tobytes()

    def _cut_short(self, script: list[Action]) -> list[Action]:
        """Ends amid a script, but not amid a range: what arrives of a part of one depends on what was sent of it."""
        places = [0] + [
            index
            for index in range(1, len(script))
            if not (isinstance(script[index - 1], Write) and self._continues(script, index))
        ]
        end = self._rng.choice(places)
        return [*script[:end], self._rng.choice((Leave(), Abort()))]

    @staticmethod
    def _continues(script: list[Action], index: int) -> bool:
        before = script[index - 1]
        later = next((action for action in script[index:] if isinstance(action, Write)), None)
        return isinstance(before, Write) and later is not None and later.tag == before.tag
