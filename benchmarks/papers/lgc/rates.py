"""LGC's bytes a step and its autoencoder's time on the true shapes of ResNet50, ResNet101 and PSPNet (Table VI).

Bytes depend on shapes, not on what was learned; the places of selected values, of normally distributed gradients, are
coded as in a training. The paper's figures are of values without their indices and without the first layer, which its
rates for DGC show (0.102 MB are 25.6 thousand float32): both counts are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod

import numpy as np

from benchmarks.papers.context import Context, needs_torch
from benchmarks.papers.item import Item, Row, ValueTable, bars
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.shapes import NETWORKS, NetworkShapes
from softnic.gradients import indices as coding
from softnic.gradients.lgc.autoencoder import DECODER, ENCODER, SHRINKS, Autoencoder, code_words, padded
from softnic.gradients.lgc.selection import layout, pack_indices, select, selected_of
from softnic.measure.plot import Bars
from softnic.measure.timing import ONE_CORE, seconds_a_call

INNOVATION = 0.1
SLICE_S, QUICK_SLICE_S = 4.0, 0.05
MB = 1e6
_METHODS = (paper.BASELINE, paper.DGC, paper.RING, paper.SERVER, paper.SERVER_OTHERS)
_COLUMNS = (
    "network | method | values MB [.4f] | ratio [.0f] | paper MB | paper ratio | with indices and first layer MB [.4f] "
    "| its ratio [.0f]"
)
_TIME_COLUMNS = (
    "network | selected values, covered [,d] | encoder ms [.2f] | decoder ms [.2f] | encoder GFLOP [.3f] | "
    "encoder's least ms on an RTX 2080 Ti [.4f]"
)


@dataclass(frozen=True)
class StepBytes:
    """Bytes that a node sends in a step, by what they are."""

    whole: int
    first: int
    """Of the first layer, exact."""
    selected: int
    """All selected values, as float32."""
    last: int
    """Selected values of the last layer."""
    code: int
    scales: int
    innovation: int
    """Its values and one bit for each covered value."""
    indices: int
    """In order of index, as DGC sends them."""
    ordered_indices: int
    """In order of value, as LGC sends them."""
    covered: int
    """Number of values that the autoencoder gets."""


def step_bytes(network: NetworkShapes, seed: int, share: float = paper.SHARE) -> StepBytes:
    """Count a step's bytes, with the places of the largest of random gradients."""
    rng = np.random.default_rng(seed)
    gradients = {name: rng.standard_normal(shape, np.float32) for name, shape in network.shapes.items()}
    given = layout(gradients, share)
    vector = np.concatenate([gradients[name].ravel() for name in given.names])
    chosen = select(vector, given)
    covered = given.covered
    innovation = sum(selected_of(part.stop - part.start, INNOVATION) for part in given.covered_parts())
    return StepBytes(
        whole=4 * network.words,
        first=4 * sum(prod(network.shapes[name]) for name in given.first),
        selected=4 * given.selected,
        last=4 * (given.selected - covered),
        code=4 * code_words(covered),
        scales=4 * given.covered_names,
        innovation=4 * innovation + -(-covered // 8),
        indices=len(coding.encode(np.sort(chosen).astype(np.int64))),
        ordered_indices=len(pack_indices(chosen, given)),
        covered=covered,
    )


def sent(method: str, step: StepBytes, nodes: int) -> tuple[int, int]:
    """Return the bytes of values that a node sends by a method, as the paper counts, and all that it sends."""
    ring = step.code + step.last
    others = step.innovation + step.last
    return {
        paper.BASELINE: (step.whole, step.whole),
        paper.DGC: (step.selected, step.selected + step.indices),
        paper.RING: (ring, ring + step.first + (step.ordered_indices + step.scales) // nodes),
        paper.SERVER: (others + step.code, others + step.code + step.first + step.ordered_indices + step.scales),
        paper.SERVER_OTHERS: (others, others + step.first + step.ordered_indices + step.scales),
    }[method]


def gflop(length: int) -> tuple[float, float]:
    """Return the multiplications and additions, in 10^9, of the encoder and a decoder for a vector of this length."""
    size, before, totals = padded(length), 1, []
    total = 0.0
    for filters, kernel, stride in ENCODER:
        size //= stride
        total += 2 * size * kernel * before * filters
        before = filters
    totals.append(total)
    total = 0.0
    for filters, kernel, stride in DECODER:
        total += 2 * size * kernel * before * filters
        size *= stride
        before = filters
    totals.append(total + 2 * size * before)
    assert size == padded(length)
    assert padded(length) % SHRINKS == 0
    return totals[0] / 1e9, totals[1] / 1e9


@dataclass(frozen=True)
class CoderTimes:
    """Milliseconds of CPU time on one core."""

    encode_ms: float
    decode_ms: float


def coder_times(length: int, slice_s: float) -> CoderTimes:
    """Measure a ring's autoencoder on a vector of this length, the fastest of all calls. Raises ImportError."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        coder = Autoencoder(innovation=False, seed=1)
        vector = np.random.default_rng(1).standard_normal(length, np.float32)
        code = coder.encode(vector)
        encode_s = seconds_a_call(lambda: coder.encode(vector), slice_s, ONE_CORE)
        decode_s = seconds_a_call(lambda: coder.decode(code, length), slice_s, ONE_CORE)
    finally:
        torch.set_num_threads(before)
    return CoderTimes(1e3 * encode_s, 1e3 * decode_s)


def make(context: Context) -> Item:
    rows: list[Row] = []
    times: list[Row] = []
    networks = NETWORKS[:1] if context.quick else NETWORKS
    for network in networks:
        context.progress(f"lgc rates: {network.title}")
        settings = {"share": paper.SHARE, "innovation": INNOVATION, "words": network.words}
        step = context.kept.once(network.title, settings, lambda of=network: step_bytes(of, 1), StepBytes)  # type: ignore[misc]
        rows += _rows(network, step)
        slice_s = QUICK_SLICE_S if context.quick else SLICE_S
        with needs_torch("LGC", ""):
            coder = context.kept.once(
                f"{network.title}, times",
                {"covered": step.covered, "slice_s": slice_s},
                lambda covered=step.covered, least=slice_s: coder_times(covered, least),  # type: ignore[misc]
                CoderTimes,
            )
        encoder, _ = gflop(step.covered)
        least_ms = 1e12 * encoder / paper.RTX_2080_TI_FLOPS
        times.append([network.title, step.covered, *asdict(coder).values(), encoder, least_ms])
    return Item(
        "bytes a step and times of the autoencoder, on networks of full size",
        [
            ValueTable("A node's bytes in a step of the last phase; paper: Table VI", _COLUMNS, rows),
            ValueTable("The autoencoder; paper: 0.007 ms and 1 ms", _TIME_COLUMNS, times, "times"),
        ],
        [_chart(rows, network) for network in networks],
        [
            "No training: bytes follow from the shapes. Indices are those of normally distributed gradients; places of "
            "real ones, which are less even, take somewhat less.",
            "PSPNet here is its own paper's, with 186 MB of parameters; LGC's has 120 MB, and is not described.",
            "Times are CPU time on one core; the paper has an RTX 2080 Ti.",
        ],
        list(_findings(rows, times, networks)),
        {"share": paper.SHARE, "innovation": INNOVATION},
    )


def _rows(network: NetworkShapes, step: StepBytes) -> Iterator[Row]:
    for method in _METHODS:
        size, ratio = paper.SIZES[network.published][method]
        values, everything = sent(method, step, network.nodes)
        yield [
            *(network.title, method, values / MB, step.whole / values, f"{size:g}", f"{ratio:,g}"),
            *(everything / MB, step.whole / everything),
        ]


def _chart(rows: Sequence[Row], network: NetworkShapes) -> Bars:
    own = [row for row in rows if row[0] == network.title and row[1] != paper.BASELINE]
    groups = [str(row[1]).replace("parameter ", "") for row in own]
    columns = {"paper": 4, "values": 2, "with indices and first layer": 6}
    return bars(f"{network.title}: a node's bytes in a step (Table VI)", "MB", groups, own, columns)


def _findings(rows: Sequence[Row], times: Sequence[Row], networks: Sequence[NetworkShapes]) -> Iterator[str]:
    found = {(row[0], row[1]): (float(row[2] or 0), float(row[6] or 0)) for row in rows}
    for network in networks:
        title = network.title
        (ring, ring_all), (dgc, dgc_all) = found[title, paper.RING], found[title, paper.DGC]
        server = paper.SIZES[network.published][paper.SERVER][0]
        yield (
            f"{title}: a ring's code and last layer are {ring:.3f} MB (paper: "
            f"{paper.SIZES[network.published][paper.RING][0]:g}), {dgc / ring:.1f} times fewer than DGC's values; with "
            f"indices and the first layer {dgc_all / ring_all:.1f} times fewer than DGC's with its indices. The "
            f"paper's worker of a server that sends code and innovation sends {server:g} MB, our code alone "
            f"and last layer {ring:.3f} MB."
        )
    encoder, decoder = (max(float(row[at] or 0) for row in times) for at in (2, 3))
    least = min(float(row[5] or 0) for row in times)
    yield (
        f"Encoding takes up to {encoder:.1f} ms here and decoding {decoder:.1f} ms. The paper's {paper.ENCODER_MS} ms "
        f"is less than the {least:.3f} ms that an RTX 2080 Ti needs for the multiplications of the smallest of these "
        "encoders at its peak: it can be the time to launch the kernels, not to run them."
    )
    compressed = {name: paper.TABLE_5[name] for name in (paper.SERVER, paper.RING)}
    last = " and ".join(f"{each['full'] / each['compressed']:.2f}" for each in compressed.values())
    whole = " and ".join(f"{_whole_speed_up(each):.2f}" for each in compressed.values())
    yield (
        f"The paper's speed-ups of {paper.SPEED_UP[paper.SERVER]} (server) and {paper.SPEED_UP[paper.RING]} (ring) are "
        f"those of Table V's last phase ({last}). Over a whole training, with 89 % of its steps in the last phase "
        f"(section VI-A), Table V gives {whole}."
    )


def _whole_speed_up(seconds: Mapping[str, float]) -> float:
    return seconds["full"] / sum(share * seconds[phase] for phase, share in paper.PHASE_SHARES.items())
