"""AXI4-Stream for tests in cocotb: packets in, packets out, with pauses on both ports, and the cycles that they took.

Signals are set behind the falling edge and read before the rising one, at which a beat moves where valid and ready are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

BEAT = 32
PERIOD_NS = 10
"""100 MHz, the clock of INCEPTIONN's NIC."""
PATIENCE = 2000
"""Cycles without a beat after which an engine hangs."""


@dataclass
class Packet:
    """Bytes of a packet, with the engine's inputs that hold for it."""

    data: bytes
    inputs: dict[str, int] = field(default_factory=dict)

    def beats(self) -> list[bytes]:
        return [self.data[place : place + BEAT] for place in range(0, len(self.data), BEAT)]


@dataclass
class Received:
    """What an engine has made of a packet: its bytes, its outputs at the last beat, the cycles of its beats."""

    data: bytes
    outputs: dict[str, int]
    cycles: list[int]


class Bench:
    """An engine with a clock, a source and a sink."""

    def __init__(self, dut: Any, outputs: Sequence[str] = (), seed: int = 1) -> None:
        self.dut, self.outputs, self.random = dut, outputs, random.Random(seed)
        self.cycle = 0
        self.taken: list[int] = []
        """Cycles in which beats went in."""

    async def start(self) -> None:
        Clock(self.dut.clk, PERIOD_NS, "ns").start(start_high=False)
        self.dut.m_axis_tready.value = 0
        self.idle()
        await self.reset()

    async def reset(self) -> None:
        self.dut.rst.value = 1
        await FallingEdge(self.dut.clk)
        await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    def idle(self) -> None:
        self.dut.s_axis_tvalid.value = 0
        self.dut.s_axis_tdata.value = 0
        self.dut.s_axis_tkeep.value = 0
        self.dut.s_axis_tlast.value = 0

    async def exchange(
        self,
        packets: Sequence[Packet],
        offer: float = 1.0,
        take: float = 1.0,
        stop_after: int | None = None,
        expected: int | None = None,
    ) -> list[Received]:
        """Send packets, one behind the other, and return as many, or as are `expected`. `offer` and `take` are the
        shares of cycles in which the source has a beat and the sink is ready. With `stop_after`, return after so many
        cycles."""
        queue = [
            (packet, beat, index == len(packet.beats()) - 1)
            for packet in packets
            for index, beat in enumerate(packet.beats())
        ]
        received: list[Received] = []
        data, cycles, idle, is_offered = b"", [], 0, False
        begin = self.cycle
        wanted = len(packets) if expected is None else expected
        while len(received) < wanted or queue or stop_after is not None:
            is_offered = is_offered or (bool(queue) and self.random.random() < offer)
            if is_offered:
                self._offer(*queue[0])
            else:
                self.dut.s_axis_tvalid.value = 0
            self.dut.m_axis_tready.value = int(self.random.random() < take)
            await ReadOnly()
            moved = False
            if is_offered and int(self.dut.s_axis_tready.value):
                queue.pop(0)
                self.taken.append(self.cycle)
                is_offered, moved = False, True
            if int(self.dut.m_axis_tvalid.value) and int(self.dut.m_axis_tready.value):
                data += self._beat()
                cycles.append(self.cycle)
                moved = True
                if int(self.dut.m_axis_tlast.value):
                    at_last = {name: int(getattr(self.dut, name).value) for name in self.outputs}
                    received.append(Received(data, at_last, cycles))
                    data, cycles = b"", []
            idle = 0 if moved else idle + 1
            assert idle < PATIENCE, f"the engine hangs: {len(received)} of {wanted} packets, {len(queue)} beats left"
            await FallingEdge(self.dut.clk)
            self.cycle += 1
            if stop_after is not None and self.cycle - begin >= stop_after:
                break
        self.idle()
        self.dut.m_axis_tready.value = 0
        return received

    def _offer(self, packet: Packet, beat: bytes, is_last: bool) -> None:
        for name, value in packet.inputs.items():
            getattr(self.dut, name).value = value
        garbage = self.random.randbytes(BEAT - len(beat))
        self.dut.s_axis_tdata.value = int.from_bytes(beat + garbage, "little")
        self.dut.s_axis_tkeep.value = (1 << len(beat)) - 1
        self.dut.s_axis_tlast.value = int(is_last)
        self.dut.s_axis_tvalid.value = 1

    def _beat(self) -> bytes:
        keep = int(self.dut.m_axis_tkeep.value)
        size = keep.bit_length()
        assert keep == (1 << size) - 1, f"tkeep has gaps: {keep:08x}"
        assert size == BEAT or int(self.dut.m_axis_tlast.value), "a short beat that is not the last one"
        return int(self.dut.m_axis_tdata.value).to_bytes(BEAT, "little")[:size]
