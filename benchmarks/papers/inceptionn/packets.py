"""INCEPTIONN's Fig. 12 in both modes of softnic's NICs: frames that are filled, and packets that become shorter.

The paper's NIC compresses each packet that the host hands it (section VI): there are as many packets as before, with
shorter payloads, and headers weigh more the better the ratio is. softnic's usual mode compresses first and fills
frames. In virtual time, with the gradients of the worker-aggregator and of the ring compressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.item import Item, Row, ValueTable, change
from benchmarks.papers.virtual import COALESCE_S, DELAY_S, add_gamma
from softnic import codecs
from softnic.measure.plot import Bars
from softnic.model import programs
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec
from softnic.units import rate_bps

SIGMAS = (0.002, 0.0008, 0.0003)
"""Standard deviations of the gradients: ratios from the paper's least to its best."""
WORDS, QUICK_WORDS = 1 << 19, 1 << 14
CODEC = paper.FIG_12_CODEC
FILL, PACKET, EXACT = "fill", "packet", "exact"
MODEL = "alexnet"
"""The model whose sums take as long as Table II has it."""
WA, INC = "WA", "INC"


@dataclass(frozen=True)
class ExchangeFigures:
    """One exchange of four workers."""

    seconds: float
    frames: int
    """Sent by all NICs, acknowledgements included."""
    megabytes: float
    """On all links, with all headers."""


def exchange(kind: str, mode: str, sigma: float, words: int) -> ExchangeFigures:
    """Exchange random gradients twice in virtual time. Returns the figures of the second time."""
    nodes = paper.WORKERS + (kind == WA)
    spec = ClusterSpec(
        nodes=nodes,
        rate_bps=rate_bps(paper.LINK),
        delay_s=DELAY_S,
        coalesce_s=COALESCE_S,
        mode="packet" if mode == PACKET else "fill",
    )
    drawn = _gradients(nodes, sigma, words)
    vectors = drawn.copy()
    codec, gamma = "" if mode == EXACT else CODEC, add_gamma(MODEL)

    def program(rank: SimRank) -> Program:
        run = programs.worker_aggregator if kind == WA else programs.ring
        return run(rank, vectors[rank.index], gamma, codec)

    cluster = SimCluster(spec)
    cluster.run(program)
    before = _sent(cluster)
    vectors[:] = drawn
    seconds = cluster.run(program)
    frames, sent = (after - was for after, was in zip(_sent(cluster), before, strict=True))
    return ExchangeFigures(seconds, frames, sent / 1e6)


def _gradients(nodes: int, sigma: float, words: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(12).standard_normal((nodes, words), np.float32) * np.float32(sigma)


def _sent(cluster: SimCluster) -> tuple[int, int]:
    counters = [rank.node.nic.counters for rank in cluster.ranks]
    return sum(each.tx_frames for each in counters), sum(each.tx_wire_bytes for each in counters)


def make(context: Context) -> Item:
    words = QUICK_WORDS if context.quick else WORDS
    sigmas = SIGMAS[:1] if context.quick else SIGMAS
    rows: list[Row] = []
    saved: dict[tuple[float, str, str], ExchangeFigures] = {}
    ratios: dict[float, float] = {}
    for sigma in sigmas:
        sample = _gradients(1, sigma, 1 << 16)[0]
        ratios[sigma] = sample.nbytes / len(codecs.get(CODEC).encode(sample))
        for kind in (WA, INC):
            for mode in (EXACT, FILL, PACKET):
                what = f"{kind}, {mode}, sigma {sigma}"
                context.progress(f"packets: {what}")
                settings = {"words": words, "gamma": add_gamma(MODEL), "rate": paper.LINK}
                measure = partial(exchange, kind, mode, sigma, words)
                own = saved[sigma, kind, mode] = context.kept.once(what, settings, measure, ExchangeFigures)
                base = saved[sigma, WA, EXACT].seconds
                less = 100 * (1 - own.seconds / base)
                rows.append([ratios[sigma], kind, mode, 1e3 * own.seconds, less, own.frames, own.megabytes])
    columns = (
        "ratio of the codec [.1f] | exchange | mode | ms [.3f] | less than WA, exact (%) [.1f] | frames [,d] | "
        "MB on links [.2f]"
    )
    return Item(
        "compressed exchanges in fill and in packet mode",
        [ValueTable(f"Exchange of {4 * words / 1e6:.1f} MB by four workers; paper: Fig. 12", columns, rows)],
        [_chart(ratios, saved)],
        [
            f"Virtual time: links of {paper.LINK}, NICs and codecs that take no time, normally distributed gradients "
            f"of sigma {', '.join(map(str, sigmas))}. The paper computed times of compressed exchanges from ratios.",
        ],
        _findings(ratios, saved),
        {"words": words, "codec": CODEC},
    )


def _chart(ratios: Mapping[float, float], saved: Mapping[tuple[float, str, str], ExchangeFigures]) -> Bars:
    groups = [f"{kind}+C, {ratio:.1f}" for ratio in ratios.values() for kind in (WA, INC)]
    series = {
        mode: [1e3 * saved[sigma, kind, mode].seconds for sigma in ratios for kind in (WA, INC)]
        for mode in (EXACT, FILL, PACKET)
    }
    return Bars("Exchange, by ratio of the codec", "ms", groups, series)


def _findings(ratios: Mapping[float, float], saved: Mapping[tuple[float, str, str], ExchangeFigures]) -> list[str]:
    low, high = paper.FIG_12_LESS_COMMUNICATION_INC_C
    lines = []
    for sigma, ratio in ratios.items():
        fill, packet, exact = (saved[sigma, INC, mode] for mode in (FILL, PACKET, EXACT))
        filled, packets = (change([1 - own.seconds / exact.seconds]) for own in (fill, packet))
        lines.append(
            f"Ratio {ratio:.1f}: INC+C takes {filled} time than INC in fill mode and {packets} in packet mode, which "
            f"sends {packet.frames / fill.frames:.1f} times the frames and "
            f"{packet.megabytes / fill.megabytes:.2f} times the bytes of fill mode."
        )
    most = {
        mode: [1 - saved[s, INC, mode].seconds / saved[s, WA, EXACT].seconds for s in ratios] for mode in (FILL, PACKET)
    }
    return [
        *lines,
        f"Against WA, INC+C takes {change(most[FILL])} time in fill mode and {change(most[PACKET])} in packet mode; "
        f"the paper has {100 * low:.1f} to {100 * high:.1f} % less.",
    ]
