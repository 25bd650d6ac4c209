"""Gradient methods as rounds of messages: what a rank sends to each rank, and what it makes of their messages.

A method that has rounds does not care what carries them: a communicator that its caller waits for, or a process group
in whose background they run (softnic/torch/message_rounds.py). Rounds are a generator:

    rounds = method.rounds(gradient, kept, RoundsPlace(rank, size))
    messages = next(rounds)                  # one for each rank, this one too
    messages = rounds.send(received)         # one of each rank, this one's own too; until StopIteration with the sum

`kept` is this rank's memory for this gradient and is changed in place. A caller that may have to take a step back, as
torchft has when a replica dies, gives a copy and keeps it when the step has been committed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from softnic.codecs import Codec, DecodeError, feedback
from softnic.gradients.flat import zero_nonfinite
from softnic.gradients.method import Floats, Method, MethodError


class RoundsPlace(NamedTuple):
    """A rank, and how many there are."""

    rank: int
    size: int


Rounds = Generator[Sequence[bytes], Sequence[bytes], Floats]


class MessageMethod(Method):
    """A method that has rounds."""

    keeps: str
    """The key of what `average` keeps by parameter."""

    @abstractmethod
    def rounds(self, gradient: Floats, kept: Floats, place: RoundsPlace) -> Rounds:
        """Return the rounds in which all ranks sum a gradient.

        Parameters
        ----------
        gradient : Floats
            Of this rank; it is not changed.
        kept : Floats
            What this rank keeps for later calls, as long as the gradient; zeros at first. Changed in place.
        place : RoundsPlace
            This rank.

        Returns
        -------
        Rounds
            They return the sum over the ranks, with the same bits on all. They raise MethodError for a message that is
            none of this method.
        """


def feedback_rounds(codec: Codec, gradient: Floats, kept: Floats, place: RoundsPlace) -> Rounds:
    """Return the rounds of error feedback around a codec: steps 1, 2 and 4 to 6 of feedback.Feedback."""
    rank, size = place
    unit = max(1, codec.block_bytes // 4)
    length = -(-gradient.size // (unit * size)) * unit
    flat = np.empty(length * size, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        feedback.round_parts(codec, [gradient], [kept], flat)
    parts = flat.reshape(size, length)
    received = yield [codec.encode(part) for part in parts]
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.zeros(length, np.float32)
        for data in received:
            total += _decoded(codec, data, length)
        message = codec.encode(total)
        own = slice(rank * length, min((rank + 1) * length, gradient.size))
        if own.start < own.stop:
            kept[own] += (total - _decoded(codec, message, length))[: own.stop - own.start]
            zero_nonfinite(kept[own])
    received = yield [message] * size
    for part, data in zip(parts, received, strict=True):
        part[:] = _decoded(codec, data, length)
    return flat[: gradient.size]


def _decoded(codec: Codec, data: bytes, count: int) -> Floats:
    try:
        return codec.decode(data, count)
    except DecodeError as error:
        raise MethodError(f"a message of another rank is none of {codec}: ranks differ in settings") from error
