"""Sums and copies whose floats are encoded and decoded on the device that they are on.

Ranks exchange pieces (shards.py). Messages go straight from each rank to each other one:

1. Every rank encodes the parts of a piece that others own, and sends each to its owner.
2. The owner adds what arrives to its own part: first that of the rank before it, then that of the one before this, and
   so on. It divides the sum for a mean, encodes it and sends it to all others.
3. Every rank decodes what the owners send. An owner has what the others decode, too.

That is the algorithm `direct` (softnic/collectives/schedule/direct.py), and a sum has the bits that NICs give it. A
gather is the third step alone; in a broadcast, each rank sends on what it receives. Each turn of the group's thread
starts one more piece, so that kernels, both directions of copies, and the network work on different pieces at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from softnic.torch.arguments import writable
from softnic.torch.devices import Event, ReadyEvents, uncounted
from softnic.torch.encoded import Course, Incoming, Port, SlotCodec, Steps, send
from softnic.torch.exec_context import ExecContext, tag_of
from softnic.torch.shards import Piece, joined, within
from softnic.torch.staging import TensorAt
from softnic.torch.work_items import WorkItem
from softnic.torch_private import copy_each

Place = tuple[int, Sequence[int]]
"""The index of this rank, and the ranks of the group that take part in an exchange."""


def float_words(tensors: Sequence[torch.Tensor], factor: float | torch.Tensor | None) -> torch.Tensor:
    """Return the elements of tensors, multiplied by a factor if there is one, as float32 side by side in new memory."""
    joined = torch.cat([tensor.view(-1) for tensor in tensors])
    return (joined if factor is None else joined.mul_(factor)).to(torch.float32)


class DeviceExchange(WorkItem):
    """An exchange of words, float32 on a device, of contiguous `tensors`. `pieces` is the number of its pieces.

    A "rank" is an index among the ranks of `place` here.
    """

    def __init__(self, codec: SlotCodec, place: Place, pieces: int, tensors: Iterable[torch.Tensor]) -> None:
        self._codec = codec
        self._rank, self._ranks = place
        self._size = len(self._ranks)
        self._before = [(self._rank - step) % self._size for step in range(1, self._size)]
        """The other ranks, from the one before this one on."""
        self._behind = self._before[::-1]
        self._pieces = pieces
        self._ready = ReadyEvents(tensors)
        self._courses: list[Course] = []
        self._end: Event | None = None
        """After which the result is in its place."""

    def start(self, context: ExecContext) -> None:
        self.start_numbered(context, context.numbers(self.numbers))

    @property
    def numbers(self) -> int:
        """How many numbers of the context it takes."""
        return 2 * self._pieces

    def start_numbered(self, context: ExecContext, first: int) -> None:
        """Start with these numbers, which must be the same on all ranks: they may start it in any order."""
        device = self._ready.device
        assert device is not None
        self._port = Port(context, device, self._codec, self._ranks)
        self._streams = self._port.streams
        self._first_tag = first
        self._unstarted = iter(range(self._pieces))
        with self._streams.kernels(self._ready.of(device)):
            self._prepare()
        self.advance()

    def advance(self) -> bool:
        if self._end is None:
            number = next(self._unstarted, None)
            if number is not None:
                self._courses += map(Course, self._exchanged(number))
                self._port.context.loop.wake()  # for the next piece
            self._courses = [course for course in self._courses if not course.advance()]
            if self._courses or number is not None:
                return False
            with self._streams.kernels():
                self._complete()
            self._end = self._streams.mark()
            self._port.context.watched([self._end])
        return self._end.query()

    def _prepare(self) -> None:
        """Have the words where they are exchanged. It runs among kernels, as `_complete` does."""

    def _exchanged(self, number: int) -> Iterator[Steps]:
        """Yield what there is to be done for a piece, side by side."""
        raise NotImplementedError

    def _complete(self) -> None:
        """Bring the results to their place."""

    def _tag(self, number: int, step: int) -> int:
        """Return the tag of the messages of a piece in a step, 0 or 1."""
        return tag_of(self._first_tag + 2 * number + step)

    def _decoded(self, words: torch.Tensor, source: int, tag: int, to: Sequence[int] = ()) -> Steps:
        """Decode a message to words, and send it on."""
        message = Incoming(self._port, words.numel(), source, tag, to=to)
        yield message.has_arrived
        with self._streams.kernels([message.uploaded]):
            message.decode(words)
        yield message.is_free

    def _sent_rounded(self, words: torch.Tensor, to: Sequence[int], tag: int) -> Steps:
        """Send words, which become what the others decode."""
        with self._streams.kernels():
            encoded = self._codec.encode_rounded(words)
        return send(self._port, words, to, tag, encoded)


class DeviceSum(DeviceExchange):
    """A sum, divided by `divisor` if there is one, of the pieces of a row, which have a part for each rank.

    `tensors` are the row, with their places in it. `output` is for this rank's part of all pieces; without it, all
    ranks get the whole sum in their tensors. `factor` is multiplied with each contribution.
    """

    def __init__(
        self,
        codec: SlotCodec,
        place: Place,
        pieces: Sequence[Piece],
        tensors: Sequence[TensorAt],
        output: torch.Tensor | None = None,
        *,
        factor: float | torch.Tensor | None = None,
        divisor: int | None = None,
    ) -> None:
        given = [tensor for _, tensor in tensors]
        results = given if output is None else [output]
        writable(results)
        super().__init__(codec, place, len(pieces), [*given, *results])
        self._row = pieces
        self._tensors, self._output = tensors, output
        self._factor, self._divided_by = factor, divisor

    def _prepare(self) -> None:
        given = [uncounted(tensor) for _, tensor in self._tensors]
        self._in_place = len(given) == 1 and self._factor is None and given[0].dtype == torch.float32
        if self._in_place:
            self._words = given[0].view(-1)
        else:
            self._words = float_words(given, self._factor)
        own = [piece[self._rank] for piece in self._row]
        self._sums = [self._words[part] for part in own]
        if self._output is not None:
            self._sums = [words.clone() for words in self._sums]
        self._divisor: torch.Tensor | None = None
        if self._divided_by is not None:
            self._divisor = torch.full((), self._divided_by, dtype=torch.float32, device=self._words.device)

    def _exchanged(self, number: int) -> Iterator[Steps]:
        piece, contributed, summed = self._row[number], self._tag(number, 0), self._tag(number, 1)
        yield self._summed(self._sums[number], contributed, summed)
        for rank in self._behind:
            yield send(self._port, self._words[piece[rank]], [rank], contributed)
        if self._output is None:
            for rank in self._before:
                yield self._decoded(self._words[piece[rank]], rank, summed)

    def _summed(self, words: torch.Tensor, contributed: int, summed: int) -> Steps:
        """Add what the others contribute to this rank's part of a piece, and send them the sum."""
        size = words.numel() // self._codec.block_words * self._codec.slot
        with self._streams.kernels():
            rows = torch.empty((len(self._before), size), dtype=torch.uint8, device=words.device)
        messages = [
            Incoming(self._port, words.numel(), rank, contributed, row=row)
            for rank, row in zip(self._before, rows, strict=True)
        ]
        yield lambda: all([message.has_arrived() for message in messages])
        shared = self._output is None
        with self._streams.kernels([message.uploaded for message in messages]):
            is_fused = shared and self._divisor is None and all([message.slots is not None for message in messages])
            if is_fused:
                encoded = self._codec.reduce_slots(rows, words, decode=True)
                for message in messages:
                    message.used()
            else:
                for message in messages:
                    message.decode(words, add=True)
                if self._divisor is not None:
                    words.div_(self._divisor)  # not by a number of Python's, whose reciprocal would be a factor
        if is_fused:
            yield from send(self._port, words, self._behind, summed, encoded)
        elif shared:
            yield from self._sent_rounded(words, self._behind, summed)
        yield lambda: all([message.is_free() for message in messages])

    def _complete(self) -> None:
        if self._output is not None:
            target, start = uncounted(self._output).view(-1), 0
            for words in self._sums:
                target[start : start + words.numel()].copy_(words)
                start += words.numel()
        elif not self._in_place:
            sources, targets = [], []
            for part in joined(self._row):
                for place, target in within(self._tensors, (part,)):
                    start = part.start + place
                    sources.append(self._words[start : start + target.numel()])
                    targets.append(uncounted(target))
            copy_each(targets, sources)


class DeviceGather(DeviceExchange):
    """The words of every rank at every rank. `parts`: one of each rank, equally long; `ranges` are the pieces of each.

    Each rank has its own in `given`.
    """

    def __init__(
        self,
        codec: SlotCodec,
        place: Place,
        ranges: Sequence[slice],
        given: torch.Tensor,
        parts: Sequence[torch.Tensor],
    ) -> None:
        writable(parts)
        super().__init__(codec, place, len(ranges), [given, *parts])
        self._ranges, self._given = ranges, given
        self._parts = [uncounted(part).view(-1) for part in parts]

    def _prepare(self) -> None:
        own = self._parts[self._rank]
        if own.data_ptr() != self._given.data_ptr():
            own[: self._ranges[-1].stop].copy_(self._given.view(-1)[: self._ranges[-1].stop])

    def _exchanged(self, number: int) -> Iterator[Steps]:
        taken, tag = self._ranges[number], self._tag(number, 0)
        for rank in self._before:
            yield self._decoded(self._parts[rank][taken], rank, tag)
        yield self._sent_rounded(self._parts[self._rank][taken], self._behind, tag)


class DeviceBroadcast(DeviceExchange):
    """The words of the root at every rank, which pass from rank to rank. `ranges` are their pieces."""

    def __init__(
        self, codec: SlotCodec, place: Place, ranges: Sequence[slice], tensor: torch.Tensor, root: int
    ) -> None:
        writable([tensor])
        super().__init__(codec, place, len(ranges), [tensor])
        self._ranges, self._root = ranges, root
        self._words = uncounted(tensor).view(-1)

    def _exchanged(self, number: int) -> Iterator[Steps]:
        words, tag = self._words[self._ranges[number]], self._tag(number, 0)
        before, behind = (self._rank - 1) % self._size, (self._rank + 1) % self._size
        to = [] if behind == self._root else [behind]
        if self._rank == self._root:
            yield self._sent_rounded(words, to, tag)
        else:
            yield self._decoded(words, before, tag, to)
