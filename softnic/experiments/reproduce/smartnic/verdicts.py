"""The smart NIC's claims."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.experiments.reproduce.claim import Claim

_TIMES, _WRONG = "#where-the-time-goes-made-here", "#what-does-not-hold"

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
        "within 3 % of virtual time in all 66 cases of `softnic model check`; 4.2 % at most for Fig. 4b's",
        "confirmed",
        "with the terms that model.md lists",
        "model.md#checked",
    ),
    Claim(
        "Fig. 2a",
        "a naive all-reduce is exposed for half of the iteration; the host overlaps it",
        "51 %; 1.85 times as fast",
        "33 %; 0.66 times",
        "refuted",
        "six workers and six NICs share two cores, which leaves nothing to overlap with",
        _TIMES,
    ),
    Claim(
        "Fig. 4a",
        "NICs hide the all-reduce",
        "37 % less exposed, 18 % less time; with BFP 95 and 40 %",
        "20 and 16 %; with BFP 20 and 14 %",
        "in part",
        "at a quarter of width and batch, on two cores",
        _TIMES,
    ),
    Claim(
        "Fig. 4b",
        "gain over the baseline on 6 nodes",
        "1.6 (448, BFP), 1.1 (1,792)",
        "1.70, 1.05 by formula",
        "confirmed",
        "the parameters that the paper does not give are inferred from Fig. 4a, on 6 nodes",
        _TIMES,
    ),
    Claim(
        "Fig. 4b",
        "gain over the baseline on 32 nodes",
        "1.8, with BFP 2.5 (448); 1.4 (1,792)",
        "1.24, 1.93; 1.05, 1.07 by formula",
        "refuted",
        "bandwidth, latency and sums do not explain a baseline that loses that much",
        _WRONG,
    ),
    Claim(
        "Table I, section V-A",
        "FPGA resources: 1.2, 6.1 and 0.5 % more; 100 and 400 Gbit/s",
        "logic, RAM, DSPs",
        "out of scope: softnic is software and has no logic to synthesise",
        "out of scope",
        "",
        _WRONG,
    ),
)
