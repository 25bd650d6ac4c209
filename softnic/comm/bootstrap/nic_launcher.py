"""Starts a NIC on each host whose ranks were given none; all ranks of the host share it.

1. Each rank writes the identity of its host, the address at which other hosts reach it, and the NICs that it still uses
   from earlier communicators. If all ranks have one in common, they use it again.
2. Otherwise the first rank of each host starts a NIC, which ends when that process ends, however it ends. The n-th host
   has the address 10.77.0.(n+1) and a UDP port that the system chooses; the MTU fits the interfaces of all hosts. NICs
   use IPv4 or IPv6 as the hosts have it (ways.py). The
   first ranks exchange their UDP addresses, configure their NICs with them, and only then write the paths of the
   control sockets for the ranks of their hosts: no frame is sent before its receiver accepts it.
3. The other ranks of the host hold a shared lock on a file while they use the NIC. When the first rank exits regularly,
   it waits for the lock, LINGER_S at most.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from softnic import underlay
from softnic.cluster.nic_process import ClusterError, nic_command, node_ip, run_nic
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.comm.bootstrap import host_address, ways
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.bootstrap.ways import Ways
from softnic.comm.errors import CommError
from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.underlay import Address

FLAGS_VARIABLE = "SOFTNIC_NIC_FLAGS"
"""Further flags of softnicd for these NICs: "--rate 1gbit --offload 0x28=bounded:10"."""
LINGER_S = 30.0
_DRAIN_S = 10.0
"""Time limit, at a regular exit, for data on its way to other hosts."""
_POLL_S = 0.01
_LOOPBACK = Ways(("127.0.0.1", 0), ["127.0.0.1"], host_address.MAX_MTU)


class NicUser(Protocol):
    """A user of a NIC: the state of a communicator."""

    @property
    def ended(self) -> bool: ...


class NicReference:
    """A shared NIC, from the view of a process that uses it.

    `name` identifies the NICs that were started together on all hosts, `path` is the control socket. `owner` is set in
    the process that started the NIC, `lock` in the others.
    """

    def __init__(self, name: str, path: str, owner: NicOwner | None = None, lock: BinaryIO | None = None) -> None:
        self.name = name
        self.path = path
        self.reserved = False
        """A communicator that is being set up will use it."""
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        self._owner = owner
        self._lock = lock

    @property
    def in_use(self) -> bool:
        return self.reserved or any(not user.ended for user in self._users)

    @property
    def owned(self) -> bool:
        """True if this process started the NIC."""
        return self._owner is not None

    def use(self, user: NicUser) -> None:
        """Keep the NIC until `user` has ended."""
        self._users.add(user)
        self.reserved = False

    def release(self, wait_s: float) -> bool:
        """Stop using the NIC.

        A NIC of this process is kept while other processes use it, but for `wait_s` at most unless that is 0. Returns
        whether this process has nothing more to do for it.
        """
        self.unlock()
        return self._owner is None or self._owner.end(wait_s)

    def unlock(self) -> None:
        """Release the lock, or close this process's copy of it after a fork."""
        if self._lock is not None:
            self._lock.close()


class NicOwner:
    """Starts a NIC and keeps it while processes of this host use it. Raises OSError and ClusterError."""

    def __init__(self, node: int, wire: Address, flags: Sequence[str]) -> None:
        self.node = node
        self._supervisor = ProcessSupervisor(at_exit=False)  # at exit, communicators still use the NIC to say goodbye
        try:
            directory = self._supervisor.directory
            self.path = directory / f"node{node}.sock"
            log = self.path.with_suffix(".log")
            command = nic_command(self.path, node_ip(node), underlay.text(wire), {})
            name = f"the NIC of this host, {socket.gethostname()},"
            run_nic(self._supervisor, [*command, *flags], log, name)
            self.lock_path = directory / "users"
            self._lock = self.lock_path.open("xb")
            self.client = Client(self.path)
        except BaseException:
            self._supervisor.stop()
            raise

    def end(self, wait_s: float) -> bool:
        """Stop the NIC once no process uses it, or after `wait_s` unless that is 0. Returns whether it was stopped."""
        deadline = time.monotonic() + wait_s
        try:
            while (used := self._is_used()) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if wait_s:
                self._drain(min(wait_s, _DRAIN_S))
            elif used:
                return False
        except BaseException:
            self.stop()
            raise
        self.stop()
        return True

    def _is_used(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def stop(self) -> None:
        """Stop the NIC at once."""
        self.client.close()
        self._lock.close()
        self._supervisor.stop()

    def _drain(self, wait_s: float) -> None:
        """Wait until peers have acknowledged all data of this host."""
        deadline = time.monotonic() + wait_s
        with suppress(OSError):
            while self.client.call(control.QueryNic()).unacknowledged and time.monotonic() < deadline:
                time.sleep(_POLL_S)


_nics: list[NicReference] = []
"""NICs that this process uses or owns."""


def acquire(exchange: StoreExchange, rank: int, size: int, environment: Mapping[str, str]) -> NicReference:
    """Return the NIC of this rank's host, which is reserved for the caller. All ranks call this. Raises CommError."""
    _release_unused()
    in_use = {nic.name: nic for nic in _nics if nic.in_use}
    try:
        wires = host_address.wires(environment)
        own: dict[str, Any] = {"host": host_address.identity(), "wires": wires, "nics": sorted(in_use)}
        flags = shlex.split(environment.get(FLAGS_VARIABLE, ""))
    except (OSError, ValueError) as error:
        exchange.fail(f"host/{rank}", error)
        raise CommError(str(error), rank=rank) from error
    exchange.write(f"host/{rank}", own)
    ranks = [own if other == rank else _read_host(exchange, other) for other in range(size)]
    if given := [other for other in range(size) if ranks[other].get("given")]:
        raise CommError(
            f"rank {given[0]} has a NIC of its own (SOFTNIC_NIC) and rank {rank} has none: set it for all or for none"
        )
    if common := set(in_use).intersection(*(each["nics"] for each in ranks)):
        nic = in_use[max(common)]
        nic.reserved = True
        return nic
    first = {each["host"]: other for other, each in reversed(list(enumerate(ranks)))}
    leader, leaders = first[own["host"]], sorted(first.values())
    if leader != rank:
        nic = _connect(exchange, leader)
    else:
        encrypted = any(flag.partition("=")[0] in ("--key", "--identity") for flag in flags)
        hosts = [ranks[other]["wires"] for other in leaders]
        nic = _start(exchange, rank, leaders, hosts, _NicFlags(flags, encrypted))
    nic.reserved = True  # another thread may release unused NICs
    _nics.append(nic)
    return nic


def mark_given(exchange: StoreExchange, rank: int) -> None:
    """Report that this rank was given a NIC to ranks that were not."""
    exchange.write(f"host/{rank}", {"given": True})


def _read_host(exchange: StoreExchange, rank: int) -> dict[str, Any]:
    value = exchange.read(f"host/{rank}", rank)
    if value.get("given"):
        return value
    value = exchange.read(f"host/{rank}", rank, {"host": str, "wires": list, "nics": list})
    wires = [_wire(each) for each in value["wires"]]
    if not wires or None in wires or len({wire.family for wire in wires if wire is not None}) < len(wires):
        raise CommError(
            f"the store has no valid addresses of the host of rank {rank}: {value['wires']!r:.100}", rank=rank
        )
    return {**value, "wires": wires, "nics": [name for name in value["nics"] if isinstance(name, str)]}


def _wire(value: object) -> host_address.Wire | None:
    """Return an address that a rank has written; None: it is none."""
    match value:
        case [str(host), int(port), int(mtu)] if underlay.is_address(host) and 0 <= port < 1 << 16 and mtu > 0:
            return host_address.Wire(underlay.numeric(host), port, mtu)
    return None


def _connect(exchange: StoreExchange, leader: int) -> NicReference:
    """Share the NIC that the first rank of this host starts."""
    nic = exchange.read(f"here/{leader}", leader, {"lock": str, "name": str, "path": str})
    lock: BinaryIO | None = None
    try:
        lock = Path(nic["lock"]).open("rb")  # noqa: SIM115 - it is kept
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, ValueError) as error:
        if lock is not None:
            lock.close()
        raise CommError(f"the NIC that rank {leader} started is gone: {error}", rank=leader) from error
    return NicReference(nic["name"], nic["path"], lock=lock)


class _NicFlags(NamedTuple):
    """Further flags of softnicd, and whether they have frames encrypted."""

    flags: Sequence[str]
    encrypted: bool


def _start(
    exchange: StoreExchange, rank: int, leaders: Sequence[int], hosts: ways.Hosts, flags: _NicFlags
) -> NicReference:
    """Start the NIC of this host. An error is reported to all ranks that wait for the NIC."""
    node = leaders.index(rank)
    try:
        if all(wire.local for wire in hosts[node]) and len(leaders) > 1:
            raise ValueError(
                f"this host, {socket.gethostname()}, has no address by which the other {len(leaders) - 1} reach it: "
                f"set {host_address.WIRE_VARIABLE} to one, or to its interface"
            )
        chosen = ways.choose(node, hosts, flags.encrypted) if len(leaders) > 1 else _LOOPBACK
        owner = NicOwner(node, chosen.bind, ["--mtu", str(chosen.mtu), *flags.flags])
        try:
            name = _introduce(exchange, leaders, chosen.peers, owner)
            exchange.write(f"here/{rank}", {"path": str(owner.path), "lock": str(owner.lock_path), "name": name})
        except BaseException:
            owner.stop()
            raise
    except (OSError, ValueError, ClusterError, CommError) as error:
        exchange.fail(f"nic/{node}", error)
        exchange.fail(f"here/{rank}", error)
        raise CommError(str(error), rank=getattr(error, "rank", None) or rank) from error
    return NicReference(name, str(owner.path), owner=owner)


def _introduce(exchange: StoreExchange, leaders: Sequence[int], addresses: Sequence[str], owner: NicOwner) -> str:
    """Introduce the NICs of all hosts, at these addresses, to each other. Returns their common name."""
    node = owner.node
    names = [secrets.token_hex(8)] * len(leaders)
    exchange.write(f"nic/{node}", {"port": owner.client.info().wire[1], "name": names[node]})
    for other, leader in enumerate(leaders):
        if other != node:
            nic = exchange.read(f"nic/{other}", leader, {"port": int, "name": str})
            owner.client.call(control.AddPeer(node_ip(other), addresses[other], nic["port"]))
            names[other] = nic["name"]
    return names[0]


def _release_unused() -> None:
    for nic in sorted((nic for nic in _nics if not nic.in_use), key=lambda nic: nic.owned):  # references first
        try:
            _nics.remove(nic)
        except ValueError:  # another thread releases it
            continue
        if not nic.release(0.0):
            _nics.append(nic)


def release_all() -> None:
    """Release all NICs at the exit of the process, after its communicators."""
    for nic in sorted(_nics, key=lambda nic: nic.owned):  # an owned one may wait for a reference of this process
        _nics.remove(nic)
        nic.release(LINGER_S)


def _forget_all() -> None:
    for nic in _nics:
        nic.unlock()
    _nics.clear()


os.register_at_fork(after_in_child=_forget_all)
