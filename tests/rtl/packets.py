"""Tests of the packet path in cocotb: frames of scapy's, payloads by the C, checksums that scapy agrees with."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from softnic import codecs
from softnic.codecs.payload import PayloadHeader
from tests.rtl.streams import PERIOD_NS, Bench, Packet
from tests.rtl.words import some_words

TAG, K = 0x28, 10
INPUTS = {"tag": TAG >> 2, "k": K}
OPTIONS: tuple[list[tuple[str, Any]], ...] = ([], [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))])


def frame(chance: random.Random, payload: bytes, tos: int = TAG) -> bytes:
    """A frame with valid checksums. The same seed gives the same headers."""
    ip = IP(tos=tos, src=f"10.77.0.{chance.randrange(1, 255)}", dst=f"10.77.0.{chance.randrange(1, 255)}")
    tcp = TCP(
        sport=chance.randrange(1, 1 << 16),
        dport=5000,
        seq=chance.randrange(1 << 32),
        flags="PA",
        options=chance.choice(OPTIONS),
    )
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / tcp / payload)


def original(chance: random.Random, most: int = 1360) -> bytes:
    """Bytes of a segment: words of all kinds and a tail of up to three bytes."""
    words = some_words(chance, chance.randint(1, most // 4)).tobytes()
    return words[: chance.choice((len(words), chance.randint(1, len(words))))]


def encoded(codec: str, data: bytes, padding: int = 0) -> bytes:
    """The payload that stands for these bytes."""
    chosen = codecs.get(codec)
    words = len(data) // 4
    body = chosen.encode(np.frombuffer(data, np.float32, words)) if words else b""
    body += data[4 * words :]
    return PayloadHeader(chosen, len(data), len(body), padded=bool(padding)).pack() + body + bytes(padding)


def decoded(codec: str, data: bytes) -> bytes:
    chosen, words = codecs.get(codec), len(data) // 4
    return chosen.roundtrip(np.frombuffer(data, np.float32, words)).tobytes() + data[4 * words :]


def codec_of(dut: Any) -> str:
    return f"{'bounded' if int(dut.IS_BOUNDED.value) else 'inceptionn'}:{K}"


def pairs(dut: Any, chance: random.Random, count: int) -> list[tuple[bytes, bytes]]:
    """Frames in, and what they come out as: tagged ones of all sizes, and others between them."""
    found, codec = [], codec_of(dut)
    for _ in range(count):
        data, seed = original(chance), chance.randrange(1 << 32)
        if chance.random() < 0.3:
            tos = chance.choice((0, 0x2C, 0x08))
            other = frame(random.Random(seed), chance.choice((data, b"")), tos)
            found.append((other, other))
            continue
        plain, tagged = random.Random(seed), random.Random(seed)
        if int(dut.DECODES.value) and chance.random() < 0.2:
            payload = PayloadHeader(codecs.get(codec), len(data), len(data), raw=True).pack() + data
            found.append((frame(tagged, payload), frame(plain, data)))
        elif int(dut.DECODES.value):
            payload = encoded(codec, data, chance.choice((0, 0, 1, 40)))
            found.append((frame(tagged, payload), frame(plain, decoded(codec, data))))
        else:
            found.append((frame(plain, data), frame(tagged, encoded(codec, data))))
    return found


async def bench_of(dut: Any, seed: int) -> Bench:
    bench = Bench(dut, seed=seed)
    dut.tag.value, dut.k.value = TAG >> 2, K
    await bench.start()
    return bench


async def check(bench: Bench, through: list[tuple[bytes, bytes]], offer: float = 1.0, take: float = 1.0) -> None:
    received = await bench.exchange([Packet(given, INPUTS) for given, _ in through], offer, take)
    assert [each.data for each in received] == [expected for _, expected in through]


@cocotb.test()
async def frames_back_to_back(dut: Any) -> None:
    bench = await bench_of(dut, 21)
    await check(bench, pairs(dut, bench.random, 60))


@cocotb.test()
async def back_pressure_on_both_ports(dut: Any) -> None:
    bench = await bench_of(dut, 22)
    for offer, take in ((1.0, 0.4), (0.4, 1.0), (0.3, 0.3)):
        await check(bench, pairs(dut, bench.random, 20), offer, take)


@cocotb.test()
async def payloads_of_few_bytes_and_congestion_marks(dut: Any) -> None:
    """One to nine bytes, words or none; frames that a router has marked (ECN) are tagged all the same."""
    bench, codec = await bench_of(dut, 23), codec_of(dut)
    through = []
    for size in range(1, 10):
        data, tos = bytes(range(1, size + 1)), TAG | size % 4
        plain, tagged = (random.Random(size) for _ in range(2))
        if int(dut.DECODES.value):
            through.append((frame(tagged, encoded(codec, data), tos), frame(plain, decoded(codec, data), tos)))
        else:
            through.append((frame(plain, data, tos), frame(tagged, encoded(codec, data), tos)))
    await check(bench, through)


@cocotb.test()
async def what_is_not_tagged_data_passes(dut: Any) -> None:
    """Acknowledgements, padded to Ethernet's least; UDP; ARP; fragments; frames of a few bytes."""
    bench = await bench_of(dut, 24)
    acknowledgement = frame(bench.random, b"")
    fragment = bytearray(frame(bench.random, bytes(100)))
    fragment[20] = 0x20
    udp = bytearray(frame(bench.random, bytes(100)))
    udp[23] = 17
    arp = b"\xff" * 12 + b"\x08\x06" + bytes(46)
    frames = [acknowledgement + bytes(6), bytes(fragment), bytes(udp), arp, arp[:14], bytes(1), bytes(32), bytes(33)]
    await check(bench, [(each, each) for each in frames])


@cocotb.test()
async def a_wrong_checksum_stays_wrong(dut: Any) -> None:
    bench, codec = await bench_of(dut, 25), codec_of(dut)
    data = original(bench.random)
    payload = encoded(codec, data) if int(dut.DECODES.value) else data
    damaged = bytearray(frame(bench.random, payload))
    damaged[50] ^= 0x5A
    (received,) = await bench.exchange([Packet(bytes(damaged), INPUTS)])
    packet = Ether(received.data)
    claimed = packet[TCP].chksum
    del packet[TCP].chksum
    assert Ether(bytes(packet))[TCP].chksum != claimed


@cocotb.test()
async def a_frame_takes_few_more_cycles_than_beats(dut: Any) -> None:
    """At most 16 cycles more a frame: more than 18 Gbit/s of full frames at 100 MHz."""
    bench = await bench_of(dut, 26)
    data = np.random.default_rng(26).normal(0, 0.01, 340).astype(np.float32).tobytes()
    payload = encoded(codec_of(dut), data) if int(dut.DECODES.value) else data
    one = frame(bench.random, payload)
    received = await bench.exchange([Packet(one, INPUTS)] * 20)
    periods, size = np.diff([each.cycles[-1] for each in received]), max(len(one), len(received[0].data))
    assert periods.max() <= -(-size // 32) + 16, periods
    assert 8 * size / (periods.max() * PERIOD_NS) > 18


@cocotb.test()
async def frames_that_are_not_whole_are_dropped(dut: Any) -> None:
    """Ends before the payload does, payload headers that are wrong, bodies that are: between good frames."""
    bench, codec, dropped = await bench_of(dut, 27), codec_of(dut), 0

    async def count() -> None:
        nonlocal dropped
        while True:
            await FallingEdge(dut.clk)
            dropped += int(dut.dropped.value)

    counter = cocotb.start_soon(count())
    bad, good = [], pairs(dut, bench.random, 30)
    for size in (60, 63, 64, 65, 96, 100, 200):
        payload = bytes(300) if not int(dut.DECODES.value) else encoded(codec, bytes(range(250)) * 4)
        bad.append(frame(bench.random, payload)[:size])
    if int(dut.DECODES.value):
        whole = encoded(codec, bytes(range(250)) * 4)
        changed = [(0, 0x20), (0, 0x14), (1, 3), (2, 0), (2, 24), (3, 1)]
        for place, value in (*changed, *((place, whole[place] ^ 0xFF) for place in (7, 11, 12))):
            wrong = bytearray(whole)
            wrong[place] = value
            bad.append(frame(bench.random, bytes(wrong)))
        bad.append(frame(bench.random, whole[:12]))
        bad.append(frame(bench.random, whole[:5]))
    sent, expected = [], []
    for index, (given, wanted) in enumerate(good):
        sent += [given, *bad[index : index + 1]]
        expected.append(wanted)
    packets = [Packet(each, INPUTS) for each in sent]
    received = await bench.exchange(packets, expected=len(expected))
    assert [each.data for each in received] == expected
    for _ in range(3):
        await bench.exchange([], stop_after=20)
    counter.cancel()
    assert dropped == len(bad)


@cocotb.test()
async def reset_amid_a_frame(dut: Any) -> None:
    bench = await bench_of(dut, 28)
    for cycles in (1, 2, 3, 10, 40, 55, 70):
        inputs = [Packet(given, INPUTS) for given, _ in pairs(dut, bench.random, 3)]
        await bench.exchange(inputs, take=bench.random.choice((0.0, 1.0)), stop_after=cycles)
        await bench.reset()
        await check(bench, pairs(dut, bench.random, 3))
