"""Tests of a decoder in cocotb; test_engines.py runs them in each. The C says what is right and what is malformed."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from softnic import codecs
from softnic.codecs import DecodeError
from tests.codecs.cases import damaged_body
from tests.rtl.encoders import codec_of
from tests.rtl.streams import Bench, Packet
from tests.rtl.words import decoded, encoded, some_words

LATENCY = 4
"""Cycles from a body of one beat to its words."""
OUTPUTS = ("m_axis_tuser", "is_late", "consumed")


def inputs(k: int, count: int, dut: Any) -> dict[str, int]:
    return {"words": count} | ({"k": k} if hasattr(dut, "k") else {})


def packets_of(bench: Bench, sizes: list[int], k: int | None = None) -> tuple[list[Packet], list[bytes]]:
    packets, words_of = [], []
    for size in sizes:
        codec, bits = codec_of(bench.dut), k or bench.random.randint(1, 23)
        body = encoded(codec, bits, some_words(bench.random, size))
        packets.append(Packet(body, inputs(bits, size, bench.dut)))
        words_of.append(decoded(codec, bits, body, size))
    return packets, words_of


async def check(
    bench: Bench, packets: list[Packet], expected: list[bytes], offer: float = 1.0, take: float = 1.0
) -> None:
    received = await bench.exchange(packets, offer, take)
    assert [each.data for each in received] == expected
    for packet, each in zip(packets, received, strict=True):
        assert each.outputs == {"m_axis_tuser": 0, "is_late": 0, "consumed": len(packet.data)}


@cocotb.test()
async def every_parameter_back_to_back(dut: Any) -> None:
    bench = Bench(dut, OUTPUTS, seed=11)
    await bench.start()
    for k in range(1, 24):
        await check(bench, *packets_of(bench, [*range(1, 17), 37, 40, 64, 65], k))


@cocotb.test()
async def back_pressure_on_both_ports(dut: Any) -> None:
    bench = Bench(dut, OUTPUTS, seed=12)
    await bench.start()
    for offer, take in ((1.0, 0.5), (0.5, 1.0), (0.3, 0.3), (0.9, 0.1), (0.1, 0.9)):
        packets, words = packets_of(bench, [bench.random.randint(1, 400) for _ in range(12)])
        await check(bench, packets, words, offer, take)


@cocotb.test()
async def a_single_beat_takes_the_stages(dut: Any) -> None:
    bench = Bench(dut, OUTPUTS, seed=13)
    await bench.start()
    for size in range(1, 9):
        zeros = np.zeros(size, np.uint32)
        body = encoded(codec_of(dut), 10, zeros)
        (received,) = await bench.exchange([Packet(body, inputs(10, size, dut))])
        assert received.data == zeros.tobytes()
        assert received.cycles[0] - bench.taken[-1] == LATENCY


@cocotb.test()
async def a_beat_in_every_cycle(dut: Any) -> None:
    """The output never waits where words are compressed, the input never where they are not."""
    bench = Bench(dut, OUTPUTS, seed=14)
    await bench.start()
    codec, zeros = codec_of(dut), np.zeros(8 * 200, np.uint32)
    for bits in (0, 0x3E000000):
        body = encoded(codec, 10, zeros | np.uint32(bits))
        received = await bench.exchange([Packet(body, inputs(10, zeros.size, dut))])
        assert np.diff(received[0].cycles).tolist() == [1] * 199
    bench.taken.clear()
    body = encoded(codec, 10, zeros | np.uint32(0x7F000000))
    received = await bench.exchange([Packet(body, inputs(10, zeros.size, dut))])
    assert np.diff(bench.taken).tolist() == [1] * (len(bench.taken) - 1)
    assert received[0].data == (zeros | np.uint32(0x7F000000)).tobytes()


@cocotb.test()
async def reset_amid_a_packet(dut: Any) -> None:
    bench = Bench(dut, OUTPUTS, seed=15)
    await bench.start()
    for cycles in (1, 2, 3, 5, 9, 17, 40):
        packets, _ = packets_of(bench, [500, 500])
        await bench.exchange(packets, take=bench.random.choice((0.0, 1.0)), stop_after=cycles)
        await bench.reset()
        await check(bench, *packets_of(bench, [3, 100]))


@cocotb.test()
async def malformed_bodies_end_with_an_error(dut: Any) -> None:
    """Damaged bodies, amid good ones: an error where the C refuses, the C's words elsewhere, and each a packet."""
    bench, rng, found = Bench(dut, OUTPUTS, seed=16), np.random.default_rng(16), [0, 0]
    await bench.start()
    codec = codecs.get(f"{codec_of(dut)}:10")
    for _ in range(40):
        packets: list[Packet] = []
        expected: list[bytes | None] = []
        while len(packets) < 10:
            body, count = damaged_body(rng, codec)
            if not body:
                continue
            packets.append(Packet(body, inputs(10, count, dut)))
            expected.append(accepted(codec, body, count))
        offer, take = bench.random.choice(((1.0, 1.0), (0.5, 0.5), (1.0, 0.3)))
        for packet, words, each in zip(packets, expected, await bench.exchange(packets, offer, take), strict=True):
            if words is None:
                assert each.outputs["m_axis_tuser"]
            else:
                assert each.data == words
                assert each.outputs == {"m_axis_tuser": 0, "is_late": 0, "consumed": len(packet.data)}
            found[words is None] += 1
    assert min(found) > 50


def accepted(codec: codecs.Codec, body: bytes, count: int) -> bytes | None:
    try:
        return codec.decode(body, count).tobytes()
    except DecodeError:
        return None


@cocotb.test()
async def what_follows_the_words_is_dropped(dut: Any) -> None:
    """As a tail: the words come out, `is_late` is set, `consumed` says where they end, and the next packet is whole."""
    bench = Bench(dut, OUTPUTS, seed=17)
    await bench.start()
    for behind in (1, 3, 31, 32, 33, 64, 200):
        packets, words = packets_of(bench, [bench.random.randint(1, 200) for _ in range(4)])
        longer = [Packet(each.data + bytes(behind), each.inputs) for each in packets]
        received = await bench.exchange(longer, take=bench.random.choice((1.0, 0.4)))
        assert [each.data for each in received] == words
        for each, packet in zip(received, packets, strict=True):
            assert each.outputs == {"m_axis_tuser": 1, "is_late": 1, "consumed": len(packet.data)}
