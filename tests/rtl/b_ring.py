"""A ring of nodes, each a Verilated ring_step of its own (b_ring_node.sv), all clocked together.

A link moves beats: what has left a node's tx is offered to the next node's rx from the next cycle on. A link has room
for LINK_BEATS beats; a node's tx waits while it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.rtl.b_engine import BEAT, BEAT_BYTES, Engine, Packet, Ports, Stream, beats_of, packets_of

PORTS = Ports(inputs=("step", "rx", "local"), outputs=("tx", "out"))
RX, TX, OUT = 1, 3, 4
"""Places in PORTS."""
LINK_BEATS = 2
QUIET_CYCLES = 400
"""A ring in which no beat moves for as long has ended."""


@dataclass
class Node:
    """The engine of a node, and what it has to do."""

    engine: Engine
    steps: Sequence[Sequence[int]]
    """The settings of each step."""
    blocks: Sequence[bytes]
    """Local blocks, in the order of the steps that add one."""
    sent: list[Packet] = field(default_factory=list)
    stored: list[Packet] = field(default_factory=list)


def run_ring(nodes: Sequence[Node], stall: int = 0, seed: int = 1) -> None:
    """Clock all nodes until no beat moves any more, and give them what they have sent and stored.

    Parameters
    ----------
    stall
        The chance, of 256, that a port pauses in a cycle.
    """
    random = np.random.default_rng(seed)
    steps = [beats_of([np.array(step, np.uint32).tobytes() for step in node.steps]) for node in nodes]
    blocks = [beats_of(node.blocks) for node in nodes]
    most = max(len(packet) // BEAT_BYTES + 2 for node in nodes for packet in node.blocks)
    sent, stored = ([np.zeros(most * len(node.steps), BEAT) for node in nodes] for _ in range(2))
    streams = [
        (Stream * 5)(
            Stream(steps[i].ctypes.data, len(steps[i]), 0, stall, 0),
            Stream(sent[i - 1].ctypes.data, 0, 0, stall, 0),
            Stream(blocks[i].ctypes.data, len(blocks[i]), 0, stall, 0),
            Stream(sent[i].ctypes.data, 0, 0, stall, 0),
            Stream(stored[i].ctypes.data, len(stored[i]), 0, stall, 0),
        )
        for i in range(len(nodes))
    ]
    quiet, moved = 0, 0
    while quiet < QUIET_CYCLES:
        for i, here in enumerate(streams):
            here[RX].count = streams[i - 1][TX].done
            streams[i - 1][TX].count = min(len(sent[i - 1]), here[RX].done + LINK_BEATS)
        for node, here in zip(nodes, streams, strict=True):
            node.engine.clock(here, int(random.integers(1 << 62)))
        before, moved = moved, sum(stream.done for here in streams for stream in here)
        quiet = quiet + 1 if moved == before else 0
    for i, (node, here) in enumerate(zip(nodes, streams, strict=True)):
        assert all(stream.done == stream.count for stream in here[:TX]), f"node {i} has not taken all: a deadlock"
        node.sent, node.stored = packets_of(sent[i][: here[TX].done]), packets_of(stored[i][: here[OUT].done])
