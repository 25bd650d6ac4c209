"""What a NIC's link and its description are made of: the wire, link emulation, random numbers, NicInfo."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from typing import Protocol

from softnic import codecs
from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.ipc import control
from softnic.link.emulation import EmulatedLink, SharedBottleneck
from softnic.link.rate_limited_log import Log
from softnic.link.secure.channel import EncryptionSettings
from softnic.link.secure.key_ring import KeyRing
from softnic.link.secure.session import ONLY_QUEUE, QueuePlace
from softnic.link.sockets import steer
from softnic.link.udp import VxlanLink
from softnic.nic.nic import Nic
from softnic.packet.ethernet import mac_of
from softnic.underlay import Address
from softnicd.config import Config

DRAIN_S = 0.3
"""Time for the last frames to leave a slow link when the NIC stops."""


class Drainable(Protocol):
    """A link, or a node with one; `Link` describes the methods."""

    def advance(self, now: float) -> None: ...

    def next_time(self) -> float | None: ...


def open_wire(config: Config, log: Log, address: Address | None = None, place: QueuePlace = ONLY_QUEUE) -> VxlanLink:
    """Opens the UDP socket to the peers, at `address` to share it with other queues. `log` takes its lines for the
    event log. Raises OSError."""
    return VxlanLink(
        address or config.wire_address,
        {mac_of(ip): address for ip, address in config.peer_addresses.items()},
        vni=config.vni,
        mtu=config.mtu,
        encryption=_encryption(config, place) if config.is_sealed else None,
        shared=address is not None,
        log=log,
    )


def _encryption(config: Config, place: QueuePlace) -> EncryptionSettings:
    key = config.network_key or b""
    ring = KeyRing(
        key,
        config.node_identity,
        peer_keys={mac_of(ip): keys for ip, keys in config.public_keys.items()},
        revoked=config.revoked_keys,
        require_identity=config.require_identity,
    )
    return EncryptionSettings(key, mac_of(config.address), place=place, ring=ring)


def open_wires(config: Config, log: Log) -> list[VxlanLink]:
    """Opens the socket of each queue: as many as are configured, where the kernel steers datagrams to them, else one.

    Raises OSError.
    """
    alone = open_wire(config, log)  # it finds out whether the port is free, which sockets that share it do not
    if config.queue_count == 1:
        return [alone]
    if config.tap:
        log(f"a NIC with a TAP device has one queue: queues = {config.queues} has no effect")
        return [alone]
    address = alone.address
    alone.close()
    wires: list[VxlanLink] = []
    try:
        places = (QueuePlace(number, config.queue_count) for number in range(config.queue_count))
        wires.extend(open_wire(config, log, address, place) for place in places)
        steer(wires[0].fileno(), len(wires), sealed=config.is_sealed)
    except OSError as error:
        for wire in wires:
            wire.close()
        log(f"this system does not steer datagrams to queues ({error.strerror}): the NIC has one queue")
        return [open_wire(config, log)]
    return wires


@dataclass(frozen=True, slots=True)
class QueueLink:
    """The wire side of a queue: its node's frames pass `whole`, the emulation, if there is one, and the wire."""

    wire: VxlanLink
    emulated: EmulatedLink | None
    whole: CapturedLink
    capture: CaptureHook


def open_links(config: Config, log: Log, rng: random.Random) -> list[QueueLink]:
    """Opens the wire side of each queue. Raises OSError."""
    links = []
    epoch_ns = time.time_ns() - time.monotonic_ns()
    wires = open_wires(config, log)
    shared = SharedBottleneck(len(wires)) if len(wires) > 1 else None
    for wire in wires:
        link, capture = emulated(config, wire, rng, shared), CaptureHook(config.address, epoch_ns)
        links.append(QueueLink(wire, link, CapturedLink(link or wire, capture), capture))
    return links


def random_source(seed: int | None, queue: int = 0) -> random.Random:
    """The source of random numbers of a NIC, or of one of its queues: the operating system, or a generator with a seed.

    Initial sequence numbers and SYN cookies are keyed from it, and local port numbers, which peers see, are drawn from
    it. The state of a generator can be reconstructed from its visible output, and with it the keys.
    """
    if seed is None:
        return random.SystemRandom()
    return random.Random(f"{seed} of queue {queue}" if queue else seed)


def emulated(
    config: Config, wire: VxlanLink, rng: random.Random, shared: SharedBottleneck | None = None
) -> EmulatedLink | None:
    """The configured link emulation in front of the wire; None: there is none."""
    spec = config.emulation_spec
    return None if spec is None else EmulatedLink(wire, spec, seed=rng.getrandbits(64), shared=shared)


def drain(drainable: Drainable) -> None:
    """Waits for frames that are still held back, at most DRAIN_S."""
    until = time.monotonic() + DRAIN_S
    while (due := drainable.next_time()) is not None and due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        drainable.advance(time.monotonic())


def codec_numbers(bitmap: int | None) -> list[int] | None:
    """The codec numbers of a bitmap, as the SYN option carries it (docs/FORMAT.md)."""
    return None if bitmap is None else [number for number in range(16) if bitmap >> number & 1]


def nic_info(
    config: Config, nic: Nic, wire: VxlanLink, unacknowledged: int, metrics: tuple[str, int], queues: int = 1
) -> control.NicInfo:
    """A NIC's description of itself. `unacknowledged` counts connections with unacknowledged data."""
    emulation = config.emulation_spec
    return control.NicInfo(
        control.VERSION,
        config.label,
        config.ip,
        nic.mac.hex(":"),
        config.mtu,
        nic.mode,
        {f"{tos:#04x}": codec for tos, codec in nic.offloads.codecs.items()},
        codec_numbers(codecs.BUILT_IN) or [],
        os.getpid(),
        None if emulation is None else emulation.rate_bps,
        wire.address,
        unacknowledged,
        config.congestion,
        config.tap,
        metrics,
        queues,
    )
