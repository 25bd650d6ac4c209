"""What every daemon has, whoever its host is: a wire, perhaps made worse by emulation, and an answer to who it is."""

from __future__ import annotations

import os
import random
import time
from typing import Protocol

from softnic import codecs
from softnic.ipc import control
from softnic.link.base import Link
from softnic.link.emulation import EmulatedLink
from softnic.link.rate_limited_log import Log
from softnic.link.udp import EncryptionSettings, VxlanLink
from softnic.nic.nic import Nic
from softnic.packet.ethernet import mac_of
from softnicd.config import Config

FAREWELL_S = 0.3
"""For the last frames to leave a slow link when the NIC stops."""


class Pumped(Protocol):
    """A link, or a node with one: `Link` has what these mean."""

    def advance(self, now: float) -> None: ...

    def next_time(self) -> float | None: ...


def open_wire(config: Config, log: Log) -> VxlanLink:
    """`log` takes what the wire has to tell people: strangers, other keys. Raises OSError."""
    key = config.network_key
    return VxlanLink(
        config.wire_address,
        {mac_of(ip): address for ip, address in config.peer_addresses.items()},
        vni=config.vni,
        mtu=config.mtu,
        encryption=None if key is None else EncryptionSettings(key, mac_of(config.address)),
        log=log,
    )


def randomness(seed: int | None) -> random.Random:
    """Where a NIC's random numbers come from: the operating system, or a generator that repeats itself from a seed.

    Initial sequence numbers and SYN cookies are keyed from here, and local port numbers, which peers see, are drawn
    from here. A generator that keeps a state can be reconstructed from its visible output, and so can the keys.
    """
    return random.SystemRandom() if seed is None else random.Random(seed)


def emulated(config: Config, wire: VxlanLink, rng: random.Random) -> Link:
    """The wire as the configuration wants it."""
    spec = config.emulation_spec
    return wire if spec is None else EmulatedLink(wire, spec, seed=rng.getrandbits(64))


def farewell(pumped: Pumped) -> None:
    """Waits for frames that are still held back, FAREWELL_S at most."""
    until = time.monotonic() + FAREWELL_S
    while (due := pumped.next_time()) is not None and due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        pumped.advance(time.monotonic())


def info_of(config: Config, nic: Nic, wire: VxlanLink, unacknowledged: int = 0) -> control.NicInfo:
    emulation = config.emulation_spec
    return control.NicInfo(
        control.VERSION,
        config.label,
        config.ip,
        nic.mac.hex(":"),
        config.mtu,
        nic.mode,
        {f"{tos:#04x}": codec for tos, codec in nic.offloads.codecs.items()},
        [number for number in range(16) if codecs.BUILT_IN >> number & 1],
        os.getpid(),
        None if emulation is None else emulation.rate_bps,
        wire.address,
        unacknowledged,
        config.congestion,
    )
