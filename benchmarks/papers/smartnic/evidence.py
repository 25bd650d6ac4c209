"""What the results say of the smart NIC's claims: the figures that `claims.toml` names."""

from __future__ import annotations

from benchmarks.papers.claim import Figures, Results
from benchmarks.papers.item import change
from benchmarks.papers.smartnic import paper

_NICS = ("NIC", "NIC+BFP")


def _beside(results: Results, batch: int, what: str) -> float:
    """Return an iteration's figure in virtual time that the paper has, too."""
    return results.value("smartnic iterations", "here", "paper", batch=batch, what=what)


def formula_errors(results: Results) -> Figures:
    """Return by how many percent the formulas are off virtual time."""
    return Figures(map(abs, results.values("smartnic fig4b", "formula's time off by (%)", "scaling")))


def hosts(results: Results) -> dict[str, float]:
    """Return percent of the iteration that a naive all-reduce is exposed for, and how much faster an overlapped is."""
    batch = paper.FIG_2_BATCH
    exposed = 100 * _beside(results, batch, "naive: exposed share")
    return {"exposed": exposed, "faster": _beside(results, batch, "naive / overlapped")}


def real_hosts(results: Results) -> str:
    """Return the same over real NICs, if they were measured."""
    if "smartnic fig2" not in results:
        return ""
    real = results.value("smartnic fig2", "here", what="iteration, naive / overlapped")
    return f"; {real:.2f} times over NICs that share two cores"


def schemes(results: Results) -> dict[str, float]:
    """Return the throughput of twelve nodes in multiples of one node's."""
    names = ("ring", "Rabenseifner", "default", "binomial gather/scatter")
    return {name: results.value("smartnic fig2b", name, batch=paper.FIG_2_BATCH, nodes=12) for name in names}


def nics(results: Results) -> Figures:
    """Return percent that NICs save of what is exposed and in total, then the same with BFP."""
    return Figures(
        100 * _beside(results, paper.FIG_4_BATCH, f"{nic}: less {what}")
        for nic in _NICS
        for what in ("exposed", "in total")
    )


def real_nics(results: Results) -> str:
    """Return what real NICs save that share this machine's cores with the workers, if they were measured."""
    if "smartnic fig4" not in results:
        return ""
    found = [
        change([results.value("smartnic fig4", "here", less_than_overlapped_by_the_host____=f"{nic}: {what}") / 100], 0)
        for nic in _NICS
        for what in ("exposed all-reduce", "iteration")
    ]
    return f"; over NICs that share two cores {found[0]} and {found[1]}, with BFP {found[2]} and {found[3]}"


def gains_on_6(results: Results) -> Figures:
    """Return the gains over the baseline on 6 nodes, of the published batches and NICs."""
    return _gains(results, 6, (448, "NIC+BFP"), (1792, "NIC"))


def gains_on_32(results: Results) -> Figures:
    """Return the gains over the baseline on 32 nodes."""
    return _gains(results, 32, (448, "NIC"), (448, "NIC+BFP"), (1792, "NIC"))


def _gains(results: Results, nodes: int, *wanted: tuple[int, str]) -> Figures:
    return Figures(
        results.value("smartnic fig4b", "by formula", "gains", batch=batch, nodes=nodes, variant=variant)
        for batch, variant in wanted
    )


def faster_links(results: Results) -> Figures:
    """Return milliseconds of an iteration with links of 100 and 400 Gbit/s."""
    return Figures(
        results.value("smartnic iterations", rate, "rates", nodes=6, exchange="NIC") for rate in ("100gbit", "400gbit")
    )
