"""Tests of an encoder in cocotb; test_engines.py runs them in each. The C says which bytes are right."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from tests.rtl.streams import Bench, Packet
from tests.rtl.words import encoded, some_words

LATENCY = {"inceptionn": 3, "bounded": 5}
"""Cycles from a packet of one beat to its bytes."""


def codec_of(dut: Any) -> str:
    return str(dut._name).partition("_")[0]


def packets_of(bench: Bench, sizes: list[int], k: int | None = None) -> tuple[list[Packet], list[bytes]]:
    """Packets of as many words, of a k each unless one is given, and their bodies."""
    packets, bodies = [], []
    for size in sizes:
        words, bits = some_words(bench.random, size), k or bench.random.randint(1, 23)
        packets.append(Packet(words.tobytes(), {"k": bits}))
        bodies.append(encoded(codec_of(bench.dut), bits, words))
    return packets, bodies


@cocotb.test()
async def every_parameter_back_to_back(dut: Any) -> None:
    """Packets of 1 to 40 words with changing k, none waiting for the one before."""
    bench = Bench(dut, seed=1)
    await bench.start()
    for k in range(1, 24):
        packets, bodies = packets_of(bench, [*range(1, 17), 37, 40], k)
        received = await bench.exchange(packets)
        assert [each.data for each in received] == bodies


@cocotb.test()
async def back_pressure_on_both_ports(dut: Any) -> None:
    bench = Bench(dut, seed=2)
    await bench.start()
    for offer, take in ((1.0, 0.5), (0.5, 1.0), (0.3, 0.3), (0.9, 0.1), (0.1, 0.9)):
        packets, bodies = packets_of(bench, [bench.random.randint(1, 400) for _ in range(12)])
        received = await bench.exchange(packets, offer, take)
        assert [each.data for each in received] == bodies


@cocotb.test()
async def a_single_beat_takes_the_stages(dut: Any) -> None:
    bench = Bench(dut, seed=3)
    await bench.start()
    for size in range(1, 9):
        packets, bodies = packets_of(bench, [size])
        (received,) = await bench.exchange(packets)
        assert received.data == bodies[0]
        assert received.cycles[0] - bench.taken[-1] == LATENCY[codec_of(dut)]


@cocotb.test()
async def a_beat_in_every_cycle(dut: Any) -> None:
    """The input never waits where words compress, the output never where they do not."""
    bench = Bench(dut, seed=4)
    await bench.start()
    words = np.zeros(8 * 200, np.uint32)
    silent = Packet(words.tobytes(), {"k": 10})
    half = Packet((words | np.uint32(0x3E000000)).tobytes(), {"k": 10})  # 16 bits each
    full = Packet((words | np.uint32(0x7F000000)).tobytes(), {"k": 10})  # 32 bits each
    for packet in (silent, half):
        for packets in (1, 3):
            bench.taken.clear()
            await bench.exchange([packet] * packets)
            assert np.sum(np.diff(bench.taken) - 1) <= packets - 1  # a cycle between packets at most
    received = await bench.exchange([full] * 3)
    cycles = [cycle for each in received for cycle in each.cycles]
    assert np.diff(cycles).max() == 1
    assert received[2].data == encoded(codec_of(dut), 10, words | np.uint32(0x7F000000))


@cocotb.test()
async def a_port_moves_in_every_cycle(dut: Any) -> None:
    """With mixed words and packets of any size, the cycles are at most the beats of one port and a bubble a packet."""
    bench = Bench(dut, seed=5)
    await bench.start()
    packets, bodies = packets_of(bench, [bench.random.randint(1, 600) for _ in range(20)])
    begin = bench.cycle
    received = await bench.exchange(packets)
    assert [each.data for each in received] == bodies
    ins, outs = (sum(-(-len(data) // 32) for data in all_) for all_ in ([p.data for p in packets], bodies))
    per_packet = sum(max(-(-len(p.data) // 32), -(-len(body) // 32)) for p, body in zip(packets, bodies, strict=True))
    assert max(ins, outs) <= bench.cycle - begin <= per_packet + len(packets) + 12


@cocotb.test()
async def reset_amid_a_packet(dut: Any) -> None:
    bench = Bench(dut, seed=6)
    await bench.start()
    for cycles in (1, 2, 3, 5, 9, 17, 40):
        packets, _ = packets_of(bench, [500, 500])
        await bench.exchange(packets, take=bench.random.choice((0.0, 1.0)), stop_after=cycles)
        await bench.reset()
        packets, bodies = packets_of(bench, [3, 100])
        received = await bench.exchange(packets)
        assert [each.data for each in received] == bodies


@cocotb.test()
async def nothing_comes_of_nothing(dut: Any) -> None:
    bench = Bench(dut, seed=7)
    await bench.start()
    received = await bench.exchange([Packet(b"\x01\x02\x03\x04" * 8, {"k": 1})], offer=0.0, stop_after=50)
    assert received == []
