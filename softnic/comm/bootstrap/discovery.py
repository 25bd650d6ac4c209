"""How ranks find each other where nothing says their addresses: through a store, on NICs that start by
themselves.

Without SOFTNIC_NIC in the environment, COMM_WORLD looks for a store of its own (store.py), in this order; the first
that applies is taken, and `Launch.found` says which it was:

1. SOFTNIC_STORE=HOST:PORT: rank 0 serves there. HOST is rank 0's, PORT a free one.
2. All ranks on one host, as the launcher says (LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS,
   SLURM_NNODES): a Unix socket, named by the launcher's name of the job.
3. MASTER_ADDR: rank 0 serves there, at a port that follows from MASTER_PORT and the launcher's name of the job; if
   another program has it, at one of a few others.
4. Open MPI, where mpirun says its own addresses: as with MASTER_ADDR, on mpirun's host. So rank 0 must be there; where
   it is not, MASTER_ADDR or SOFTNIC_STORE has to say where it is.

On one host the name of torchrun's job has its TORCHELASTIC_RESTART_COUNT in it: after an elastic restart the ranks meet
elsewhere than those before them, who may not all have ended yet.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import NamedTuple

from softnic.comm.bootstrap import host_address, nic_launcher
from softnic.comm.bootstrap.launch import LAUNCHERS, Launch
from softnic.comm.bootstrap.nic_launcher import NicReference
from softnic.comm.bootstrap.presence import Presence, RankProcesses
from softnic.comm.bootstrap.store import Address, Client, Server, Store, StoreError
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.errors import CommError, LaunchError
from softnic.comm.messages import CHANNELS
from softnic.comm.transport import Transport
from softnic.socket import NIC_VARIABLE

STORE_VARIABLE = "SOFTNIC_STORE"
_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
"""Tells one attempt from the one before, on one host: the agents of several count by themselves."""
_JOBS = {
    "softnic": ("MASTER_ADDR", "MASTER_PORT"),
    "torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", _ATTEMPT),
    "Open MPI": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "PMI": ("PMI_JOBID", "PMI_ID_JOB", "MASTER_ADDR", "MASTER_PORT"),
    "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
}
"""By launcher: what tells one job of it from another."""
_RANKS_HERE = {"torchrun": "LOCAL_WORLD_SIZE", "Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI": "MPI_LOCALNRANKS"}
_FIRST_PORT, _PORTS, _CANDIDATES = 20000, 12000, 8
"""Below 32768, where Linux takes ports from for whoever does not care."""


class Bootstrap(NamedTuple):
    """What a rank needs to connect to the others."""

    launch: Launch
    """With the address of every rank."""
    transport: Transport | None = None
    listener: socket.socket | None = None
    """Of this rank, at its address."""
    nic: NicReference | None = None
    """The NIC of this host, if it was started for the ranks."""
    presence: Presence | None = None
    """Which ranks may still join. None: all, until the timeout."""


Discover = Callable[[Launch], AbstractContextManager[Bootstrap]]
"""Discovers the addresses of a launch's ranks. What it holds may be dropped when the ranks are connected. Raises
OSError and CommError."""


class StoreLocation(NamedTuple):
    """Where a job's store is."""

    addresses: Sequence[Address]
    job: str
    why: str
    """Which of the rules above has won, for people."""


def locate_store(environment: Mapping[str, str], launch: Launch) -> StoreLocation:
    """Raises LaunchError, saying what to set, where nothing says it."""
    names = _names(environment, launch)
    job = job_of(environment, launch)
    text = environment.get(STORE_VARIABLE, "").strip()
    if text:
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
            raise LaunchError(f"{STORE_VARIABLE}={text} is not HOST:PORT")
        return StoreLocation([(host, int(port))], job, f"{STORE_VARIABLE}={text}")
    if names and all_here(environment, launch):
        return StoreLocation([f"\0softnic-{os.getuid()}-{job[:32]}"], job, f"one host, {launch.source}'s {names[0]}")
    if master := environment.get("MASTER_ADDR", "").strip():
        return StoreLocation([(master, port) for port in ports_of(job)], job, f"MASTER_ADDR={master}")
    if launch.source == "Open MPI" and (here := host_address.of_mpirun(environment)):
        addresses = [(host, port) for port in ports_of(job) for host in here]
        return StoreLocation(
            addresses, job, f"mpirun's host, {here[0]} (if rank 0 is elsewhere, set MASTER_ADDR to its)"
        )
    raise LaunchError(
        f"rank {launch.rank} of {launch.size} ({launch.source}) has no NIC and does not know where to meet the others: "
        f"set {STORE_VARIABLE}=HOST:PORT, rank 0's host and a free port there, for all ranks; or {NIC_VARIABLE} to a "
        "NIC's control socket"
    )


def job_of(environment: Mapping[str, str], launch: Launch) -> str:
    """The launcher's name of the job, digested: the same on all ranks. Where it gives none, all its jobs of
    this size have the same."""
    names = [launch.source, str(launch.size), *_names(environment, launch)]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def ports_of(job: str) -> list[int]:
    """Where rank 0 of a job may listen: at the first of these that is free."""
    first = int(job[:8], 16)
    return [_FIRST_PORT + (first + 997 * attempt) % _PORTS for attempt in range(_CANDIDATES)]


def _names(environment: Mapping[str, str], launch: Launch) -> list[str]:
    known = [name for name in _JOBS.get(launch.source, ()) if environment.get(name)]
    return [f"{name}={environment[name]}" for name in known if name != _ATTEMPT or all_here(environment, launch)]


def all_here(environment: Mapping[str, str], launch: Launch) -> bool:
    """Whether the launcher says that all ranks are on this host."""
    if launch.source == "Slurm":
        return environment.get("SLURM_NNODES", environment.get("SLURM_JOB_NUM_NODES")) == "1"
    return environment.get(_RANKS_HERE.get(launch.source, ""), "") == str(launch.size)


@contextmanager
def discover(launch: Launch) -> Iterator[Bootstrap]:
    """COMM_WORLD's way: with a NIC in the environment, the addresses that the launch says; else a store of our own."""
    presence = presence_of(launch)
    if os.environ.get(NIC_VARIABLE):
        yield Bootstrap(launch, presence=presence)
        return
    where = locate_store(os.environ, launch)
    server = None
    try:
        if launch.rank == 0:
            server = Server([_here(address) for address in where.addresses], where.job, launch.size)
        store = Client(where.addresses, where.job, launch.timeout_s, presence)
    except StoreError as error:
        if server is not None:
            server.close()
        if error.errno == errno.ESRCH:
            raise CommError(error.strerror or str(error), rank=0) from error
        advice = f"has rank 0 started? {STORE_VARIABLE}=HOST:PORT, for all ranks, names another place"
        raise CommError(f"the ranks cannot meet by {where.why}: {error.strerror}; {advice}", rank=0) from error
    try:
        with exchange_addresses(store, "world", replace(launch, found=where.why)) as found:
            yield found._replace(presence=presence)  # when rank 0 has met all others, all have read what they need
    finally:
        store.close()
        if server is not None:
            server.close()


def presence_of(launch: Launch) -> Presence:
    """How long the ranks of a launcher are waited for."""
    rank_name = next((name for source, name, _ in LAUNCHERS if source == launch.source), "")
    processes = RankProcesses(rank_name, _JOBS.get(launch.source, ()))
    return Presence(launch.timeout_s, processes if processes.known else None)


def _here(address: Address) -> Address:
    """Where rank 0 listens for those who look for it at an address: at all of its own, for here a name may mean
    another one than there."""
    return address if isinstance(address, str) or address[0].startswith("127.") else ("", address[1])


@contextmanager
def exchange_addresses(
    store: Store, name: str, launch: Launch, transport: Transport | None = None
) -> Iterator[Bootstrap]:
    """Finds the ranks of a launch whose addresses are not known, in a meeting of this name. `transport`: on what, if
    not on the NIC of the environment or one that starts by itself."""
    board, rank = StoreExchange(store, name), launch.rank
    board.begin(rank, launch.size, launch.timeout_s)
    listener: socket.socket | None = None
    nic = None
    try:
        if transport is None and os.environ.get(NIC_VARIABLE):
            nic_launcher.mark_given(board, rank)
            transport = Transport()
        elif transport is None:
            nic = nic_launcher.shared(board, rank, launch.size, os.environ)
            transport = Transport(nic=nic.path)
        listener = transport.listen((transport.address(), 0), CHANNELS * launch.size)
        own = listener.getsockname()
        board.write(f"rank/{rank}", {"address": list(own)})
        addresses = [own if other == rank else _address(board, other) for other in range(launch.size)]
    except BaseException as error:
        board.fail(f"rank/{rank}", error)
        if nic is not None:
            nic.wanted = False
        if listener is not None:
            listener.close()
        raise
    yield Bootstrap(replace(launch, addresses=tuple(addresses)), transport, listener, nic)


def _address(board: StoreExchange, rank: int) -> tuple[str, int]:
    try:
        host, port = board.read(f"rank/{rank}", rank)["address"]
        return str(host), int(port)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CommError):
            raise
        raise CommError(f"the store does not tell where rank {rank} is: {error}", rank=rank) from error
