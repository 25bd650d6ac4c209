"""The smart NIC's claims."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.experiments.reproduce.claim import Claim, Results
from softnic.experiments.reproduce.item import change, percent
from softnic.experiments.reproduce.smartnic import paper

_WRONG = "#what-does-not-hold"

_ITERATIONS = "#smart-nic-iterations"


def _beside(results: Results, batch: int, what: str) -> float:
    return results.value("smartnic iterations", "here", "paper", batch=batch, what=what)


def _nics(results: Results) -> str:
    found = [
        percent(_beside(results, paper.FIG_4_BATCH, f"{nic}: less {what}"), 0)
        for nic in ("NIC", "NIC+BFP")
        for what in ("exposed", "in total")
    ]
    return f"{found[0]} and {found[1]}; with BFP {found[2]} and {found[3]} (virtual time){_real_nics(results)}"


def _real_nics(results: Results) -> str:
    """Return what real NICs save that share this machine's cores with the workers, if they were measured."""
    if "smartnic fig4" not in results:
        return ""
    found = [
        change([results.value("smartnic fig4", "here", less_than_overlapped_by_the_host____=f"{nic}: {what}") / 100], 0)
        for nic in ("NIC", "NIC+BFP")
        for what in ("exposed all-reduce", "iteration")
    ]
    return f"; over NICs that share two cores {found[0]} and {found[1]}, with BFP {found[2]} and {found[3]}"


def _model_errors(results: Results) -> str:
    error = max(map(abs, results.values("smartnic fig4b", "formula's time off by (%)", "scaling")))
    return f"within 3 % of virtual time in all 66 cases of `softnic model check`; Fig. 4b within {error:.1f} %"


def _hosts(results: Results) -> str:
    exposed = percent(_beside(results, paper.FIG_2_BATCH, "naive: exposed share"), 0)
    faster = _beside(results, paper.FIG_2_BATCH, "naive / overlapped")
    text = f"{exposed}; {faster:.2f} times (virtual time)"
    if "smartnic fig2" in results:
        real = results.value("smartnic fig2", "here", what="iteration, naive / overlapped")
        text += f"; {real:.2f} times over NICs that share two cores"
    return text


def _gains(results: Results, nodes: int, *wanted: tuple[int, str]) -> str:
    found = (
        results.value("smartnic fig4b", "by formula", "gains", batch=batch, nodes=nodes, variant=variant)
        for batch, variant in wanted
    )
    return ", ".join(f"{gain:.2f}" for gain in found) + " by formula"


def _schemes(results: Results) -> str:
    def of(scheme: str) -> str:
        return f"{results.value('smartnic fig2b', scheme, batch=paper.FIG_2_BATCH, nodes=12):.1f}"

    return (
        f"12 nodes have {of('ring')} (ring), {of('Rabenseifner')}, {of('default')} (default) and "
        f"{of('binomial gather/scatter')} (binomial) times one node's throughput, by formula"
    )


def _rates(results: Results) -> str:
    found = (
        results.value("smartnic iterations", rate, "rates", nodes=6, exchange="NIC") for rate in ("100gbit", "400gbit")
    )
    fast, fastest = found
    return (
        "resources out of scope: softnic is software and has no logic to synthesise; with links of 100 and 400 Gbit/s "
        f"an iteration takes {fast:.0f} and {fastest:.0f} ms by formula"
    )


CLAIMS: Sequence[Claim] = (
    Claim(
        "Figs. 1, 3",
        "NICs execute all-reduces while hosts compute the next layer",
        "FPGA",
        "the collective engine of each NIC, with the trace of Fig. 3b",
        "confirmed",
        "`Iallreduce`, DDP",
        "collectives.md",
    ),
    Claim(
        "section IV-B",
        "BFP16: an exponent for 16 values of 8 bits",
        "ratio 3.8",
        "3.76: 17 bytes for 16 floats",
        "confirmed",
        "`bfp:7`",
        "codecs.md",
    ),
    Claim(
        "section IV-C",
        "a model of an iteration's time",
        "within 3 % of the prototype",
        _model_errors,
        "confirmed",
        "with the terms that model.md lists; without them headers of frames are missing (Fig. 4b)",
        "model.md#checked",
    ),
    Claim(
        "Fig. 2a",
        "a naive all-reduce is exposed for half of the iteration; the host overlaps it",
        "51 %; 1.85 times as fast",
        _hosts,
        "in part",
        "overlap helps by less: the naive baseline that fits Fig. 4a's hosts is faster than Fig. 2a's",
        _ITERATIONS,
    ),
    Claim(
        "Fig. 2b",
        "ring, Rabenseifner and MPI's default scale alike, binomial gather/scatter worse",
        "well up to 12 workers",
        _schemes,
        "in part",
        "the same order; MPICH's default loses where ranks are no power of two",
        "#smart-nic-fig2b",
    ),
    Claim(
        "Fig. 4a",
        "NICs hide the all-reduce",
        "37 % less exposed, 18 % less time; with BFP 95 and 40 %",
        _nics,
        "confirmed",
        "virtual time has the paper's width and batch; real NICs a quarter of both, and the workers' cores",
        _ITERATIONS,
    ),
    Claim(
        "Fig. 4b",
        "gain over the baseline on 6 nodes",
        "1.6 (448, BFP), 1.1 (1,792)",
        lambda results: _gains(results, 6, (448, "NIC+BFP"), (1792, "NIC")),
        "confirmed",
        "the parameters that the paper does not give are inferred from Fig. 4a, on 6 nodes",
        "#smart-nic-fig4b",
    ),
    Claim(
        "Fig. 4b",
        "gain over the baseline on 32 nodes",
        "1.8, with BFP 2.5 (448); 1.4 (1,792)",
        lambda results: _gains(results, 32, (448, "NIC"), (448, "NIC+BFP"), (1792, "NIC")),
        "refuted",
        "bandwidth, latency and sums do not explain a baseline that loses that much",
        _WRONG,
    ),
    Claim(
        "Table I, section V-A",
        "FPGA resources: 1.2, 6.1 and 0.5 % more; 100 and 400 Gbit/s",
        "logic, RAM, DSPs",
        _rates,
        "out of scope",
        "",
        _ITERATIONS,
    ),
)
