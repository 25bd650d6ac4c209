"""How mpirun starts Open MPI's ranks on the hosts of a star, with TCP between them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.namespaces import Star

OPTIONS = (
    *("--allow-run-as-root", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"),
    *("--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"),
    *("--mca", "mpi_yield_when_idle", "1"),
)


def mpirun(star: Star, more: Sequence[str] = ()) -> list[str]:
    """Return the command to which that of a rank is appended, to be run on the first host."""
    hosts = star.supervisor.directory / "hosts"
    hosts.write_text("".join(f"{host.address} slots=1\n" for host in star.hosts))
    through = ["unshare", "--uts", "sh", "-c", 'hostname peer1; exec "$@"', "mpirun", "mpirun"]
    command = [*through, "-np", str(len(star.hosts)), "--hostfile", str(hosts), *OPTIONS, *more]
    return [*command, "--mca", "plm_rsh_agent", str(star.remote_shell()), "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS"]
