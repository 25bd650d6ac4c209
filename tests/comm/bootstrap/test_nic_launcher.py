"""NICs that start by themselves: one a host, for jobs that were given none; none is left when its ranks end."""

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

from tests import needs
from tests.comm.bootstrap.test_meeting import Shelf, together
from tests.comm.test_cluster import PRELUDE, ROOT
from tests.daemon.nics import TOLD_S
from tests.facades.bootstrap import (
    Wire,
    drop_unused_nics,
    host_address,
    init_communicator,
    nic_launcher,
    shared_nics,
    use_shared_nics,
)
from tests.facades.comm import CommError, Communicator
from tests.facades.netns_lab import NetnsHost, join
from tests.facades.secure import secure_channel

WAIT_S = 60.0
ASK = """
from tests.facades.bootstrap import shared_nics
from tests.facades.ipc import Client
def nic():
    "The control socket of this rank's NIC, and its process."
    path = shared_nics()[0].path
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
    """This process's environment without what says who is who."""
    ours = ("SOFTNIC_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours) and key not in names}
    paths = [str(ROOT), str(ROOT / "daemons"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def as_torchrun(rank: int, size: int, run: str, attempt: int = 0) -> dict[str, str]:
    """What torchrun sets on one host."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }


class Ranks:
    """A program's processes, each with an environment of its own, or started by somebody else."""

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
    """Whether a NIC's process and its directory are soon no more."""
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


def test_ranks_of_one_host_share_a_nic_that_goes_with_them() -> None:
    with Ranks(EXCHANGE, one_host(3)) as ranks:
        told = [ranks.line(rank) for rank in range(3)]
        ranks.finish()
    assert len({each["crc"] for each in told}) == 1
    assert all(each["same"] for each in told)
    assert told[0]["part"] == told[2]["part"]
    assert len({(each["path"], each["pid"]) for each in told}) == 1
    assert {each["where"] for each in told} == {"10.77.0.1"}
    assert told[0]["source"] == "torchrun"
    assert told[0]["found"].startswith("one host, torchrun's TORCHELASTIC_RUN_ID=")
    assert gone(told[0])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_ends_the_others_calls_and_the_first_one_its_nic(victim: int) -> None:
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


def test_the_first_rank_waits_for_those_who_still_use_its_nic() -> None:
    """It ends before them, in good order; what they do without it goes on."""
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
        told = [ranks.line(0) for _ in range(2)]
        ranks.finish()
    assert told[0]["crc"] == told[1]["crc"]
    assert told[0]["pid"] == told[1]["pid"]
    assert told[0]["source"] == "Open MPI"
    assert gone(told[0])


# -- in one process, whose threads are ranks


@pytest.fixture
def no_nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    yield
    nic_launcher.release_all()
    assert not shared_nics()


def used(comm: Communicator) -> int:
    result = np.zeros(1, np.int64)
    comm.Allreduce(np.array([1 << comm.rank]), result)
    return int(result[0])


@pytest.mark.usefixtures("no_nic")
def test_a_nic_is_used_again_as_long_as_it_is_in_use() -> None:
    store = Shelf()

    def meeting(name: str) -> list[Communicator]:
        return together(2, lambda rank: init_communicator(store, rank, 2, name=name))

    world = meeting("world")
    assert together(2, lambda rank: used(world[rank])) == [3, 3]
    [first] = {nic.path for nic in shared_nics()}
    part = meeting("part")
    assert {nic.path for nic in shared_nics()} == {first}
    for comm in world:
        comm.Free()
    assert together(2, lambda rank: used(part[rank])) == [3, 3]
    for comm in part:
        comm.Free()
    again = meeting("again")
    assert together(2, lambda rank: used(again[rank])) == [3, 3]
    assert first not in {nic.path for nic in shared_nics()}
    assert not Path(first).exists()
    for comm in again:
        comm.Free()


def test_ranks_that_let_go_of_a_nic_at_once_do_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks may be threads: another one lets go of the same NIC while this one does."""
    released: list[str] = []

    class Unused(nic_launcher.NicReference):
        def release(self, wait_s: float) -> bool:
            released.append(self.path)
            if len(released) == 1:
                drop_unused_nics()
            return super().release(wait_s)

    use_shared_nics(monkeypatch, [Unused("one", "/one.sock")])
    drop_unused_nics()
    assert released == ["/one.sock"]
    assert not shared_nics()


def test_a_nic_that_a_meeting_is_about_to_use_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meetings may be in progress in several threads of a process, as COMM_WORLD's is while torch's begins."""
    nic = nic_launcher.NicReference("one", "/one.sock")
    nic.reserved = True
    use_shared_nics(monkeypatch, [nic])
    drop_unused_nics()
    assert shared_nics() == [nic]

    class User:
        ended = False

    user = User()
    nic.use(user)
    assert nic.in_use
    user.ended = True
    drop_unused_nics()
    assert not shared_nics()


@pytest.mark.usefixtures("no_nic")
def test_a_nic_that_cannot_start_is_every_ranks_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTNIC_NIC_FLAGS", "--offload 0x28=nonsense")
    store = Shelf()
    errors = together(2, lambda rank: init_communicator(store, rank, 2))
    for error in errors:
        assert isinstance(error, CommError)
        assert error.rank == 0
        assert "did not start" in str(error)
        assert "nonsense" in str(error)


@pytest.mark.usefixtures("no_nic")
def test_all_have_a_nic_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Shelf()
    store.set("softnic/world/host/1", '{"given": true}')
    with pytest.raises(CommError, match=r"rank 1 has a NIC of its own \(SOFTNIC_NIC\) and rank 0 has none"):
        init_communicator(store, 0, 2)
    monkeypatch.setenv("SOFTNIC_WIRE", "no such interface")
    with pytest.raises(CommError, match="SOFTNIC_WIRE=no such interface"):
        init_communicator(Shelf(), 0, 2)


# -- hosts


def test_where_other_hosts_reach_this_one() -> None:
    assert host_address.wire({"SOFTNIC_WIRE": "192.0.2.9:4789"})[:2] == ("192.0.2.9", 4789)
    assert host_address.wire({"SOFTNIC_WIRE": "lo"})[:2] == ("127.0.0.1", 0)
    assert host_address.wire({"SOFTNIC_WIRE": "lo"}).local
    assert not host_address.wire({"SOFTNIC_WIRE": "192.0.2.9"}).local
    for text in ("lo:port", "192.0.2.9:70000", "nowhere0"):
        with pytest.raises(ValueError, match="SOFTNIC_WIRE"):
            host_address.wire({"SOFTNIC_WIRE": text})
    found = host_address.wire({"MASTER_ADDR": "127.0.0.1"})
    assert isinstance(found, Wire)  # wherever this runs, there is an address: loopback's, where there is no other
    assert found.mtu >= 576


@pytest.mark.parametrize(("mtus", "expected"), [([1500, 9000], 1450), ([65536], 9000), ([1500, 300], 576)])
def test_packets_fit_into_all_interfaces(mtus: list[int], expected: int) -> None:
    assert host_address.nic_mtu(mtus) == expected


def test_sealed_packets_fit_too() -> None:
    """IPv4, UDP, what sealing adds, Ethernet."""
    assert host_address.nic_mtu([1500], encrypted=True) == 1500 - 20 - 8 - secure_channel.OVERHEAD - 14


def test_hosts_are_told_apart_by_more_than_their_name() -> None:
    assert host_address.identity() == host_address.identity()
    assert str(Path("/proc/self/ns/net").readlink()) in host_address.identity()


@needs.hosts
def test_two_hosts_with_two_ranks_each() -> None:
    """Their NICs find each other's wires; when the hosts' first ranks have ended, no NIC is left on either."""
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right)
        store = f"{left.address}:29999"
        environment = {"WORLD_SIZE": "4", "SOFTNIC_STORE": store}
        commands = [(host.command([]), environment | {"RANK": str(2 * at + rank)})
                    for at, host in enumerate((left, right)) for rank in range(2)]  # fmt: skip
        with Ranks(EXCHANGE, commands) as ranks:
            told = [ranks.line(rank) for rank in range(4)]
            ranks.finish()
        assert all(gone(each) for each in told)
    assert len({each["crc"] for each in told}) == 1
    assert [each["where"] for each in told] == ["10.77.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.2"]
    assert told[0]["pid"] == told[1]["pid"] != told[2]["pid"] == told[3]["pid"]
    assert {each["found"] for each in told} == {f"SOFTNIC_STORE={store}"}
