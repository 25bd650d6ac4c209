"""Conversion of a collective's elements to the type that crosses the network, and of its results back.

NICs compress float32. Other elements that travel as float32 (softnic/collectives/elements.py) are converted to scratch
memory when a call begins; the collective is done in place there, and its result is converted back: from the same
float32 on every rank, and so to the same bits. With one rank, nothing is converted.
"""

from __future__ import annotations

from dataclasses import replace

from softnic.collectives.elements import carried, convert
from softnic.comm.buffers import Array
from softnic.comm.collective_args import CollectiveArgs


class DtypeConversion:
    """The conversion of one rank's part of a collective."""

    def __init__(self, args: CollectiveArgs, rank: int, size: int) -> None:
        options = args.options
        self.elements = args.source.dtype
        """The caller's type."""
        self.dtype, codec = carried(self.elements, options.codec if size > 1 else None)
        """The type that crosses the network."""
        self.args = replace(args, options=replace(options, codec=codec))
        """What is executed if nothing is converted."""
        self.converts = self.dtype != self.elements
        self._given = args
        self._rank = rank
        self._scratch: Array | None = None

    def begin(self, scratch: Array) -> CollectiveArgs:
        """Convert this rank's contribution to `scratch`, of `args.count` elements of `dtype`, in use until `finish`.

        Returns the collective over `scratch`.
        """
        given, own = self._given, self._given.blocks[self._rank] if self._given.collective == "allgather" else None
        self._scratch = scratch
        if own is not None:
            convert(given.source[own] if given.given is None else given.given, scratch[own])
        elif given.collective != "bcast" or given.root == self._rank:
            convert(given.source, scratch)
        return replace(self.args, source=scratch, result=scratch, given=None, own=None)

    def finish(self) -> None:
        """Convert the result to the caller's memory. Does nothing if nothing was converted."""
        given, scratch = self._given, self._scratch
        if scratch is None:
            return
        if given.own is not None:
            convert(scratch[given.blocks[self._rank]], given.own)
        elif given.result is not None:
            convert(scratch, given.result)
        self._scratch = None
