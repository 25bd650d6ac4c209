"""What cocotb runs in the simulator, for the engine that RTL_ENGINE names (tests/rtl/test_streams.py)."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
from cocotb.task import Task
from cocotb.triggers import ClockCycles, SimTimeoutError, with_timeout

from tests.rtl.b_axi import Bench, Sent
from tests.rtl.b_cases import CASES, WORDS, Packets

CASE = CASES[os.environ["RTL_ENGINE"]]
BEATS = -(-WORDS // 16)


async def bench_of(dut: Any, seed: int) -> Bench:
    bench = Bench(dut, CASE.inputs, CASE.outputs, seed)
    await bench.start(CASE.settings)
    return bench


async def exchange(bench: Bench, packets: list[Packets], pauses: dict[str, float]) -> dict[str, list[Sent]]:
    """Pass packets through the engine. Returns those of each output; fails if the engine hangs."""
    for name in CASE.inputs:
        cocotb.start_soon(bench.send(name, [packet[name] for packet in packets], pauses.get(name, 0)))
    sinks = [(name, cocotb.start_soon(bench.receive(name, len(packets), pauses.get(name, 0)))) for name in CASE.outputs]
    most = 10 * (2000 + 200 * len(packets))
    try:
        return {name: await with_timeout(sink, most, "ns") for name, sink in sinks}
    except SimTimeoutError as error:
        raise AssertionError(f"the engine hangs: no end after {most // 10} cycles") from error


def made(seed: int, count: int) -> tuple[list[Packets], list[Packets]]:
    random = np.random.default_rng(seed)
    pairs = [CASE.make(random) for _ in range(count)]
    return [inputs for inputs, _ in pairs], [outputs for _, outputs in pairs]


def check(got: dict[str, list[Sent]], wanted: list[Packets]) -> None:
    for name, packets in got.items():
        assert [packet.body for packet in packets] == [packet[name] for packet in wanted], name
        assert not any(packet.is_error for packet in packets), name


@cocotb.test()
async def random_pauses_on_all_ports(dut: Any) -> None:
    bench = await bench_of(dut, 1)
    inputs, wanted = made(1, 8)
    check(await exchange(bench, inputs, dict.fromkeys((*CASE.inputs, *CASE.outputs), 0.5)), wanted)


@cocotb.test()
async def each_port_slow_in_turn(dut: Any) -> None:
    bench = await bench_of(dut, 2)
    for seed, name in enumerate((*CASE.inputs, *CASE.outputs)):
        inputs, wanted = made(seed, 3)
        check(await exchange(bench, inputs, {name: 0.85}), wanted)


@cocotb.test()
async def packets_back_to_back(dut: Any) -> None:
    bench = await bench_of(dut, 3)
    inputs, wanted = made(3, 12)
    got = await exchange(bench, inputs, {})
    check(got, wanted)
    last = max(packets[-1].cycles[-1] for packets in got.values())
    first = max(packets[0].cycles[-1] for packets in got.values())
    assert last - first <= 11 * (BEATS + 1 + CASE.pauses), f"{last - first} cycles for 11 packets"


@cocotb.test()
async def a_malformed_packet_between_good_ones(dut: Any) -> None:
    bench = await bench_of(dut, 4)
    inputs, wanted = made(4, 3)
    assert CASE.spoil is not None
    inputs[1] = CASE.spoil(inputs[1])
    for pauses in ({}, dict.fromkeys((*CASE.inputs, *CASE.outputs), 0.3)):
        got = await exchange(bench, inputs, pauses)
        for name, packets in got.items():
            assert [packet.is_error for packet in packets] == [False, True, False]
            assert [packets[0].body, packets[2].body] == [wanted[0][name], wanted[2][name]]


@cocotb.test()
async def resets_amid_packets(dut: Any) -> None:
    bench = await bench_of(dut, 5)
    inputs, wanted = made(5, 2)
    for cycles in (1, 2, 5, 9, 13, 20, 33):
        tasks: list[Task[Any]] = [cocotb.start_soon(bench.send(name, [inputs[0][name]], 0.1)) for name in CASE.inputs]
        tasks += [cocotb.start_soon(bench.receive(name, 1, 0.4)) for name in CASE.outputs]
        await ClockCycles(dut.clk, cycles)
        for task in tasks:
            if not task.done():
                task.cancel()
        await bench.reset()
        check(await exchange(bench, inputs, {}), wanted)
