"""The turn of a kernel's NIC: C moves the data, and asks Python for decisions alone."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from softnic import codecs
from softnic._native import lib
from softnic.link.emulation_spec import EmulationSpec
from softnic.packet.frames import Frames
from softnic.packet.headers import pack_headers
from softnic.packet.segment import Options
from softnic.tapnic.flows import TIME_WAIT_S
from tests.nic.harness import checksum
from tests.tapnic.simulated import ACK, FIN, OTHER_TOS, PSH, RST, SYN, TOS, Kernel, Pair
from tests.tapnic.wired import WiredPair

WORDS = np.random.default_rng(3).normal(0, 0.01, 100_000).astype(np.float32)
DATA = WORDS.tobytes()
LIMITED = EmulationSpec(rate_bps=1e8, limit_bytes=8000)
LOSSY = EmulationSpec(rate_bps=1e9, delay_s=1e-3, loss=0.02, reorder=0.02)
ASKED = (
    *("on_receive", "on_run", "on_send", "on_release", "on_space", "on_advance_link", "on_advance_requests"),
    *("on_outgoing", "on_incoming", "on_find_path", "on_encodes", "on_encoded", "on_record", "on_exhausted"),
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def rounded(words: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bytes:
    codec = codecs.get("bounded:10")
    return codec.decode(codec.encode(words), len(words)).tobytes()


def open_flow(pair: Pair) -> None:
    """Open a connection to the last segment of its handshake. The next bytes are number 100 and 500."""
    pair.connect()
    pair.left.send(pair.left.segment(100, ACK, ack=500))
    pair.pump()
    pair.right.packets()


def talk(pair: Pair, rng: random.Random) -> list[bytes]:
    """Have both kernels send segments of any kind at random. Return what they got."""
    got: list[bytes] = []
    kernels, sent = (pair.left, pair.right), [100, 500]
    for _ in range(150):
        side, choice, tos = rng.randrange(2), rng.random(), rng.choice((0, TOS, TOS, OTHER_TOS))
        kernel, ack = kernels[side], sent[1 - side]
        at, size = rng.randrange(20_000) * 4, rng.choice((1, 4, 63, 1448, 30_000, 60_000))
        if choice < 0.5:
            kernel.send(kernel.segment(sent[side], ACK, ack=ack, tos=tos), DATA[at : at + size])
            sent[side] += size
        elif choice < 0.6:
            back = rng.randrange(1, 3000)
            again = (sent[side] - back) & 0xFFFFFFFF
            kernel.send(kernel.segment(again, ACK, ack=ack, tos=tos), DATA[at : at + min(size, back)])
        elif choice < 0.9:
            kernel.send(kernel.segment(sent[side], ACK, ack=max(0, ack - rng.randrange(4000))))
        else:
            target = rng.choice((kernels[1 - side].mac, bytes([255] * 6), b"\2\0\0\0\0\7"))  # two go to all peers
            kernel.send_frame(target + kernel.mac + b"\x86\xdd" + rng.randbytes(60))
        pair.pump()
        for each in kernels:
            got += each.packets()
    pair.left.send(pair.left.segment(sent[0], ACK | FIN, ack=sent[1]))
    pair.right.send(pair.right.segment(sent[1], RST))
    for _ in range(20):
        pair.pump()
    return got + pair.left.packets() + pair.right.packets()


@pytest.mark.parametrize("spec", [None, LOSSY], ids=["wire", "lossy"])
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("codec", ["bounded:10", "auto:bounded:10"])
def test_what_c_does_with_the_wire_is_what_the_link_in_python_does(
    stack: ExitStack, spec: EmulationSpec | None, sealed: bool, codec: str
) -> None:
    found = []
    for direct in (True, False):
        pair = WiredPair(stack, codec=codec, spec=spec, sealed=sealed, direct=direct)
        pair.pump()
        recording = pair.left.record()
        open_flow(pair)
        got = talk(pair, random.Random(4))
        pair.left.recorded(recording)
        found.append((got, pair.counters()))
    assert found[0] == found[1]
    assert found[0][1][0]["tx_offload_original_bytes"] > 100_000
    assert (found[0][1][0].get("emulated_lost", 0) > 0) == (spec is not None)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("spec", [None, EmulationSpec(rate_bps=1e9, delay_s=1e-3)], ids=["wire", "emulated"])
@pytest.mark.parametrize("captured", [False, True], ids=["", "captured"])
def test_an_established_connection_asks_python_for_nothing(
    stack: ExitStack, sealed: bool, spec: EmulationSpec | None, captured: bool
) -> None:
    pair = WiredPair(stack, spec=spec, sealed=sealed)
    pair.pump()
    open_flow(pair)
    pair.left.send(pair.left.segment(100, ACK, ack=500), DATA[:4])
    pair.right.send(pair.right.segment(500, ACK, ack=104), DATA[:4])
    pair.pump(turns=10)  # both paths are known now
    if captured:
        recording = pair.left.record()
        stack.callback(recording.ours.close)
        pair.pump()
    pair.count_calls(*(name for name in ASKED if not captured or name != "on_advance_link"))
    got: list[bytes] = []
    at, other = 104, pair.right.mac + pair.left.mac + b"\x86\xdd" + bytes(60)
    for tos in (0, TOS, OTHER_TOS, TOS):
        for size in (60_000, 1001, 1):
            pair.left.send(pair.left.segment(at, ACK | PSH, ack=504, tos=tos), DATA[:size])
            at += size
        pair.pump(turns=10)
        pair.right.send(pair.right.segment(504, ACK, ack=at))
        pair.left.send_frame(other)
        pair.pump(turns=10)
        got += pair.right.packets()
    assert got.count(other) == 4
    assert sum(len(packet) - 66 for packet in got if packet != other) == at - 100
    assert pair.asked == {}
    assert pair.left.node.flows.items()[0][1].cached_bytes == 0


def test_packets_wait_for_a_link_without_space_and_none_is_lost(stack: ExitStack) -> None:
    pair = Pair(stack, spec=LIMITED)
    open_flow(pair)
    left = pair.left
    for number in range(8):
        part = DATA[number * 10_000 : (number + 1) * 10_000]
        left.send(left.segment(100 + number * 10_000, ACK, ack=500, tos=TOS if number % 2 else 0), part)
    pair.pump()
    left.node.tap.readable = False
    waiting = left.node.counters()["tx_bytes"]
    assert waiting < 80_000
    assert left.node.tap.is_busy
    now = 0.0
    while left.node.tap.is_busy:
        due = left.node.next_time()
        assert due is not None
        assert due > now - 1e-9
        now = max(now, due)
        left.node.advance(now)
        assert now < 1.0
    for _ in range(100):
        now += 0.001
        pair.pump(now)
    got = b"".join(payload for _, _, payload in pair.right.received())
    parts = [WORDS[number * 2500 : (number + 1) * 2500] for number in range(8)]
    assert got == b"".join(rounded(part) if number % 2 else part.tobytes() for number, part in enumerate(parts))
    counters = left.node.counters()
    assert counters["emulated_dropped_full"] == 0
    assert counters["tx_bytes"] == 80_000


def fill(pair: Pair, tos: int) -> Kernel:
    """Have more wait at the left NIC than its link takes. Return the left kernel."""
    left = pair.left
    left.send(left.segment(100, ACK, ack=500, tos=tos), DATA[:60_000])
    pair.pump()
    assert left.node.nic.turn.is_full
    return left


def test_bytes_that_are_acknowledged_while_they_wait_are_sent_as_they_were(stack: ExitStack) -> None:
    """The peer may have them from another copy of the segment."""
    pair = Pair(stack, spec=LIMITED)
    open_flow(pair)
    left = fill(pair, TOS)
    flow = left.node.flows.items()[0][1]
    assert flow.cached_bytes == 60_000
    pair.right.send(pair.right.segment(500, ACK, ack=60_100))
    now = 0.002
    pair.pump(now)
    assert flow.cached_bytes == 0
    assert left.node.nic.turn.is_full
    for _ in range(100):
        now += 0.001
        pair.pump(now)
    assert b"".join(payload for _, _, payload in pair.right.received()) == rounded(WORDS[:15_000])


def test_what_waits_of_a_connection_that_is_forgotten_is_not_sent(stack: ExitStack) -> None:
    pair = Pair(stack, spec=LIMITED)
    open_flow(pair)
    left = fill(pair, TOS)
    left.send(left.segment(60_100, ACK, ack=500), b"plain")
    for key, _ in left.node.flows.items():
        left.node.flows._forget(key)
    now = 0.0
    for _ in range(100):
        now += 0.001
        pair.pump(now)
    *some, last = [payload for _, _, payload in pair.right.received()]
    assert rounded(WORDS[:15_000]).startswith(b"".join(some))
    assert len(b"".join(some)) < 60_000
    assert last == b"plain"


def test_an_adaptive_codec_is_asked_for_every_segment_and_measured(stack: ExitStack) -> None:
    pair = WiredPair(stack, codec="auto:bounded:10")
    open_flow(pair)
    pair.count_calls("on_encodes", "on_encoded")
    for number in range(3):
        pair.left.send(pair.left.segment(100 + 40_000 * number, ACK, ack=500, tos=TOS), DATA[:40_000])
        pair.pump()
    flow = pair.left.node.flows.items()[0][1]
    assert flow.adaptive is not None
    flow.adaptive.raw = True
    pair.left.send(pair.left.segment(120_100, ACK, ack=500, tos=TOS), DATA[:40_000])
    pair.pump()
    got = b"".join(payload for _, _, payload in pair.right.received())
    assert got == rounded(WORDS[:10_000]) * 4
    assert pair.asked["on_encodes"] == pair.asked["on_encoded"] >= 4
    counters = pair.counters()[0]
    assert counters["tx_auto_compressed_bytes"] == 120_000
    assert counters["tx_auto_raw_bytes"] == 40_000


def came(pair: Pair, seq: int, payload: bytes, *, options: bytes = b"", tos: int = TOS) -> bytes:
    """A frame of the right kernel to the left one; `options` are IPv4's."""
    right, left = pair.right, pair.left
    header = bytearray(pack_headers(right.segment(seq, ACK, ack=100, tos=tos), left.mac, right.mac, 1))
    frame = header[:34] + options + header[34:] + payload
    ip = memoryview(frame)[14 : 34 + len(options)]
    frame[14] = 0x45 + len(options) // 4
    frame[16:18] = (len(frame) - 14).to_bytes(2, "big")
    ip[10:12] = checksum(bytes(ip)).to_bytes(2, "big")
    segment = bytes(frame[34 + len(options) :])
    pseudo = bytes(frame[26:34]) + b"\0\6" + len(segment).to_bytes(2, "big")
    at = 34 + len(options) + 16
    frame[at : at + 2] = checksum(pseudo + segment).to_bytes(2, "big")
    return bytes(frame)


def arrive(pair: Pair, *frames: bytes) -> list[tuple[int, int, bytes]]:
    """Have frames arrive at the left NIC. Return the segments that its kernel gets."""
    pair.right.node.link.send(Frames.of(frames), 0.0)
    pair.pump()
    return pair.left.received()


def test_of_a_run_with_a_malformed_payload_the_others_are_passed_up(stack: ExitStack) -> None:
    pair = Pair(stack)
    open_flow(pair)
    raw = struct.pack("!BBbBII", lib.SN_PAYLOAD_VERSION << 4 | lib.SN_FLAG_RAW, 0, 0, 0, 64, 64) + DATA[:64]
    assert arrive(pair, came(pair, 500, raw)) == [(500, ACK, DATA[:64])]
    broken = b"\x77" + raw[1:]
    frames = came(pair, 564, raw), came(pair, 628, broken), came(pair, 628 + len(broken), raw)
    assert arrive(pair, *frames) == [(564, ACK, DATA[:64]), (628 + len(broken), ACK, DATA[:64])]
    counters = pair.left.node.counters()
    assert counters["rx_drop_offload"] == 1
    assert counters["rx_offload_frames"] == 3


def test_tagged_bytes_of_a_peer_without_codecs_are_passed_up_as_they_are(stack: ExitStack) -> None:
    pair = Pair(stack)
    open_flow(pair)
    [(_, flow)] = pair.left.node.flows.items()
    flow.codecs = None
    assert arrive(pair, came(pair, 500, DATA[:64]), came(pair, 564, DATA[64:128])) == [
        (500, ACK, DATA[:64]),
        (564, ACK, DATA[64:128]),
    ]
    pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA[:1000])
    pair.pump()
    assert pair.left.node.counters()["tx_offload_frames"] == 0


def test_ipv4_options_are_passed_up_unless_the_bytes_are_tagged(stack: ExitStack) -> None:
    pair = Pair(stack)
    open_flow(pair)
    plain = came(pair, 500, b"plain", options=b"\1\1\1\1", tos=0)
    pair.right.node.link.send(Frames.of([plain, came(pair, 500, DATA[:64], options=b"\1\1\1\1")]), 0.0)
    pair.pump()
    assert pair.left.packets() == [plain]
    assert pair.left.node.counters()["rx_drop_header"] == 1


def test_flows_in_time_wait_are_removed_in_time(stack: ExitStack) -> None:
    pair = Pair(stack)
    flows = pair.left.node.flows
    left = pair.left
    for port in range(300):
        opening = left.segment(99, SYN, options=Options(mss=1460))
        opening.sport = 1000 + port
        left.send(opening)
        ending = left.segment(100, RST)
        ending.sport = 1000 + port
        left.send(ending)
        if port % 50 == 49:
            pair.pump(10.0)
    assert len(flows) == 300
    assert left.node.nic.turn.requests_at == pytest.approx(10.0 + TIME_WAIT_S)
    pair.pump(10.0 + TIME_WAIT_S)
    assert len(flows) == 0
