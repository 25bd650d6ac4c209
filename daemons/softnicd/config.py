"""Configuration of a NIC: a TOML file, flags, or both; flags override the file.

Both are merged into one table that is checked once, so a key means the same in either. An error is one line that names
the key, and the file if the value comes from there.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from softnic import codecs, underlay
from softnic.arguments import ShowVersion
from softnic.ipc.control import QUEUES, queues_for
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.reach.numbers import MOST_NUMBER, number_of, overlay_ip
from softnic.link.reach.token import Token, TokenError, is_token, read_token
from softnic.link.secure.identity import NodeIdentity, parse_publics, read_identity
from softnic.link.secure.keys import HOW_TO, is_key, read_key
from softnic.nic.nic import Mode
from softnic.nic.offload import OffloadTable
from softnic.packet import ipv4
from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.config import TcpConfig
from softnic.underlay import Address
from softnic.units import time_s

DEFAULT_PORT = 4789
"""VXLAN's (RFC 7348)."""
MIN_PEER_TIMEOUT_S = 1.0
"""A peer is probed after a second of silence (softnic/tcp/liveness.py)."""
MIN_WATCHDOG_S = 2.0
"""Four heartbeats."""
TOKEN_VARIABLE = "SOFTNIC_TOKEN"
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
    """The configuration cannot be used. The text is one line; `key` is the key concerned."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}" if key else text)
        self.key = key


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration as users write it; properties convert it. Raises ConfigError."""

    ip: str
    control: str
    """Path of the control socket."""
    wire: str = f"[::]:{DEFAULT_PORT}"
    """UDP address of the NIC. [::] is every address of the host, of IPv6 and IPv4; an address is that one alone, and of
    its family."""
    name: str = ""
    """Name that the commands show; empty: the IP."""
    vni: Annotated[int, Meta(ge=0, le=0xFFFFFF)] = 1
    mtu: Annotated[int, Meta(ge=576, le=9000)] = 1500
    """Bytes of IPv4 in a frame."""
    mode: Mode = "fill"
    congestion: str = TcpConfig().congestion
    """Congestion control algorithm of streams that do not set TCP_CONGESTION."""
    poll: str = ""
    """After a turn the NIC polls its sockets for this time before it sleeps, which shortens round trips on hosts with a
    core to spare; empty: it sleeps at once."""
    queues: int | str = 1
    """Queues, each with a thread of its own, for hosts with cores to spare: 1, 2, 3, 4, 6, 8; `auto`: one for every two
    cores. A stream is on one of them. A NIC of a kernel has one."""
    seed: int | None = None
    """Seed of all random numbers, for runs that repeat; None: the operating system's. Initial sequence numbers and SYN
    cookies can be computed from the seed: use it in tests only."""
    key: str = ""
    """Pre-shared key of the network, which encrypts every frame: 64 hexadecimal digits, or the file that contains them.
    Empty: frames are plain VXLAN, which anybody on the path can read and forge."""
    identity: str = ""
    """File of the private key of this node (`softnic key new`), which peers know it by. Empty: it has none."""
    peer_keys: dict[str, str | list[str]] = {}
    """Public keys of the other nodes: one, or two while one is replaced, the newest first."""
    revoked: list[str] = []
    """Public keys that are used no more."""
    require_identity: bool = False
    """Exchange frames only with peers whose public keys are known, whatever else has the network's key."""
    meet: str = ""
    """Token of the job whose nodes become peers, or the file that contains it (`softnic meet token`). Needs an
    identity; without one the NIC makes a key for this run. Empty: peers are configured."""
    reachable_at: list[str] = []
    """Further addresses at which the nodes of that job reach this one, HOST:PORT: as of a port that is forwarded."""
    relay: bool = False
    """Relay between nodes of that job that do not reach each other, if they reach this one: on the UDP ports that
    `softnic meet` has by default, or others if these are taken."""
    tap: Annotated[str, Meta(max_length=15, pattern="^[^/\\s]*$")] = ""
    """TAP device of the kernel that this NIC serves; empty: applications open sockets on the NIC itself."""
    namespace: Annotated[int, Meta(ge=0)] = 0
    """Process whose network namespace gets the device; 0: this process."""
    prefix: Annotated[int, Meta(ge=1, le=30)] = 24
    """Length of the network prefix of the device's address."""
    peer_timeout: str = "4s"
    """A peer that is silent, or an application that is stopped, for this time is lost; `off`: never."""
    watchdog: str = ""
    """The stall watchdog ends the NIC when its event loop has hung for this time; `off`: never; empty: `peer_timeout`,
    and at least 2 s."""
    peers: dict[str, str] = {}
    """The other nodes, and the UDP addresses of their NICs: HOST:PORT, with an IPv6 address in brackets."""
    hosts: dict[str, str] = {}
    """Names of nodes, for applications' name resolution, to IP."""
    offloads: dict[str, str] = msgspec.field(default_factory=lambda: {"0x28": "bounded:10"})
    """Codecs by tag (ToS), for streams whose program names none."""
    emulation: dict[str, str] = {}
    metrics: str = ""
    """HOST:PORT at which metrics are served over HTTP; empty: nowhere."""
    log_format: Literal["text", "json", "journald"] = "text"
    """Lines of text or of JSON on standard error, or entries of systemd's journal with fields."""

    def __post_init__(self) -> None:
        for key in (
            "address",
            "wire_address",
            "metrics_address",
            "network_key",
            "node_identity",
            "token",
            "further_addresses",
            "public_keys",
            "revoked_keys",
            "peer_addresses",
            "names",
            "offload_table",
            "emulation_spec",
            "peer_timeout_s",
            "watchdog_s",
            "poll_s",
            "queue_count",
        ):
            getattr(self, key)
        if self.congestion not in ALGORITHMS:
            raise ConfigError("congestion", f"{self.congestion!r} is not one of {', '.join(ALGORITHMS)}")
        if self.namespace and not self.tap:
            raise ConfigError("namespace", "it says where the TAP device is created, but tap is not set")
        if self.relay and not self.meet:
            raise ConfigError("relay", "it is for the nodes of a job, but meet is not set")
        if not self.control or len(self.control.encode()) > 107:  # sun_path, unix(7)
            raise ConfigError("control", f"{self.control!r} is not a path of 1 to 107 bytes")

    @property
    def address(self) -> int:
        return _ip("ip", self.ip)

    @property
    def label(self) -> str:
        return self.name or self.ip

    @property
    def wire_address(self) -> Address:
        return _endpoint("wire", self.wire)

    @property
    def metrics_address(self) -> Address | None:
        return _endpoint("metrics", self.metrics) if self.metrics else None

    @property
    def network_key(self) -> bytes | None:
        """The key of the network, or what all nodes of the job have."""
        try:
            if self.key:
                return read_key(self.key)
        except ValueError as error:
            raise ConfigError("key", str(error)) from None
        token = self.token
        return None if token is None else token.derive(b"frames")

    @property
    def token(self) -> Token | None:
        """The token of the job whose nodes become peers."""
        try:
            found = read_token(self.meet) if self.meet else None
        except TokenError as error:
            raise ConfigError("meet", str(error)) from None
        if found is not None and not 0 <= number_of(self.ip) <= MOST_NUMBER:
            raise ConfigError("ip", f"{self.ip} is no address of a job's node: these are {overlay_ip(0)} and on")
        return found

    @property
    def node_identity(self) -> NodeIdentity | None:
        """The private keys, as the file has them now."""
        try:
            return read_identity(self.identity) if self.identity else None
        except ValueError as error:
            raise ConfigError("identity", str(error)) from None

    @property
    def further_addresses(self) -> list[Address]:
        """Those of `reachable_at`."""
        found = [_endpoint("reachable_at", each) for each in self.reachable_at]
        if found and not self.meet:
            raise ConfigError("reachable_at", "it is for the nodes of a job, but meet is not set")
        return found

    @property
    def is_sealed(self) -> bool:
        """Whether frames are encrypted."""
        return bool(self.key or self.identity or self.meet)

    @property
    def public_keys(self) -> dict[int, tuple[bytes, ...]]:
        """The public keys of peers, the newest first."""
        for key in ("peer_keys", "require_identity"):
            if getattr(self, key) and not self.identity:
                raise ConfigError(key, "identity is not set: a node has a key before it knows others by theirs")
        keys = {}
        for ip, texts in self.peer_keys.items():
            given = texts.split(",") if isinstance(texts, str) else texts
            keys[_ip("peer_keys", ip)] = _publics("peer_keys", given, f"{ip}: ")
        return keys

    @property
    def revoked_keys(self) -> frozenset[bytes]:
        return frozenset(key for text in self.revoked for key in _publics("revoked", [text]))

    @property
    def peer_addresses(self) -> dict[int, Address]:
        peers = {_ip("peers", ip): _endpoint("peers", endpoint, f"{ip}: ") for ip, endpoint in self.peers.items()}
        if self.address in peers:
            raise ConfigError("peers", f"{self.ip} is this node")
        return peers

    @property
    def names(self) -> dict[str, str]:
        """The addresses of nodes by name, this one's included."""
        own = {self.name: self.ip} if self.name else {}
        return own | {name: ipv4.text(_ip("hosts", ip)) for name, ip in self.hosts.items()}

    @property
    def peer_timeout_s(self) -> float | None:
        return _bound_s("peer_timeout", self.peer_timeout, MIN_PEER_TIMEOUT_S)

    @property
    def watchdog_s(self) -> float | None:
        if not self.watchdog:
            return None if self.peer_timeout_s is None else max(self.peer_timeout_s, MIN_WATCHDOG_S)
        return _bound_s("watchdog", self.watchdog, MIN_WATCHDOG_S)

    @property
    def offload_table(self) -> dict[int, str]:
        table = {}
        for text, codec in self.offloads.items():
            try:
                table[int(text, 0)] = str(codecs.get(codec))
            except ValueError as error:
                raise ConfigError("offloads", f"{text} = {codec!r}: {error}") from None
        if len(table) < len(self.offloads):
            raise ConfigError("offloads", "a ToS is listed twice")
        try:
            return OffloadTable(table).codecs
        except ValueError as error:
            raise ConfigError("offloads", str(error)) from None

    @property
    def poll_s(self) -> float:
        return (_bound_s("poll", self.poll, 0.0) or 0.0) if self.poll else 0.0

    @property
    def queue_count(self) -> int:
        if self.queues == "auto":  # the programs that use it, and the kernel, have the other half
            return queues_for(len(os.sched_getaffinity(0)) // 2)
        if str(self.queues) not in map(str, QUEUES):
            raise ConfigError("queues", f"{self.queues} is not one of {', '.join(map(str, QUEUES))}, auto")
        return int(self.queues)

    @property
    def emulation_spec(self) -> EmulationSpec | None:
        try:
            return EmulationSpec.parse(self.emulation) if self.emulation else None
        except ValueError as error:
            raise ConfigError("emulation", str(error)) from None


def _ip(key: str, text: str) -> int:
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise ConfigError(key, f"{text!r} is not an IPv4 address") from None


def _publics(key: str, texts: list[str], prefix: str = "") -> tuple[bytes, ...]:
    try:
        return parse_publics(texts)
    except ValueError as error:
        raise ConfigError(key, f"{prefix}{error}") from None


def _endpoint(key: str, text: str, prefix: str = "") -> Address:
    try:
        return underlay.parse(text)
    except ValueError as error:
        raise ConfigError(key, f"{prefix}{error}") from None


def _bound_s(key: str, text: str, minimum_s: float) -> float | None:
    """Seconds of a time limit; None for `off`. Raises ConfigError."""
    if text == "off":
        return None
    try:
        seconds = time_s(text)
    except ValueError as error:
        raise ConfigError(key, f"{error} (or off)") from None
    if seconds < minimum_s:
        raise ConfigError(key, f"{text} is less than {minimum_s:g} s")
    return seconds


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} has no '='")
    return key, value


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        "softnicd",
        description="Runs one compressing NIC. Applications use its control socket; it exchanges frames with "
        "its peers over UDP.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flags.add_argument("--config", metavar="FILE", type=Path, help="TOML file; flags override its values")
    _add_nic_flags(flags)
    link = flags.add_argument_group("link emulation, for outgoing frames")
    for key in EMULATION:
        link.add_argument(f"--{key}", metavar=_EXAMPLE_VALUES.get(key, "0.1%"))
    tap = flags.add_argument_group("NIC of a kernel, whose sockets its applications use")
    tap.add_argument("--tap", metavar="NAME", help="create this TAP device with the node's address, and serve it")
    tap.add_argument("--namespace", type=int, metavar="PID", help="create it in this process's network namespace")
    tap.add_argument("--prefix", type=int, metavar="BITS", help="length of the address's network prefix (24)")
    text = "serve metrics for Prometheus over HTTP here, as in 127.0.0.1:9469"
    flags.add_argument("--metrics", metavar="HOST:PORT", help=text)
    text = "text, json (one object a line) or journald (entries with fields) (text)"
    flags.add_argument("--log-format", metavar="FORMAT", help=text)
    flags.add_argument("--ready-fd", type=int, metavar="N", help="file descriptor to write a byte to when ready")
    flags.add_argument("--verbose", action="store_true", help="log every stream")
    flags.add_argument("--version", action=ShowVersion)
    return flags


def _add_nic_flags(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--ip", help="the node's address")
    flags.add_argument("--control", metavar="PATH", help="control socket")
    flags.add_argument(
        "--wire", metavar="HOST:PORT", help=f"UDP address for frames ([::]:{DEFAULT_PORT}, IPv6 and IPv4)"
    )
    flags.add_argument("--key", metavar="FILE", help=f"encrypt all frames with the key in FILE; to make one: {HOW_TO}")
    text = "file of this node's private key, by which peers know it; softnic key new FILE makes one"
    flags.add_argument("--identity", metavar="FILE", help=text)
    text = "public key of another node, or two while one is replaced; may be repeated"
    flags.add_argument("--peer-key", action="append", type=_pair, metavar="IP=KEY[,KEY]", dest="peer_keys", help=text)
    text = "public key that is used no more; may be repeated"
    flags.add_argument("--revoked", action="append", metavar="KEY", help=text)
    text = "exchange frames only with peers whose public keys are known"
    flags.add_argument("--require-identity", action="store_const", const=True, help=text)
    text = f"file with the token of a job, whose nodes become peers; without FILE the variable {TOKEN_VARIABLE} has it"
    flags.add_argument("--meet", nargs="?", const="", metavar="FILE", help=text)
    text = "further address at which nodes of the job reach this one, as of a forwarded port; may be repeated"
    flags.add_argument("--reachable-at", action="append", metavar="HOST:PORT", help=text)
    text = "relay between nodes of the job that do not reach each other"
    flags.add_argument("--relay", action="store_const", const=True, help=text)
    flags.add_argument("--name", help="name that the commands show (the address)")
    flags.add_argument("--vni", type=int, help="VXLAN network identifier (1)")
    flags.add_argument("--mtu", type=int, metavar="BYTES", help="bytes of IPv4 in a frame (1500)")
    flags.add_argument("--mode", help="fill: compress, then cut; packet: cut, then compress (fill)")
    flags.add_argument("--congestion", metavar="NAME", help=f"{', '.join(ALGORITHMS)} ({TcpConfig().congestion})")
    text = "declare a peer or a stopped application lost after this time; off: never (4s)"
    flags.add_argument("--peer-timeout", metavar="TIME", help=text)
    flags.add_argument("--patience", metavar="TIME", dest="peer_timeout", help=argparse.SUPPRESS)
    text = "end this NIC if its event loop hangs for this time; off: never (the peer timeout)"
    flags.add_argument("--watchdog", metavar="TIME", help=text)
    text = "poll for this time after each turn before sleeping, while a core is free: quicker answers (off)"
    flags.add_argument("--poll", metavar="TIME", help=text)
    text = "1, 2, 3, 4, 6 or 8 queues, with a thread each, if the host has spare cores; auto: one for every two (1)"
    flags.add_argument("--queues", metavar="N", help=text)
    text = "seed of all random numbers, for tests: others can predict them (the system's generator)"
    flags.add_argument("--seed", type=int, help=text)
    text = "another node, and the UDP address of its NIC; may be repeated"
    flags.add_argument("--peer", action="append", type=_pair, metavar="IP=HOST:PORT", dest="peers", help=text)
    text = "name of a node, for applications that resolve names; may be repeated"
    flags.add_argument("--host", action="append", type=_pair, metavar="NAME=IP", dest="hosts", help=text)
    text = "codec of a tag; may be repeated (0x28=bounded:10)"
    flags.add_argument("--offload", action="append", type=_pair, metavar="TOS=CODEC", dest="offloads", help=text)


def load(arguments: argparse.Namespace) -> Config:
    """The configuration of a file and flags. Raises ConfigError."""
    file: Path | None = arguments.config
    table = {} if file is None else _read(file)
    _check_secrecy(arguments, table)
    from_file = set(table)
    for key in _FIELDS.keys() - _TABLES:
        if (value := getattr(arguments, key)) is not None:
            table[key] = value
            from_file.discard(key)
    if arguments.meet == "":
        table["meet"] = os.environ[TOKEN_VARIABLE].strip()
    emulation = [(key, value) for key in EMULATION if (value := getattr(arguments, key)) is not None]
    tables = {
        "peers": arguments.peers,
        "peer_keys": arguments.peer_keys,
        "hosts": arguments.hosts,
        "offloads": arguments.offloads,
        "emulation": emulation,
    }
    for key, given in tables.items():
        if given and isinstance(table.get(key, {}), dict):
            table[key] = {**table.get(key, {}), **dict(given)}
    try:
        return _config(table)
    except ConfigError as error:
        if error.key not in from_file:
            raise
        raise ConfigError(str(file), str(error)) from None


def _read(file: Path) -> dict[str, Any]:
    """The table of a TOML file. Raises ConfigError."""
    try:
        table = tomllib.loads(file.read_text())
    except RecursionError:
        raise ConfigError(str(file), "values are nested too deeply") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(file), getattr(error, "strerror", None) or str(error)) from None
    for old, new in _OLD_KEYS.items():
        if old in table and new in table:
            raise ConfigError(str(file), f"{old} is the old name of {new}: remove it")
        if old in table:
            table[new] = table.pop(old)
    return table


def _check_secrecy(arguments: argparse.Namespace, from_file: dict[str, Any]) -> None:
    """Raises ConfigError where users other than the owner can read a key or a token."""
    if arguments.key is not None and is_key(arguments.key):
        raise ConfigError("key", "every user can read a command line: put the key into a file and pass that to --key")
    if arguments.meet == "" and not os.environ.get(TOKEN_VARIABLE, "").strip():
        raise ConfigError("meet", f"{TOKEN_VARIABLE} is not set: set it to a token, or pass --meet FILE")
    if arguments.meet is not None and is_token(arguments.meet):
        text = "every user can read a command line: put the token into a file and pass that to --meet"
        raise ConfigError("meet", text)
    if arguments.config is None:
        return
    for key, is_secret in (("key", is_key), ("meet", is_token)):
        if is_secret(str(from_file.get(key, ""))) and arguments.config.stat().st_mode & 0o077:
            raise ConfigError(str(arguments.config), f"{key}: other users may read this file: chmod 600 it")


def _config(table: dict[str, Any]) -> Config:
    """Converts each value by itself, so that each error has its key. Raises ConfigError."""
    for key in table:
        if key not in _FIELDS:
            raise ConfigError(key, f"there is no such key; the keys are {', '.join(_FIELDS)}")
    for key, field in _FIELDS.items():
        if field.required and key not in table:
            raise ConfigError(key, f"it is not set: add it to the configuration or pass --{key}")
    return Config(**{key: _converted(key, _FIELDS[key].type, value) for key, value in table.items()})


def _converted(key: str, kind: Any, value: object) -> Any:
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ConfigError(key, f"{value!r} is not one of {', '.join(get_args(kind))}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error).partition(" - at ")[0].replace("`", "")
        raise ConfigError(key, text[:1].lower() + text[1:]) from None


_FIELDS = {field.name: field for field in msgspec.structs.fields(Config)}
_TABLES = frozenset({"peers", "peer_keys", "hosts", "offloads", "emulation"})
_OLD_KEYS = {"patience": "peer_timeout"}
"""Keys that were renamed: the old name is accepted for one release."""
_EXAMPLE_VALUES = {"rate": "1gbit", "delay": "50us", "jitter": "50us", "limit": "1mb"}
