"""Exchanges in virtual time: real bytes through the whole stack, between hosts and NICs that take no time themselves.

Sums take `gamma` seconds a byte where hosts add; where NICs add they take no time.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.papers.inceptionn import paper
from benchmarks.papers.over_nics import Sample
from softnic.model import programs
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec

DELAY_S = 1e-6
COALESCE_S = 20e-6
"""A link's delay, of a switch, and its batching, of a network card that moderates its interrupts."""


def second_run(
    nodes: int, rate_bps: float, program: Callable[[SimRank], Program], between: Callable[[], None] = lambda: None
) -> float:
    """Return the seconds of the second of two runs of a program: the first opens the connections' windows.

    `between` is called after the first run, to restore what it overwrote.
    """
    spec = ClusterSpec(nodes=nodes, rate_bps=rate_bps, delay_s=DELAY_S, coalesce_s=COALESCE_S, connect="all")
    cluster = SimCluster(spec)
    cluster.run(program)
    between()
    return cluster.run(program)


def in_virtual_time(given: Sample, name: str, rate_bps: float, gamma: float) -> float:
    """Return the seconds of an exchange of all gradients, sums included.

    Parameters
    ----------
    name
        `wa` or `inc`, exact, or with the codec of gradients: `inc+bounded:10`.
    rate_bps
        Rate of each link in bits a second.
    gamma
        Seconds a byte summed.
    """
    kind, _, codec = name.partition("+")
    workers = len(given.rows)
    vectors = [given.rows[index % workers].copy() for index in range(workers + (kind == "wa"))]

    def program(rank: SimRank) -> Program:
        run = programs.worker_aggregator if kind == "wa" else programs.ring
        return run(rank, vectors[rank.index], gamma, codec)

    def restore() -> None:
        for vector, own in zip(vectors, given.rows, strict=False):
            vector[:] = own

    return second_run(len(vectors), rate_bps, program, restore) * given.scale


def add_gamma(model: str) -> float:
    """Return the seconds a byte summed by INCEPTIONN's aggregator: Table II's gradient sum, of three additions."""
    seconds = paper.TABLE_2[model].gradient_sum / paper.TABLE_2_ITERATIONS
    return seconds / ((paper.WORKERS - 1) * paper.MODEL_MB[model] * 2**20)
