"""The NIC of a host whose processes were given none: the first of them starts it, and all of them share it.

1. Every rank writes which host it is on, by which address other hosts reach that, and which NICs it has from earlier
   meetings that are still in use. If all ranks have one in common, they use it again.
2. Else the first rank of each host starts one (below a supervisor: it ends when that process ends, however it ends),
with the address 10.77.0.(n+1) on the n-th host, a UDP port that the system chooses, and packets as long as all hosts'
   interfaces take. It writes where its wire is, reads where those of the other hosts are, tells its NIC, and only then
   writes to the ranks of its host where the control socket is: nobody sends before it is heard.
3. These hold a connection to the first rank for as long as they want the NIC. A first rank that ends in good order
   waits LINGER_S at most for those that still do.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import select
import shlex
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from softnic.cluster import START_S, ClusterError, nic_command, start_nic, wait_for_nic
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.comm.bootstrap import host_address
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.errors import CommError
from softnic.ipc import control
from softnic.ipc.client import Client

FLAGS_VARIABLE = "SOFTNIC_NIC_FLAGS"
"""More flags for NICs that start by themselves, as softnicd has them: "--rate 1gbit --offload 0x28=bounded:10"."""
LINGER_S = 30.0
_DRAIN_S = 10.0
"""At most so long, at an end in good order, for what is still on its way to other hosts."""
_LOOK_S = 0.01
_FIRST_ADDRESS = ipaddress.IPv4Address("10.77.0.1")


class NicReference:
    """One that this process shares: with a `keeper` if it started it, else with a `hold` on the one that did."""

    def __init__(self, name: str, path: str, keeper: NicOwner | None = None, hold: socket.socket | None = None) -> None:
        self.name = name
        """Of all hosts' NICs that were started for one meeting."""
        self.path = path
        """Of its control socket."""
        self.wanted = False
        """A meeting has it, and is about to use it."""
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        """What is `ended` some day (World)."""
        self._keeper = keeper
        self._hold = hold

    @property
    def used(self) -> bool:
        return self.wanted or any(not user.ended for user in self._users)

    def use(self, user: Any) -> None:
        """It is used until `user` has ended."""
        self._users.add(user)
        self.wanted = False

    @property
    def kept(self) -> bool:
        """This process has started it."""
        return self._keeper is not None

    def let_go(self, wait_s: float) -> bool:
        """This process wants it no more. Returns whether it is over for this process: a NIC of its own is not as long
        as others want it, but for `wait_s` at most if that is not 0."""
        if self._hold is not None:
            self._hold.close()
        return self._keeper is None or self._keeper.end(wait_s)

    def forget(self) -> None:
        """In a fork of the process: the connection is the parent's."""
        if self._hold is not None:
            self._hold.close()


class NicOwner:
    """Starts a NIC and keeps it. Raises OSError and ClusterError."""

    def __init__(self, node: int, wire: host_address.Wire, mtu: int, flags: Sequence[str]) -> None:
        self._supervisor = ProcessSupervisor(at_exit=False)  # communicators say goodbye at exit, through the NIC
        try:
            directory = self._supervisor.directory
            self.path = directory / f"node{node}.sock"
            log = self.path.with_suffix(".log")
            command = nic_command(self.path, address_of(node), f"{wire.host}:{wire.port}", {})
            nic, ready = start_nic(self._supervisor, [*command, "--mtu", str(mtu), *flags], log)
            try:
                who = f"the NIC of this host, {socket.gethostname()},"
                wait_for_nic(nic, ready, time.monotonic() + START_S, who, log)
            finally:
                os.close(ready)
            self.holds = directory / "holds.sock"
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(self.holds))
            self._listener.listen(socket.SOMAXCONN)
            self._listener.setblocking(False)
            self._held: list[socket.socket] = []
            self._client = Client(self.path)
        except BaseException:
            self._supervisor.stop()
            raise

    def wire(self) -> tuple[str, int]:
        """Where its UDP socket is bound."""
        return self._client.info().wire

    def add_peer(self, node: int, wire: tuple[str, int]) -> None:
        self._client.call(control.AddPeer(address_of(node), *wire))

    def end(self, wait_s: float) -> bool:
        """Stops the NIC if nobody holds on to it any more, or after `wait_s` if that is not 0."""
        deadline = time.monotonic() + wait_s
        try:
            while self._is_held() and (left := deadline - time.monotonic()) > 0:
                poll = select.poll()
                for connection in self._held:
                    poll.register(connection, select.POLLIN)
                poll.poll(left * 1000)
            if self._held and not wait_s:
                return False
            if wait_s:
                self._drain(min(wait_s, _DRAIN_S))
        finally:
            if wait_s or not self._held:
                self.stop()
        return True

    def _drain(self, wait_s: float) -> None:
        """Returns when peers have all that this host's processes have written, or do not answer."""
        deadline = time.monotonic() + wait_s
        with suppress(OSError):
            while self._client.call(control.Hello()).unacknowledged and time.monotonic() < deadline:
                time.sleep(_LOOK_S)

    def stop(self) -> None:
        self._client.close()
        self._listener.close()
        for connection in self._held:
            connection.close()
        self._supervisor.stop()

    def _is_held(self) -> bool:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._held.append(connection)
        for connection in list(self._held):
            with suppress(BlockingIOError):
                try:
                    over = not connection.recv(1)
                except ConnectionError:
                    over = True
                if over:
                    self._held.remove(connection)
                    connection.close()
        return bool(self._held)


_nics: list[NicReference] = []
"""That this process shares, or keeps for others."""


def shared(board: StoreExchange, rank: int, size: int, environment: Mapping[str, str]) -> NicReference:
    """The NIC of this rank's host, for a meeting. All ranks call this. Raises CommError."""
    _release_unused()
    in_use = {nic.name: nic for nic in _nics if nic.used}
    try:
        wire = host_address.wire(environment)
        own: dict[str, Any] = {
            "host": host_address.identity(),
            "wire": wire.host,
            "mtu": wire.mtu,
            "nics": sorted(in_use),
        }
    except (OSError, ValueError) as error:
        board.fail(f"host/{rank}", error)
        raise CommError(str(error), rank=rank) from error
    board.write(f"host/{rank}", own)
    said = [own if other == rank else board.read(f"host/{other}", other) for other in range(size)]
    for other in range(size):
        if said[other].get("given"):
            raise CommError(
                f"rank {other} has a NIC of its own (SOFTNIC_NIC) and rank {rank} has none: set it for all or for none"
            )
    common = set(in_use).intersection(*(each["nics"] for each in said))
    if common:
        nic = in_use[max(common)]
        nic.wanted = True
        return nic
    nic = _start_or_join(board, rank, said, wire, environment)
    nic.wanted = True  # another meeting of this process, in another thread, must not end it
    _nics.append(nic)
    return nic


def _start_or_join(
    board: StoreExchange, rank: int, said: list[dict[str, Any]], wire: host_address.Wire, environment: Mapping[str, str]
) -> NicReference:
    firsts: dict[str, int] = {}
    for other, each in enumerate(said):
        firsts.setdefault(each["host"], other)
    first = firsts[said[rank]["host"]]
    if first == rank:
        node = list(firsts.values()).index(rank)
        try:
            return _start(board, node, list(firsts.values()), said, wire, environment)
        except (OSError, ValueError, ClusterError, CommError) as error:
            board.fail(f"nic/{node}", error)
            board.fail(f"here/{rank}", error)
            raise CommError(str(error), rank=getattr(error, "rank", None) or rank) from error
    there = board.read(f"here/{first}", first)
    hold = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        hold.connect(there["holds"])
    except OSError as error:
        hold.close()
        raise CommError(f"the NIC that rank {first} started is gone: {error}", rank=first) from error
    return NicReference(there["name"], there["path"], hold=hold)


def _start(
    board: StoreExchange,
    node: int,
    firsts: list[int],
    said: list[dict[str, Any]],
    wire: host_address.Wire,
    environment: Mapping[str, str],
) -> NicReference:
    """As the first rank of the host that is node `node`; `firsts` are those of all hosts."""
    flags = shlex.split(environment.get(FLAGS_VARIABLE, ""))
    sealed = any(flag.partition("=")[0] == "--key" for flag in flags)
    mtu = host_address.packet_bytes([each["mtu"] for each in said], sealed)
    if len(firsts) == 1:
        wire, mtu = host_address.Wire("127.0.0.1", 0, host_address.LONGEST_MTU), host_address.LONGEST_MTU
    elif wire.local:
        raise ValueError(
            f"this host, {socket.gethostname()}, knows no address at which the other {len(firsts) - 1} reach it: "
            f"set {host_address.WIRE_VARIABLE} to one, or to its interface"
        )
    keeper = NicOwner(node, wire, mtu, flags)
    try:
        name = secrets.token_hex(8)
        board.write(f"nic/{node}", {"wire": list(keeper.wire()), "name": name})
        for other, rank in enumerate(firsts):
            if other != node:
                there = board.read(f"nic/{other}", rank)
                keeper.add_peer(other, (there["wire"][0], there["wire"][1]))
                name = there["name"] if not other else name
        told = {"path": str(keeper.path), "holds": str(keeper.holds), "name": name}
        board.write(f"here/{firsts[node]}", told)
    except BaseException:
        keeper.stop()
        raise
    return NicReference(name, str(keeper.path), keeper=keeper)


def address_of(node: int) -> str:
    return str(_FIRST_ADDRESS + node)


def mark_given(board: StoreExchange, rank: int) -> None:
    """A rank that was given a NIC says so, for those who have none."""
    board.write(f"host/{rank}", {"given": True})


def _release_unused() -> None:
    for nic in [nic for nic in _nics if not nic.used]:
        try:
            _nics.remove(nic)
        except ValueError:  # another thread, which is another rank, lets go of it
            continue
        if not nic.let_go(0.0):
            _nics.append(nic)


def release_all() -> None:
    """At the end of the process, when all communicators have said goodbye."""
    for nic in sorted(_nics, key=lambda nic: nic.kept):  # what it holds of others first: it may be among them
        _nics.remove(nic)
        nic.let_go(LINGER_S)


def _forget_all() -> None:
    for nic in _nics:
        nic.forget()
    _nics.clear()


os.register_at_fork(after_in_child=_forget_all)
