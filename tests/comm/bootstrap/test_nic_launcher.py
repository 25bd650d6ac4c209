"""NICs that are started for jobs without one: one for each host, which ends with the ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softnic import underlay
from softnic.cluster.netns_lab.host import NetnsHost, join
from softnic.comm.bootstrap import host_address, nic_launcher
from softnic.comm.bootstrap.host_address import Wire
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.errors import CommError
from softnic.link.secure import channel as secure_channel
from softnic.mpi.communicator import Communicator, init_communicator
from softnic.underlay import IPV6
from tests import needs
from tests.comm.bootstrap.test_init_communicator import LocalStore, run_ranks
from tests.daemon.nics import TOLD_S
from tests.mpi.test_cluster import PRELUDE, ROOT

WAIT_S = 60.0
ASK = """
from softnic.comm.bootstrap import nic_launcher
from softnic.ipc.client import Client
def nic():
    "Return the control socket of this rank's NIC and its process id."
    path = nic_launcher._nics[0].path
    return {"path": path, "pid": Client(path).info().pid}
"""
EXCHANGE = """
data = gradient(rank, 30_000)
blocking = data.copy()
comm.Allreduce_comp(MPI.IN_PLACE, blocking, codec="bounded:10")
comm.Iallreduce_comp(MPI.IN_PLACE, data, codec="bounded:10").Wait()
half = comm.Split(rank % 2)
part = gradient(rank, 3000)
half.Iallreduce(MPI.IN_PLACE, part).Wait()
tell(crc=zlib.crc32(data.tobytes()), same=bool((data == blocking).all()), part=zlib.crc32(part.tobytes()),
     source=comm.launch.source, found=comm.launch.found, where=comm.launch.addresses[rank][0], **nic())
"""


def clean() -> dict[str, str]:
    """Return this process's environment without the variables of launchers."""
    ours = ("SOFTNIC_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours) and key not in names}
    paths = [str(ROOT), str(ROOT / "daemons"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def as_torchrun(rank: int, size: int, run: str, attempt: int = 0) -> dict[str, str]:
    """Return the variables of torchrun on one host."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }


class Ranks:
    """The processes of a job, each with its own environment, or started by a launcher."""

    def __init__(self, program: str, commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        self.processes = [
            subprocess.Popen(
                [*command, sys.executable, "-c", PRELUDE + ASK + program],
                env=clean() | dict(environment),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for command, environment in commands
        ]

    def line(self, process: int) -> Any:
        output = self.processes[process].stdout
        assert output is not None
        text = output.readline()
        assert text, self.processes[process].communicate()[1]
        return json.loads(text)

    def finish(self) -> None:
        for process in self.processes:
            errors = process.communicate(timeout=WAIT_S)[1]
            assert process.returncode == 0, errors

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def gone(nic: Mapping[str, Any], within_s: float = 60.0) -> bool:
    """Return whether a NIC's process and its directory are gone within a time limit."""
    command, directory = Path(f"/proc/{nic['pid']}/cmdline"), Path(nic["path"]).parent
    deadline = time.monotonic() + within_s
    while directory.exists() or (command.exists() and command.read_bytes()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def one_host(size: int, run: str = "") -> list[tuple[Sequence[str], Mapping[str, str]]]:
    run = run or os.urandom(6).hex()
    return [((), as_torchrun(rank, size, run)) for rank in range(size)]


def test_ranks_of_one_host_share_a_nic_that_ends_with_them() -> None:
    with Ranks(EXCHANGE, one_host(3)) as ranks:
        results = [ranks.line(rank) for rank in range(3)]
        ranks.finish()
    assert len({each["crc"] for each in results}) == 1
    assert all(each["same"] for each in results)
    assert results[0]["part"] == results[2]["part"]
    assert len({(each["path"], each["pid"]) for each in results}) == 1
    assert {each["where"] for each in results} == {"10.77.0.1"}
    assert results[0]["source"] == "torchrun"
    assert results[0]["found"].startswith("one host, torchrun's TORCHELASTIC_RUN_ID=")
    assert gone(results[0])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_fails_the_calls_of_others_and_the_first_one_ends_its_nic(victim: int) -> None:
    program = """
import time
comm.Barrier()
tell(**nic())
try:
    comm.Barrier() if rank == 1 - VICTIM else time.sleep(60)
except MPI.Exception as error:
    tell(error=str(error))
""".replace("VICTIM", str(victim))
    with Ranks(program, one_host(2)) as ranks:
        nic, _ = [ranks.line(rank) for rank in range(2)]
        began = time.monotonic()
        ranks.processes[victim].send_signal(signal.SIGKILL)
        assert "Barrier on rank" in ranks.line(1 - victim)["error"]
        assert time.monotonic() - began < TOLD_S
        if victim:
            ranks.processes[0].wait(WAIT_S)
        assert gone(nic)


def test_the_first_rank_waits_for_other_users_of_its_nic() -> None:
    """It exits regularly before the others, whose calls continue without it."""
    program = """
rest = comm.Split(MPI.UNDEFINED if rank == 0 else 1)
if rank == 0:
    tell(**nic())
    sys.exit()
for _ in range(20):
    data = gradient(rank, 100_000)
    rest.Iallreduce_comp(MPI.IN_PLACE, data, codec="bounded:10").Wait()
tell(crc=zlib.crc32(data.tobytes()))
"""
    with Ranks(program, one_host(3)) as ranks:
        nic = ranks.line(0)
        assert ranks.line(1) == ranks.line(2)
        ranks.finish()
    assert gone(nic)


@needs.tools("mpirun")
def test_open_mpis_mpirun() -> None:
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    with Ranks(EXCHANGE, [(mpirun, {})]) as ranks:
        results = [ranks.line(0) for _ in range(2)]
        ranks.finish()
    assert results[0]["crc"] == results[1]["crc"]
    assert results[0]["pid"] == results[1]["pid"]
    assert results[0]["source"] == "Open MPI"
    assert gone(results[0])


# -- ranks as threads of one process


@pytest.fixture
def no_nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    yield
    nic_launcher.release_all()
    assert not nic_launcher._nics


def sum_of_ranks(comm: Communicator) -> int:
    result = np.zeros(1, np.int64)
    comm.Allreduce(np.array([1 << comm.rank]), result)
    return int(result[0])


@pytest.mark.usefixtures("no_nic")
def test_a_nic_in_use_is_shared_by_later_communicators() -> None:
    store = LocalStore()

    def connect(name: str) -> list[Communicator]:
        return run_ranks(2, lambda rank: init_communicator(store, rank, 2, name=name))

    world = connect("world")
    assert run_ranks(2, lambda rank: sum_of_ranks(world[rank])) == [3, 3]
    [first] = {nic.path for nic in nic_launcher._nics}
    part = connect("part")
    assert {nic.path for nic in nic_launcher._nics} == {first}
    for comm in world:
        comm.Free()
    assert run_ranks(2, lambda rank: sum_of_ranks(part[rank])) == [3, 3]
    for comm in part:
        comm.Free()
    again = connect("again")
    assert run_ranks(2, lambda rank: sum_of_ranks(again[rank])) == [3, 3]
    assert first not in {nic.path for nic in nic_launcher._nics}
    assert not Path(first).exists()
    for comm in again:
        comm.Free()


def test_concurrent_releases_of_a_nic_release_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks may be threads: two may release the same NIC at once."""
    released: list[str] = []

    class Unused(nic_launcher.NicReference):
        def release(self, wait_s: float) -> bool:
            released.append(self.path)
            if len(released) == 1:
                nic_launcher._release_unused()
            return super().release(wait_s)

    monkeypatch.setattr(nic_launcher, "_nics", [Unused("one", "/one.sock")])
    nic_launcher._release_unused()
    assert released == ["/one.sock"]
    assert not nic_launcher._nics


def test_a_reserved_nic_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads of a process may connect at once, as for COMM_WORLD and for torch."""
    nic = nic_launcher.NicReference("one", "/one.sock")
    nic.reserved = True
    monkeypatch.setattr(nic_launcher, "_nics", [nic])
    nic_launcher._release_unused()
    assert nic_launcher._nics == [nic]

    class User:
        ended = False

    user = User()
    nic.use(user)
    assert nic.in_use
    user.ended = True
    nic_launcher._release_unused()
    assert not nic_launcher._nics


@pytest.mark.usefixtures("no_nic")
def test_a_nic_that_cannot_start_is_an_error_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTNIC_NIC_FLAGS", "--offload 0x28=nonsense")
    store = LocalStore()
    errors = run_ranks(2, lambda rank: init_communicator(store, rank, 2))
    for error in errors:
        assert isinstance(error, CommError)
        assert error.rank == 0
        assert "did not start" in str(error)
        assert "nonsense" in str(error)


@pytest.mark.usefixtures("no_nic")
def test_a_nic_on_some_ranks_only_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore()
    store.set("softnic/world/host/1", '{"given": true}')
    with pytest.raises(CommError, match=r"rank 1 has a NIC of its own \(SOFTNIC_NIC\) and rank 0 has none"):
        init_communicator(store, 0, 2)
    monkeypatch.setenv("SOFTNIC_WIRE", "no such interface")
    with pytest.raises(CommError, match="SOFTNIC_WIRE=no such interface"):
        init_communicator(LocalStore(), 0, 2)


# -- hosts


def test_the_address_by_which_other_hosts_reach_this_one() -> None:
    def given(text: str) -> Wire:
        return host_address.wires({"SOFTNIC_WIRE": text})[0]

    assert given("192.0.2.9:4789")[:2] == ("192.0.2.9", 4789)
    assert given("[2001:db8::9]:4789")[:2] == given("[2001:DB8:0::9]:4789")[:2] == ("2001:db8::9", 4789)
    assert given("2001:db8::9")[:2] == ("2001:db8::9", 0)
    assert given("lo")[:2] == ("127.0.0.1", 0)
    assert given("lo").local
    assert given("::1").local
    assert not given("192.0.2.9").local
    for text in ("lo:port", "192.0.2.9:70000", "nowhere0", "2001:db8::9:4789x", "[192.0.2.9]:1"):
        with pytest.raises(ValueError, match="SOFTNIC_WIRE"):
            given(text)
    found = host_address.wires({"MASTER_ADDR": "127.0.0.1"})
    assert found  # every machine has an address, at least that of loopback
    assert all(wire.mtu >= 576 for wire in found)
    assert len({wire.family for wire in found}) == len(found)


@pytest.mark.parametrize(("mtus", "expected"), [([1500, 9000], 1450), ([65536], 9000), ([1500, 300], 576)])
def test_packets_fit_all_interfaces(mtus: list[int], expected: int) -> None:
    assert host_address.nic_mtu(mtus) == expected


def test_encrypted_packets_fit_all_interfaces() -> None:
    """The overhead is IP, UDP, encryption and Ethernet."""
    assert host_address.nic_mtu([1500], encrypted=True) == 1500 - 20 - 8 - secure_channel.OVERHEAD - 14
    assert host_address.nic_mtu([1500], IPV6, encrypted=True) == 1500 - 40 - 8 - secure_channel.OVERHEAD - 14


def test_packets_over_ipv6_have_a_longer_header() -> None:
    assert host_address.nic_mtu([1500, 9000], IPV6) == 1500 - 40 - 8 - 8 - 14


def test_hosts_are_identified_by_their_namespaces_too() -> None:
    assert host_address.identity() == host_address.identity()
    assert str(Path("/proc/self/ns/net").readlink()) in host_address.identity()


@needs.hosts
@pytest.mark.parametrize("ipv6", [False, pytest.param(True, marks=needs.ipv6)], ids=["IPv4", "IPv6"])
def test_two_hosts_with_two_ranks_each(ipv6: bool) -> None:
    """Their NICs reach each other; when the first ranks have ended, no NIC is left on either host. The hosts have one
    family of addresses."""
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right, ipv6=ipv6)
        store = underlay.text((left.address, 29999))
        environment = {"WORLD_SIZE": "4", "SOFTNIC_STORE": store}
        commands = [(host.command([]), environment | {"RANK": str(2 * at + rank)})
                    for at, host in enumerate((left, right)) for rank in range(2)]  # fmt: skip
        with Ranks(EXCHANGE, commands) as ranks:
            results = [ranks.line(rank) for rank in range(4)]
            ranks.finish()
        assert all(gone(each) for each in results)
    assert len({each["crc"] for each in results}) == 1
    assert [each["where"] for each in results] == ["10.77.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.2"]
    assert results[0]["pid"] == results[1]["pid"] != results[2]["pid"] == results[3]["pid"]
    assert {each["found"] for each in results} == {f"SOFTNIC_STORE={store}"}


@pytest.mark.parametrize("lock", ["/nonexistent", "\0", "\ud800"])
def test_a_nic_whose_lock_is_no_file_is_gone(lock: str) -> None:
    store = LocalStore()
    store.set(
        "softnic/world/host/0",
        json.dumps({"host": host_address.identity(), "wires": [["192.0.2.1", 0, 1500]], "nics": []}),
    )
    store.set("softnic/world/here/0", json.dumps({"path": "/nowhere", "lock": lock, "name": "a"}))
    with pytest.raises(CommError, match="the NIC that rank 0 started is gone"):
        nic_launcher.acquire(StoreExchange(store, "world"), 1, 2, {})
