"""AXI4-Stream ports of an engine under cocotb: sources and sinks that pause at random, and the rules of the protocol.

A source keeps a beat until it is taken; a sink checks that the engine does the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

BEAT_BYTES = 64


@dataclass
class Sent:
    """What a sink got between two beats with tlast."""

    body: bytes
    is_error: bool
    cycles: list[int] = field(default_factory=list)


class Bench:
    """An engine with its clock, reset and ports."""

    def __init__(self, dut: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], seed: int) -> None:
        self.dut, self.inputs, self.outputs = dut, inputs, outputs
        self.random = random.Random(seed)
        self.cycle = 0

    def port(self, name: str) -> Any:
        return getattr(self.dut, name)

    async def start(self, settings: dict[str, int]) -> None:
        """Start the clock, set the settings and reset the engine."""
        Clock(self.dut.clk, 10, unit="ns").start()
        cocotb.start_soon(self._count())
        for name, value in settings.items():
            self.port(name).value = value
        await self.reset()

    async def reset(self) -> None:
        """Hold the reset for two cycles, with idle ports."""
        await FallingEdge(self.dut.clk)
        for name in self.inputs:
            self.port(f"{name}_axis_tvalid").value = 0
        for name in self.outputs:
            self.port(f"{name}_axis_tready").value = 0
        self.dut.rst.value = 1
        for _ in range(2):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def _count(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1

    async def send(self, name: str, packets: list[bytes], pause: float) -> None:
        """Offer packets at an input, which pauses before a beat with this probability."""
        valid, ready = self.port(f"{name}_axis_tvalid"), self.port(f"{name}_axis_tready")
        for packet in packets:
            places = range(0, max(len(packet), 1), BEAT_BYTES)
            for at in places:
                while self.random.random() < pause:
                    valid.value = 0
                    await FallingEdge(self.dut.clk)
                some = packet[at : at + BEAT_BYTES]
                self.port(f"{name}_axis_tdata").value = int.from_bytes(some.ljust(BEAT_BYTES, b"\xa5"), "little")
                self.port(f"{name}_axis_tkeep").value = (1 << len(some)) - 1
                self.port(f"{name}_axis_tlast").value = int(at == places[-1])
                valid.value = 1
                taken = False
                while not taken:
                    await ReadOnly()
                    taken = bool(ready.value)
                    await FallingEdge(self.dut.clk)
        valid.value = 0

    async def receive(self, name: str, count: int, pause: float) -> list[Sent]:
        """Take packets from an output, which is not ready with this probability in a cycle."""
        valid, ready = self.port(f"{name}_axis_tvalid"), self.port(f"{name}_axis_tready")
        signals = [self.port(f"{name}_axis_{signal}") for signal in ("tdata", "tkeep", "tlast", "tuser")]
        packets: list[Sent] = []
        now = Sent(b"", False)
        offered: list[int] | None = None
        while len(packets) < count:
            is_ready = self.random.random() >= pause
            ready.value = int(is_ready)
            await ReadOnly()
            beat = [int(signal.value) for signal in signals] if valid.value else None
            assert offered is None or beat == offered, f"{name}: a beat changed before it was taken"
            offered = None if is_ready else beat
            if beat is not None and is_ready:
                data, keep, last, user = beat
                kept = keep.bit_count()
                assert keep == (1 << kept) - 1, f"{name}_axis_tkeep has gaps: {keep:x}"
                now.body += data.to_bytes(BEAT_BYTES, "little")[:kept]
                now.cycles.append(self.cycle)
                if last:
                    now.is_error = bool(user)
                    packets.append(now)
                    now = Sent(b"", False)
            await FallingEdge(self.dut.clk)
        ready.value = 0
        return packets
