"""Runs a schedule over arrays: turns its steps into messages that feed one another (combining.py).

With a codec, floats travel on the TAGGED connection and arrive as decode(encode(x)). Whoever owns a block, the last
to add to it, keeps decode(encode(x)) of it too, so that all ranks end with the same bits: a second encoding changes
nothing any more (FORMAT.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softnic.codecs import Codec
from softnic.collectives.operations import Op
from softnic.collectives.schedule import Receive, Schedule, Send
from softnic.comm import messages
from softnic.comm.buffers import Array, raw
from softnic.comm.channel import Channel, Incoming, Outgoing
from softnic.comm.combining import CHUNK_BYTES, Block, Combined, CombinedAhead, Finish, Placed, Slots
from softnic.comm.matching import Call
from softnic.comm.progress import Progress


@dataclass(frozen=True)
class Work:
    """The arrays of a collective on this rank: by block, what it contributes and where the result goes.

    Both may be the same arrays. `rounding` says that the owner of a block keeps what its codec decodes.
    """

    contributions: Sequence[Array]
    results: Sequence[Array]
    op: Op | None = None
    codec: Codec | None = None
    rounding: bool = True

    def finish(self, size: int) -> Finish | None:
        """What the owner of a block does to the sum over `size` ranks."""
        op, rounding = self.op, self.codec if self.rounding else None
        if op is None or not (op.average or rounding):
            return None

        def finish(part: Array) -> None:
            op.finish(part, size)
            if rounding is not None:
                rounding.roundtrip(part, out=part)

        return finish


class Runner:
    """Makes schedules into calls, over the connections of a Progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._scratch: dict[int, Array] = {}
        """By source: CHUNK_BYTES that are combined next."""
        self._slots: dict[int, Slots] = {}
        """By source, where that is in registered mode."""

    def call(self, head: messages.Head, schedule: Schedule, work: Work) -> Call:
        """Queues what may be sent; what is received is up to the call."""
        incoming: list[tuple[Channel, Incoming]] = []
        outgoing: list[Outgoing] = []
        latest: dict[int, Block] = {}
        """By block: what makes what this rank holds of it."""
        last: dict[Channel, Outgoing] = {}
        """Only at the end of the call is memory waited for that was sent."""
        self._use_registered(schedule, work)
        finish = work.finish(len(self._progress.peers) + 1)
        for step in schedule:
            if not work.results[step.block].nbytes:
                continue
            channel, before = self._channel(step.peer, work), latest.get(step.block)
            if isinstance(step, Send):
                message = self._send(step, work, channel, before)
                outgoing.append(message)
                last[channel] = message if message.home is not None else last.get(channel, message)
            else:
                block = self._receive(step, work, channel, before, finish if step.last else None)
                latest[step.block] = block
                incoming.append((channel, block))
        for message in last.values():
            message.tell = True
        return Call(head, self._progress, incoming, outgoing)

    def _use_registered(self, schedule: Schedule, work: Work) -> None:
        """Before any message of a channel is made: what they are depends on its mode."""
        for step in schedule:
            used = (work.contributions, work.results) if isinstance(step, Send) else (work.results,)
            for arrays in used:
                self._progress.use_registered(self._channel(step.peer, work), raw(arrays[step.block]))

    def _channel(self, peer: int, work: Work) -> Channel:
        return self._progress.peers[peer].channel(work.codec is not None)

    def _pad(self, work: Work, data: Array) -> int:
        return messages.padding(data.nbytes) if work.codec is not None else 0

    def _send(self, step: Send, work: Work, channel: Channel, before: Block | None) -> Outgoing:
        data = (work.contributions if before is None else work.results)[step.block]
        message = Outgoing(raw(data), self._pad(work, data), ready=before is None)
        message.tell = False
        if before is not None:
            before.followers.append(message)
        if work.codec is not None:
            self._progress.use_codec(channel, str(work.codec))
        channel.send(message)
        return message

    def _receive(
        self, step: Receive, work: Work, channel: Channel, before: Block | None, finish: Finish | None
    ) -> Block:
        result = work.results[step.block]
        pad = self._pad(work, result)
        if not step.combine:
            return Placed(pad, result)
        assert work.op is not None
        held = work.contributions[step.block] if before is None else result
        if channel.direct is not None:
            if step.peer not in self._slots:
                self._slots[step.peer] = Slots()
            return CombinedAhead(pad, held, result, work.op, self._slots[step.peer], finish, before)
        if step.peer not in self._scratch:
            self._scratch[step.peer] = np.empty(CHUNK_BYTES, np.uint8)
        return Combined(pad, held, result, work.op, self._scratch[step.peer], finish, before)
