"""Discovers the addresses of the ranks of COMM_WORLD.

With SOFTNIC_NIC in the environment, they follow from it (launch.py). Otherwise the ranks exchange addresses through a
store (store.py), on NICs that are started for them. The first rule that applies says where rank 0 serves the store, and
`Launch.found` names it:

1. SOFTNIC_STORE=HOST:PORT: the host of rank 0 and a free port there; an IPv6 address stands in brackets.
2. The launcher reports that all ranks are on one host (LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS,
   SLURM_NNODES): a Unix socket named after the launcher's name of the job.
3. MASTER_ADDR: the host of rank 0, at one of a few ports that are derived from the launcher's name of the job.
4. Open MPI, if mpirun reports its addresses: as with MASTER_ADDR, on the host of mpirun. If rank 0 is elsewhere,
   MASTER_ADDR or SOFTNIC_STORE must be set.

On one host the name of torchrun's job includes TORCHELASTIC_RESTART_COUNT: after an elastic restart the ranks use
another socket than their predecessors, some of which may still be running.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from typing import NamedTuple

from softnic import underlay
from softnic.comm.bootstrap import host_address, nic_launcher
from softnic.comm.bootstrap.launch import ATTEMPT_VARIABLE, Launch
from softnic.comm.bootstrap.nic_launcher import NicReference
from softnic.comm.bootstrap.presence import Presence, local_ranks
from softnic.comm.bootstrap.store import Address, Store, StoreClient, StoreError
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.errors import CommError, LaunchError
from softnic.comm.messages import CHANNELS
from softnic.comm.transport import Transport
from softnic.socket import NIC_VARIABLE

STORE_VARIABLE = "SOFTNIC_STORE"
_FIRST_PORT, _PORTS, _CANDIDATES = 20000, 12000, 8
"""Below 32768, where Linux takes ephemeral ports from."""


class Bootstrap(NamedTuple):
    """Result of discovery: the input of MeshBuilder."""

    launch: Launch
    """With the address of every rank."""
    transport: Transport | None = None
    listener: socket.socket | None = None
    """Listening socket of this rank, at its address."""
    nic: NicReference | None = None
    """The NIC of this host, if it was started for the ranks."""
    presence: Presence | None = None
    """Which ranks may still join. None: all, until the timeout."""


Discover = Callable[[Launch], AbstractContextManager[Bootstrap]]
"""Discovers the addresses of a launch's ranks. The context may end once the ranks are connected. Raises OSError and
CommError."""


class StoreLocation(NamedTuple):
    """Addresses at which rank 0 serves the store of a job."""

    addresses: Sequence[Address]
    job: str
    why: str
    """The rule above that applies, for people."""


def locate_store(environment: Mapping[str, str], launch: Launch) -> StoreLocation:
    """Apply the rules above. Raises LaunchError, which says what to set, if none applies."""
    names = _job_variables(environment, launch)
    job = job_id(environment, launch)
    text = environment.get(STORE_VARIABLE, "").strip()
    if text:
        return StoreLocation([_store_address(text)], job, f"{STORE_VARIABLE}={text}")
    if names and is_single_host(environment, launch):
        return StoreLocation([f"\0softnic-{os.getuid()}-{job[:32]}"], job, f"one host, {launch.source}'s {names[0]}")
    if master := host_address.master(environment):
        return StoreLocation([(master, port) for port in candidate_ports(job)], job, f"MASTER_ADDR={master}")
    if launch.source == "Open MPI" and (hosts := host_address.mpirun_addresses(environment)):
        addresses = [(host, port) for port in candidate_ports(job) for host in hosts]
        why = f"mpirun's host, {hosts[0]} (if rank 0 is elsewhere, set MASTER_ADDR to its)"
        return StoreLocation(addresses, job, why)
    raise LaunchError(
        f"rank {launch.rank} of {launch.size} ({launch.source}) has no NIC and no address of the store: "
        f"set {STORE_VARIABLE}=HOST:PORT, rank 0's host and a free port there, for all ranks; or {NIC_VARIABLE} to a "
        "NIC's control socket"
    )


def _store_address(text: str) -> tuple[str, int]:
    try:
        address = underlay.parse(text)
    except ValueError as error:
        raise LaunchError(f"{STORE_VARIABLE}: {error}") from None
    if not address[1]:
        raise LaunchError(f"{STORE_VARIABLE}={text} is not HOST:PORT")
    return address


def job_id(environment: Mapping[str, str], launch: Launch) -> str:
    """Return a digest of the launcher's name of the job, equal on all ranks.

    Jobs of a launcher that gives no name differ in their sizes only.
    """
    names = [launch.source, str(launch.size), *_job_variables(environment, launch)]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def candidate_ports(job: str) -> list[int]:
    """Return the ports of which rank 0 takes the first free one."""
    first = int(job[:8], 16)
    return [_FIRST_PORT + (first + 997 * attempt) % _PORTS for attempt in range(_CANDIDATES)]


def is_single_host(environment: Mapping[str, str], launch: Launch) -> bool:
    """Return whether the launcher reports that all ranks are on this host."""
    if launch.source == "Slurm":
        return environment.get("SLURM_NNODES", environment.get("SLURM_JOB_NUM_NODES")) == "1"
    variable = "" if launch.launcher is None else launch.launcher.ranks_here
    return environment.get(variable, "") == str(launch.size)


def _job_variables(environment: Mapping[str, str], launch: Launch) -> list[str]:
    """Return NAME=VALUE of the variables that identify the job. The agents of several hosts count attempts apart."""
    names = () if launch.launcher is None else launch.launcher.job
    attempt = is_single_host(environment, launch)
    return [f"{name}={environment[name]}" for name in names
            if environment.get(name) and (name != ATTEMPT_VARIABLE or attempt)]  # fmt: skip


@contextmanager
def discover(launch: Launch) -> Iterator[Bootstrap]:
    """Discover the ranks of COMM_WORLD by the rules above."""
    launcher = launch.launcher
    presence = Presence(launch.timeout_s, local_ranks(launcher.rank, launcher.job) if launcher else None)
    if os.environ.get(NIC_VARIABLE):
        yield Bootstrap(launch, presence=presence)
        return
    location = locate_store(os.environ, launch)
    server = None
    try:
        if launch.rank == 0:
            from softnic.comm.bootstrap.store_server import StoreServer  # with asyncio, which other ranks need not

            addresses = [_any_interface(each) for each in location.addresses]
            server = StoreServer(addresses, location.job, launch.size, launch.secret)
        store = StoreClient(location.addresses, location.job, launch.timeout_s, presence, launch.secret)
    except StoreError as error:
        if server is not None:
            server.close()
        if error.errno == errno.ESRCH:
            raise CommError(error.strerror or str(error), rank=0) from error
        advice = f"has rank 0 started? {STORE_VARIABLE}=HOST:PORT, for all ranks, names another place"
        raise CommError(f"the ranks cannot meet by {location.why}: {error.strerror}; {advice}", rank=0) from error
    try:
        with exchange_addresses(store, "world", replace(launch, found=location.why)) as found:
            # The store may close when rank 0 is connected to all others: these have read all that they need.
            yield found._replace(presence=presence)
    except CommError as error:
        if server is None or not server.refused:
            raise
        text = f"{error}; connections to the store that rank 0 refused, of strangers or of other jobs: {server.refused}"
        raise CommError(text, rank=error.rank, told=error.told) from error
    finally:
        store.close()
        if server is not None:
            server.close()


def _any_interface(address: Address) -> Address:
    """Return where to listen for clients of an address: other hosts may resolve its name to another interface."""
    return address if isinstance(address, str) or underlay.is_local(address[0]) else (underlay.ANY, address[1])


@contextmanager
def exchange_addresses(
    store: Store, name: str, launch: Launch, transport: Transport | None = None
) -> Iterator[Bootstrap]:
    """Exchange the addresses of a launch's ranks through a store.

    Each rank listens at a port that its NIC chooses, and writes the address under a key of its own. Keys begin with
    `name`. `transport` replaces the NIC of the environment or the one to be started.
    """
    exchange, rank = StoreExchange(store, name, launch.secret), launch.rank
    exchange.begin(rank, launch.size, launch.timeout_s)
    listener: socket.socket | None = None
    nic = None
    try:
        if transport is None and os.environ.get(NIC_VARIABLE):
            nic_launcher.mark_given(exchange, rank)
            transport = Transport()
        elif transport is None:
            nic = nic_launcher.acquire(exchange, rank, launch.size, os.environ)
            transport = Transport(nic=nic.path)
        listener = transport.listen((transport.address(), 0), CHANNELS * launch.size)
        own = listener.getsockname()
        exchange.write(f"rank/{rank}", {"address": list(own)})
        addresses = [own if other == rank else _read_address(exchange, other) for other in range(launch.size)]
    except BaseException as error:
        exchange.fail(f"rank/{rank}", error)
        if nic is not None:
            nic.reserved = False
        if listener is not None:
            listener.close()
        raise
    found = replace(launch, addresses=tuple(addresses), epoch=exchange.epoch)
    yield Bootstrap(found, transport, listener, nic)


def _read_address(exchange: StoreExchange, rank: int) -> tuple[str, int]:
    match exchange.read(f"rank/{rank}", rank, {"address": list})["address"]:
        case [str(host), int(port)] if 0 < port < 1 << 16 and _is_ipv4(host):
            return host, port
        case other:
            raise CommError(f"the store has no valid address of rank {rank}: {other!r:.100}", rank=rank)


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True
