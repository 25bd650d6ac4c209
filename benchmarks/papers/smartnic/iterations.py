"""The smart NIC's Figs. 2a and 4a in virtual time: iterations of the paper's system, at its width and batches.

Six nodes that compute as fast as softnic.model infers from the paper exchange by the hosts over 100 Gbit/s, naively and
overlapped, or by NICs over 40 Gbit/s. In virtual time six NICs need no six cores: nothing but the network and its
protocols takes longer than the formulas say. Layers and links are `perceptron.SCALE` times smaller, which leaves every
time as it is; hosts' sums take as many times longer a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, bars, percent
from benchmarks.papers.smartnic import paper, perceptron
from benchmarks.papers.virtual import second_run
from softnic.measure.plot import Bars
from softnic.model import programs
from softnic.model.parameters import PAPER
from softnic.model.predict import iteration_of, layer_times_of
from softnic.model.smartnic import LayerTimes
from softnic.sim.processes import Condition, Floats, Program, Until
from softnic.sim.rank import SimRank
from softnic.units import rate_bps

NAIVE, HOST, NIC, BFP = "naive", "overlapped by the host", "NIC", "NIC+BFP"
STRATEGIES = {NAIVE: "ring", HOST: "host", NIC: "nic", BFP: "nic+c"}
"""Of softnic.model."""
QUICK_SCALE = 1024
NIC_RATES = (paper.MLP.nic_rate, "100gbit", "400gbit")
"""Of the links that Table I's FPGAs are for."""
_PARTS = ("forward", "backward", "update")


class Alongside:
    """Condition: a program of the host has ended that runs beside its computation, and a time has come."""

    def __init__(self, program: Program, until: Until) -> None:
        self._program: Program | None = program
        self._awaited: Condition | None = None
        self._until = until

    def holds(self, now: float) -> bool:
        while self._program is not None and (self._awaited is None or self._awaited.holds(now)):
            self._awaited = next(self._program, None)
            if self._awaited is None:
                self._program = None
        return self._program is None and self._until.holds(now)

    def next_time(self) -> float | None:
        if self._program is None:
            return self._until.next_time()
        return None if self._awaited is None else self._awaited.next_time()


def by_host(rank: SimRank, times: Sequence[LayerTimes], gradients: Sequence[Floats], gamma: float) -> Program:
    """Run an iteration like programs.overlapped whose all-reduces, rings of whole layers, are executed by hosts."""
    yield rank.compute(sum(layer.forward_s for layer in times))
    yield rank.compute(times[-1].backward_s)
    for index in range(len(times) - 1, -1, -1):
        beside = times[index + 1].update_s if index + 1 < len(times) else 0.0
        beside += times[index - 1].backward_s if index else 0.0
        yield Alongside(programs.ring(rank, gradients[index], gamma), rank.compute(beside))
    yield rank.compute(times[0].update_s)


def naive(rank: SimRank, times: Sequence[LayerTimes], gradients: Sequence[Floats], gamma: float) -> Program:
    """Run an iteration in which all cores compute, and wait for each all-reduce."""
    yield rank.compute(sum(layer.forward_s + layer.backward_s for layer in times))
    for gradient in gradients:
        yield from programs.ring(rank, gradient, gamma)
    yield rank.compute(sum(layer.update_s for layer in times))


def computed(strategy: str, batch: int) -> list[LayerTimes]:
    """Return the layers' times with the paper's parameters, on its six nodes."""
    rate = paper.MLP.host_rate if strategy in (NAIVE, HOST) else paper.MLP.nic_rate
    return layer_times_of(perceptron.plan(batch, rate), PAPER, STRATEGIES[strategy], paper.MLP.nodes)


def simulated(strategy: str, batch: int, scale: int) -> float:
    """Return the seconds of an iteration in virtual time."""
    times = computed(strategy, batch)
    words = perceptron.NETWORK[0].parameters // scale
    drawn = np.random.default_rng(6).standard_normal((paper.MLP.nodes, len(times), words), np.float32)
    vectors = drawn * np.float32(0.01)
    gamma = scale / PAPER.add_bytes_s
    hosts: dict[str, Callable[..., Program]] = {NAIVE: naive, HOST: by_host}

    def program(rank: SimRank) -> Program:
        gradients = list(vectors[rank.index])
        if strategy in hosts:
            return hosts[strategy](rank, times, gradients, gamma)
        return programs.overlapped(rank, times, gradients, perceptron.BFP if strategy == BFP else "")

    rate = rate_bps(paper.MLP.host_rate if strategy in hosts else paper.MLP.nic_rate)
    return second_run(paper.MLP.nodes, rate / scale, program, lambda: np.copyto(vectors, drawn * np.float32(0.01)))


def make(context: Context) -> Item:
    scale = QUICK_SCALE if context.quick else perceptron.SCALE
    rows: list[Row] = []
    for batch in paper.FIG_4_BATCHES:
        for strategy in STRATEGIES:
            what = f"{strategy}, batch {batch}"
            context.progress(f"smartnic iterations: {what}")
            total = context.kept.once(what, {"scale": scale}, partial(simulated, strategy, batch, scale), float)
            times = computed(strategy, batch)
            parts = [sum(getattr(layer, f"{part}_s") for layer in times) for part in _PARTS]
            exposed = total - sum(parts)
            rows.append([batch, strategy, *(1e3 * part for part in parts), 1e3 * exposed, 1e3 * total, exposed / total])
    columns = "batch | exchange | forward ms [.1f] | backward ms [.1f] | update ms [.1f] | exposed ms [.1f]"
    comparison = _comparison(rows)
    return Item(
        "iterations of the paper's system, in virtual time",
        [
            ValueTable(f"{paper.MLP.nodes} nodes", f"{columns} | total ms [.1f] | exposed share [.3f]", rows),
            ValueTable("Beside the paper", "batch | what | paper [.2f] | here [.2f]", comparison, "paper"),
            ValueTable(
                f"Iterations by formula with faster links of the NICs, ms, batch {paper.FIG_4_BATCH}; paper: Table I",
                " | ".join(("nodes | exchange", *(f"{rate} [.1f]" for rate in NIC_RATES))),
                _faster(),
                "rates",
            ),
        ],
        [_chart(rows, paper.FIG_4_BATCH), _paper_chart(comparison)],
        [
            "Virtual time, links of 1 us that leave every 20 us. softnic.model infers the speed of the paper's hosts "
            f"and of their sums from Fig. 4a, batch {paper.FIG_4_BATCH}, so the overlapped baseline there is bound to "
            "come near; with NICs and at the other batch it is not.",
            f"Layers and links {scale} times smaller, sums {scale} times slower a byte, so that times stay the same.",
        ],
        _findings(comparison),
        {"scale": scale, "nodes": paper.MLP.nodes},
    )


def _faster() -> list[Row]:
    """Milliseconds of an iteration by formula at each of the NICs' rates."""
    rows: list[Row] = []
    for nodes in (paper.MLP.nodes, 32):
        for name in (NIC, BFP):
            plans = [perceptron.plan(paper.FIG_4_BATCH, rate) for rate in NIC_RATES]
            times = [layer_times_of(plan, PAPER, STRATEGIES[name], nodes) for plan in plans]
            rows.append([nodes, name, *(1e3 * iteration_of(each, STRATEGIES[name]).total_s for each in times)])
    return rows


def _chart(rows: Sequence[Row], batch: int) -> Bars:
    own = [row for row in rows if row[0] == batch]
    names = (*_PARTS, "exposed")
    series = {name: [float(row[2 + place] or 0) for row in own] for place, name in enumerate(names)}
    return Bars(f"Batch {batch}", "ms", [str(row[1]) for row in own], series, stacked=True)


def _paper_chart(comparison: Sequence[Row]) -> Bars:
    groups = [f"{batch}, {what}" for batch, what, *_ in comparison]
    return bars("Beside the paper", "share, or times", groups, comparison, {"paper": 2, "here": 3})


def _comparison(rows: Sequence[Row]) -> list[Row]:
    found = {(row[0], row[1]): [float(value or 0) for value in row[2:]] for row in rows}
    large, small = paper.FIG_2_BATCH, paper.FIG_4_BATCH

    def less(part: int, strategy: str) -> float:
        return 1 - found[small, strategy][part] / found[small, HOST][part]

    return [
        [large, "naive: exposed share", paper.FIG_2_EXPOSED_SHARE, found[large, NAIVE][5]],
        [large, "naive / overlapped", paper.FIG_2_SPEED_UP, found[large, NAIVE][4] / found[large, HOST][4]],
        [large, "overlapped / NIC", paper.FIG_4_GAIN_AT_6[large]["NIC"], found[large, HOST][4] / found[large, NIC][4]],
        [small, "NIC: less exposed", paper.FIG_4_LESS_EXPOSED, less(3, NIC)],
        [small, "NIC: less backward", paper.FIG_4_LESS_BACKWARD, less(1, NIC)],
        [small, "NIC: less in total", paper.FIG_4_LESS_TOTAL, less(4, NIC)],
        [small, "NIC+BFP: less exposed", paper.FIG_4_LESS_EXPOSED_BFP, less(3, BFP)],
        [small, "NIC+BFP: less in total", paper.FIG_4_LESS_TOTAL_BFP, less(4, BFP)],
    ]


def _findings(comparison: Sequence[Row]) -> list[str]:
    _, naive_row, _, *small = ([float(value or 0) for value in row[2:]] for row in comparison)
    exposed, _, total, bfp_exposed, bfp_total = small
    return [
        f"Fig. 4a: NICs expose {percent(exposed[1], 0)} less than the host and take {percent(total[1], 0)} less time "
        f"(paper: {percent(exposed[0], 0)} and {percent(total[0], 0)}), with BFP {percent(bfp_exposed[1], 0)} and "
        f"{percent(bfp_total[1], 0)} (paper: {percent(bfp_exposed[0], 0)} and {percent(bfp_total[0], 0)}).",
        f"Fig. 2a: overlap by the host makes the naive iteration {naive_row[1]:.2f} times as fast (paper: "
        f"{naive_row[0]:.2f}).",
    ]
