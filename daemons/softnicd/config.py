"""What a NIC is told at its start: one TOML file, or flags, or a file with flags over it.

Both become one table that is checked once, so a key means the same wherever it stands. Every error is one line that
names the key.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import ipaddress
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from softnic import codecs
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.secure.keys import HOW_TO, is_key, read_key
from softnic.nic.offload import OffloadTable
from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.config import TcpConfig
from softnic.units import time_s

DEFAULT_PORT = 4789
"""VXLAN's (RFC 7348)."""
LEAST_PATIENCE_S = 1.0
"""A peer is asked after a second of silence (softnic/tcp/liveness.py)."""
LEAST_WATCHDOG_S = 2.0
"""Four heartbeats."""
Mode = Literal["fill", "packet"]
EMULATION = ("rate", "delay", "jitter", "loss", "duplicate", "reorder", "corrupt", "limit")

EXAMPLE = """\
example:
  softnicd --ip 10.77.0.1 --control /tmp/node0.sock --wire 192.0.2.10:4789 --peer 10.77.0.2=192.0.2.11:4789
  softnicd --tap softnic0 --ip 10.77.0.1 --control /tmp/node0.sock --peer 10.77.0.2=192.0.2.11:4789
  softnicd --config node0.toml

  # node0.toml
  name = "node0"
  ip = "10.77.0.1"
  control = "/run/user/1000/node0.sock"
  wire = "192.0.2.10:4789"
  key = "/etc/softnic.key"
  [peers]
  "10.77.0.2" = "192.0.2.11:4789"
  [offloads]
  "0x28" = "bounded:10"
  [emulation]
  rate = "1gbit"
  delay = "50us"
"""


class ConfigError(ValueError):
    """The configuration cannot be used; one line says which key and why."""


def _bound_s(key: str, text: str, least_s: float) -> float | None:
    """Seconds of a bound that can be `off` (None). Raises ValueError, which names the key, for other text or less."""
    if text == "off":
        return None
    try:
        seconds = time_s(text)
    except ValueError as error:
        raise ValueError(f"{key}: {error} (or off)") from None
    if seconds < least_s:
        raise ValueError(f"{key}: {text} is less than {least_s:g} s")
    return seconds


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts as people write them; the properties give them as the rooms below want them."""

    ip: str
    control: str
    """Path of the control socket."""
    wire: str = f"0.0.0.0:{DEFAULT_PORT}"
    name: str = ""
    """Empty: the IP."""
    vni: Annotated[int, Meta(ge=0, le=0xFFFFFF)] = 1
    mtu: Annotated[int, Meta(ge=576, le=9000)] = 1500
    """Bytes of IPv4 in a frame."""
    mode: Mode = "fill"
    congestion: str = TcpConfig().congestion
    """The congestion control algorithm of streams that choose none by TCP_CONGESTION."""
    seed: int | None = None
    """Of all random numbers, so that a run repeats; None: the operating system's. Whoever knows the seed can compute
    initial sequence numbers and SYN cookies: for tests only."""
    key: str = ""
    """Of the whole network, whose frames are sealed with it: 64 hexadecimal digits, or the file that holds them. Empty:
    frames are VXLAN, as anybody on their way can read and make them."""
    tap: Annotated[str, Meta(max_length=15, pattern="^[^/\\s]*$")] = ""
    """Name of the TAP device of the kernel whose NIC this is; empty: programs open sockets on the NIC itself."""
    namespace: Annotated[int, Meta(ge=0)] = 0
    """A process in whose network namespace the device is; 0: in this one."""
    prefix: Annotated[int, Meta(ge=1, le=30)] = 24
    """Bits of the node's address that its network has in common, for the device."""
    patience: str = "4s"
    """A peer that is silent, or a program that is stopped, for so long is lost; `off`: never."""
    watchdog: str = ""
    """The guard ends the NIC when its event loop has hung for this time (guard.py); `off`: never; empty: `patience`,
    and at least LEAST_WATCHDOG_S."""
    peers: dict[str, str] = {}
    """Node IP to HOST:PORT."""
    offloads: dict[str, str] = msgspec.field(default_factory=lambda: {"0x28": "inceptionn:10"})
    """ToS to codec."""
    emulation: dict[str, str] = {}

    def __post_init__(self) -> None:
        for key in (
            "address",
            "wire_address",
            "network_key",
            "peer_addresses",
            "offload_table",
            "emulation_spec",
            "patience_s",
            "watchdog_s",
        ):
            getattr(self, key)
        if self.congestion not in ALGORITHMS:
            raise ValueError(f"congestion: {self.congestion!r} is no algorithm: {', '.join(ALGORITHMS)} are")
        if self.namespace and not self.tap:
            raise ValueError("namespace: says where a TAP device is made, and there is none: tap is not set")
        if not self.control or len(self.control.encode()) > 107:  # sun_path, unix(7)
            raise ValueError(f"control: {self.control!r} is no path of 1 to 107 bytes")

    @property
    def address(self) -> int:
        return _ip("ip", self.ip)

    @property
    def label(self) -> str:
        return self.name or self.ip

    @property
    def wire_address(self) -> tuple[str, int]:
        return _endpoint("wire", self.wire)

    @property
    def network_key(self) -> bytes | None:
        try:
            return read_key(self.key) if self.key else None
        except ValueError as error:
            raise ValueError(f"key: {error}") from None

    @property
    def peer_addresses(self) -> dict[int, tuple[str, int]]:
        peers = {_ip("peers", ip): _endpoint(f"peers: {ip}", where) for ip, where in self.peers.items()}
        if self.address in peers:
            raise ValueError(f"peers: {self.ip} is this node")
        return peers

    @property
    def patience_s(self) -> float | None:
        return _bound_s("patience", self.patience, LEAST_PATIENCE_S)

    @property
    def watchdog_s(self) -> float | None:
        if not self.watchdog:
            return None if self.patience_s is None else max(self.patience_s, LEAST_WATCHDOG_S)
        return _bound_s("watchdog", self.watchdog, LEAST_WATCHDOG_S)

    @property
    def offload_table(self) -> dict[int, str]:
        table = {}
        for text, codec in self.offloads.items():
            try:
                table[int(text, 0)] = str(codecs.get(codec))
            except ValueError as error:
                raise ValueError(f"offloads: {text} = {codec!r}: {error}") from None
        if len(table) < len(self.offloads):
            raise ValueError("offloads: a ToS is there twice")
        try:
            return OffloadTable(table).codecs
        except ValueError as error:
            raise ValueError(f"offloads: {error}") from None

    @property
    def emulation_spec(self) -> EmulationSpec | None:
        try:
            return EmulationSpec.parse(self.emulation) if self.emulation else None
        except ValueError as error:
            raise ValueError(f"emulation: {error}") from None


def _ip(key: str, text: str) -> int:
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"{key}: {text!r} is no IPv4 address") from None


def _endpoint(key: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{key}: {text!r} is not HOST:PORT")
    return host, int(port)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} has no '='")
    return key, value


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        "softnicd",
        description="One compressing NIC: programs' streams at its control socket, frames to and from its peers.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flags.add_argument("--config", metavar="FILE", type=Path, help="TOML file; flags go over what it says")
    flags.add_argument("--ip", help="the node's address")
    flags.add_argument("--control", metavar="PATH", help="control socket")
    flags.add_argument("--wire", metavar="HOST:PORT", help=f"UDP address for frames (0.0.0.0:{DEFAULT_PORT})")
    flags.add_argument("--key", metavar="FILE", help=f"seal all frames with the key in it; make one: {HOW_TO}")
    flags.add_argument("--name", help="shown by the commands (the address)")
    flags.add_argument("--vni", type=int, help="VXLAN network identifier (1)")
    flags.add_argument("--mtu", type=int, metavar="BYTES", help="bytes of IPv4 in a frame (1500)")
    flags.add_argument("--mode", help="fill: compress, then cut; packet: cut, then compress (fill)")
    flags.add_argument("--congestion", metavar="NAME", help=f"{', '.join(ALGORITHMS)} ({TcpConfig().congestion})")
    flags.add_argument("--patience", metavar="TIME", help="lose peers that are silent for so long; off: never (4s)")
    flags.add_argument("--watchdog", metavar="TIME", help="end a NIC that hangs for this time; off: never (patience)")
    flags.add_argument("--seed", type=int, help="repeat all random numbers; others can guess them (the system's)")
    said = "another node, and the UDP address of its NIC; may be repeated"
    flags.add_argument("--peer", action="append", type=_pair, metavar="IP=HOST:PORT", dest="peers", help=said)
    said = "what a tag means; may be repeated (0x28=inceptionn:10)"
    flags.add_argument("--offload", action="append", type=_pair, metavar="TOS=CODEC", dest="offloads", help=said)
    link = flags.add_argument_group("link emulation, on the way out")
    for key in EMULATION:
        link.add_argument(f"--{key}", metavar=["1gbit", "50us", "0.1%", "1mb"][_KIND.get(key, 2)])
    tap = flags.add_argument_group("the NIC of a kernel, whose sockets its programs use")
    tap.add_argument("--tap", metavar="NAME", help="make this TAP device, with the node's address, and be its NIC")
    tap.add_argument("--namespace", type=int, metavar="PID", help="in the network namespace of this process (this one)")
    tap.add_argument("--prefix", type=int, metavar="BITS", help="length of the address's network prefix (24)")
    flags.add_argument("--ready-fd", type=int, metavar="N", help="descriptor to write a byte to when ready")
    flags.add_argument("--verbose", action="store_true", help="log every stream")
    flags.add_argument("--version", action="version", version=f"softnicd {_version()}")
    return flags


def _version() -> str:
    try:
        return importlib.metadata.version("softnic")
    except importlib.metadata.PackageNotFoundError:
        return "(run from its source tree, not installed)"


_KIND = {"rate": 0, "delay": 1, "jitter": 1, "limit": 3}


def _check_secrecy(arguments: argparse.Namespace, table: dict[str, Any]) -> None:
    """A key lies where its owner alone can read it. Raises ConfigError."""
    if arguments.key is not None and is_key(arguments.key):
        raise ConfigError("key: everybody can see a command line: put the key into a file and give that to --key")
    if arguments.config is None or not is_key(str(table.get("key", ""))):
        return
    if arguments.config.stat().st_mode & 0o077:
        raise ConfigError(f"{arguments.config}: key: others than the owner may read this file: chmod 600 it")


def load(arguments: argparse.Namespace) -> Config:
    """The configuration that file and flags say. Raises ConfigError."""
    table: dict[str, Any] = {}
    if arguments.config is not None:
        try:
            table = tomllib.loads(arguments.config.read_text())
        except RecursionError:
            raise ConfigError(f"{arguments.config}: values are nested too deeply") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{arguments.config}: {getattr(error, 'strerror', None) or error}") from None
    _check_secrecy(arguments, table)
    in_file = set(table)
    own = ("ip", "control", "wire", "key", "name", "vni", "mtu", "mode", "congestion", "seed", "patience", "watchdog")
    for key in (*own, "tap", "namespace", "prefix"):
        if getattr(arguments, key) is not None:
            table[key] = getattr(arguments, key)
            in_file.discard(key)
    emulation = [(key, getattr(arguments, key)) for key in EMULATION if getattr(arguments, key) is not None]
    pairs: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
        ("peers", arguments.peers or ()),
        ("offloads", arguments.offloads or ()),
        ("emulation", emulation),
    )
    for key, given in pairs:
        if given:
            over = table.get(key, {})
            table[key] = {**over, **dict(given)} if isinstance(over, dict) else over
    try:
        return msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        key, text = _said(" ".join(str(error).split()))
        where = f"{arguments.config}: " if key in in_file else ""
        raise ConfigError(f"{where}{text}") from None


def _said(text: str) -> tuple[str, str]:
    """The key that an error of msgspec's is about, and what there is to say: in our words, the key first."""
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    if missing is not None:
        return missing[1], f"{missing[1]} is not set: put it into the configuration or give --{missing[1]}"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    if unknown is not None:
        return unknown[1], f"{unknown[1]!r} is no key: {', '.join(Config.__struct_fields__)} are"
    wrong = re.fullmatch(r"Invalid enum value (.*) - at `\$\.mode`", text)
    if wrong is not None:
        return "mode", f"mode: {wrong[1]} is none: {', '.join(get_args(Mode))} are"
    placed = re.fullmatch(r"(.*) - at `\$\.(\w+).*`", text)
    if placed is not None:
        return placed[2], f"{placed[2]}: {placed[1][:1].lower()}{placed[1][1:].replace('`', '')}"
    return text.partition(":")[0], text  # one of Config's own
