"""What links cost: frames between two processes over VXLAN/UDP, the rate an emulated wire holds, its cost a frame.

python -m benchmarks.link [--seconds 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import multiprocessing
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks import harness
from softnic.link.base import Link
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.null import NullLink
from softnic.link.secure.channel import EncryptionSettings
from softnic.link.udp import VxlanLink
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.packet.frames import Frames

A, B = bytes.fromhex("02534e000001"), bytes.fromhex("02534e000002")
WINDOW_BYTES = 4 * 2**20
"""Sent and not yet reported by the receiver: TCP's default window."""
REPORT = slice(14, 22)
IDLE_S = 0.5


@dataclass
class Result:
    case: str = column("case")
    frames_per_s: float = column("frames/s", ",.0f")
    gbit_per_s: float = column("Gbit/s")
    """Ethernet bytes, as received."""
    cpu_us_per_frame: float = column("CPU us/frame", ".3f")
    """Of sender and receiver together."""
    lost: int = column("lost")


def batch(count: int, size: int) -> Frames:
    return Frames.of([(B + A + b"\x88\xb5").ljust(size, b"\0")] * count)


def opened(own: bytes, sealed: bool) -> VxlanLink:
    return VxlanLink(("127.0.0.1", 0), encryption=EncryptionSettings(bytes(32), own) if sealed else None)


def receiver(pipe: Connection, sender: tuple[str, int], sealed: bool) -> None:
    """Counts frames and tells the sender over the link how many came, until none comes any more."""
    link = opened(B, sealed)
    link.add_peer(A, sender)
    pipe.send(link.address)
    began = ended = 0.0
    cpu = time.process_time()
    while select.select([link], [], [], IDLE_S if began else 10 * IDLE_S)[0]:
        ended = time.monotonic()
        began = began or ended
        while link.receive(ended) is not None:
            pass
        report = (A + B + b"\x88\xb5" + link.counted.received_frames.to_bytes(8, "big")).ljust(60, b"\0")
        link.send(Frames.of([report]), ended)
    pipe.send((link.counted.received_frames, link.counted.received_bytes, ended - began, time.process_time() - cpu))
    link.close()


def pump(wire: VxlanLink, link: Link, frames: Frames, seconds: float) -> None:
    """Sends as fast as window and room allow, woken by its socket and in time for the link, as the daemon is."""
    size = int(frames.lengths[0])
    end = time.monotonic() + seconds
    sent = reported = 0
    while (now := time.monotonic()) < end:
        link.advance(now)
        while (arrived := link.receive(now)) is not None:
            reported = int.from_bytes(arrived[len(arrived) - 1][REPORT], "big")
        budget = (WINDOW_BYTES // size) - (sent - reported)
        while (count := min(link.tx_space(now) // size, budget, len(frames))) > 0:
            link.send(frames.select(slice(count)), now)
            sent += count
            budget -= count
        due = link.next_time()
        select.select([wire.fileno()], [], [], IDLE_S if due is None else max(0.0, due - time.monotonic()))


def meet(wire: VxlanLink) -> None:
    """Returns when the first frame has left, which takes a session where frames are sealed."""
    wire.send(batch(1, 60), time.monotonic())
    while not wire.counted.sent_frames:
        select.select([wire.fileno()], [], [], 0.01)
        wire.advance(time.monotonic())
        wire.receive(time.monotonic())


def across(
    case: str,
    frames: Frames,
    seconds: float,
    spec: EmulationSpec | None = None,
    *,
    gso: bool = True,
    sealed: bool = False,
) -> Result:
    """One case between this process and another."""
    wire = opened(A, sealed)
    pipe, other_end = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=receiver, args=(other_end, wire.address, sealed), daemon=True)
    process.start()
    wire.add_peer(B, pipe.recv())
    for peer in wire._forwarding.peers:
        peer.gso = gso
    meet(wire)
    cpu = time.process_time()
    link = EmulatedLink(wire, spec, seed=1) if spec else wire
    pump(wire, link, frames, seconds)
    cpu = time.process_time() - cpu
    received, size, took, other_cpu = pipe.recv()
    process.join()
    lost = wire.counted.sent_frames - received
    wire.close()
    return Result(case, received / took, size * 8 / took / 1e9, (cpu + other_cpu) / received * 1e6, lost)


def emulation(case: str, frames: Frames, seconds: float, spec: EmulationSpec) -> Result:
    """The emulation alone, in virtual time at the link's full rate."""
    link = EmulatedLink(NullLink(), spec, seed=1)
    step = frames.nbytes * 8 / (spec.rate_bps or 1e10)
    now = 0.0
    sent = 0
    cpu, began = time.process_time(), time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        for _ in range(100):
            link.send(frames, now)
            now += step
            link.advance(now)
        sent += 100 * len(frames)
    cpu = time.process_time() - cpu
    return Result(case, sent / took, sent / took * int(frames.lengths[0]) * 8 / 1e9, cpu / sent * 1e6, 0)


def cases(seconds: float) -> list[Callable[[], Result]]:
    large, small = batch(170, 1514), batch(64, 66)
    uneven = Frames.of([(B + A + b"\x88\xb5").ljust(1450 + 37 * number % 64, b"\0") for number in range(170)])
    wan = EmulationSpec(rate_bps=10e9, delay_s=50e-6, jitter_s=5e-6, loss=0.03, duplicate=0.01, reorder=0.05)
    return [
        lambda: across("UDP 1514 B, batches of 170", large, seconds),
        lambda: across("UDP 1514 B, batches of 43", batch(43, 1514), seconds),
        lambda: across("UDP 1514 B, no GSO", large, seconds, gso=False),
        lambda: across("UDP 1450-1513 B, all uneven", uneven, seconds),
        lambda: across("UDP 66 B, batches of 64", small, seconds),
        lambda: across("UDP 66 B, one by one", batch(1, 66), seconds),
        lambda: across("UDP 1514 B, batches of 170, sealed", large, seconds, sealed=True),
        lambda: across("UDP 66 B, one by one, sealed", batch(1, 66), seconds, sealed=True),
        lambda: across("UDP, emulated 1 Gbit/s", large, seconds, EmulationSpec(rate_bps=1e9, delay_s=50e-6)),
        lambda: across("UDP, emulated 10 Gbit/s", large, seconds, EmulationSpec(rate_bps=10e9, delay_s=50e-6)),
        lambda: emulation("emulation, rate and delay", large, seconds / 4, EmulationSpec(rate_bps=10e9, delay_s=5e-5)),
        lambda: emulation("emulation, everything", large, seconds / 4, wan),
        lambda: emulation("emulation, frame by frame", batch(1, 66), seconds / 4, EmulationSpec(rate_bps=1e9)),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help="of one case (2)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Result]]:
    rows = as_measured((case() for case in cases(given.seconds)), columns(Result), progress)
    return [
        MeasurementReport(
            "benchmarks.link", "Links, one end or two processes", columns(Result), rows, {"seconds": given.seconds}
        )
    ]


if __name__ == "__main__":
    sys.exit(harness.main("link", __doc__, measured, add_options))
