"""What a NIC's link and its description are made of: the wire, link emulation, random numbers, NicInfo."""

from __future__ import annotations

import os
import random
import time
from typing import Protocol

from softnic import codecs
from softnic.ipc import control
from softnic.link.emulation import EmulatedLink
from softnic.link.rate_limited_log import Log
from softnic.link.udp import EncryptionSettings, VxlanLink
from softnic.nic.nic import Nic
from softnic.packet.ethernet import mac_of
from softnicd.config import Config

DRAIN_S = 0.3
"""Time for the last frames to leave a slow link when the NIC stops."""


class Drainable(Protocol):
    """A link, or a node with one; `Link` describes the methods."""

    def advance(self, now: float) -> None: ...

    def next_time(self) -> float | None: ...


def open_wire(config: Config, log: Log) -> VxlanLink:
    """Opens the UDP socket to the peers. `log` takes its lines for the event log. Raises OSError."""
    key = config.network_key
    return VxlanLink(
        config.wire_address,
        {mac_of(ip): address for ip, address in config.peer_addresses.items()},
        vni=config.vni,
        mtu=config.mtu,
        encryption=None if key is None else EncryptionSettings(key, mac_of(config.address)),
        log=log,
    )


def random_source(seed: int | None) -> random.Random:
    """The source of a NIC's random numbers: the operating system, or a generator with a seed.

    Initial sequence numbers and SYN cookies are keyed from it, and local port numbers, which peers see, are drawn from
    it. The state of a generator can be reconstructed from its visible output, and with it the keys.
    """
    return random.SystemRandom() if seed is None else random.Random(seed)


def emulated(config: Config, wire: VxlanLink, rng: random.Random) -> EmulatedLink | None:
    """The configured link emulation in front of the wire; None: there is none."""
    spec = config.emulation_spec
    return None if spec is None else EmulatedLink(wire, spec, seed=rng.getrandbits(64))


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
    config: Config, nic: Nic, wire: VxlanLink, unacknowledged: int, metrics: tuple[str, int]
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
    )
