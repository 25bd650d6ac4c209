"""A random program: a list of calls that every rank makes, and when it waits for which. Pure, of its seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

MOST_RANKS = 9
MOST_ELEMENTS = 1_000_000
DEFAULT_CODEC = "bounded:10"
"""Of the clusters' NICs: what a compressed call uses that names none."""

HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
DTYPES = (
    *FLOATS, "float32", "float32", "complex64", "complex128", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip
CODECS = (
    None, "raw", "bounded:4", "bounded:8", "bounded:12", "inceptionn:8", "inceptionn:12", "bfp:3", "bfp:7", "bfp:15",
    "truncate:8", "truncate:12", "truncate:16", "truncate:23", "truncate:32", "auto", "auto:bfp:9",
)  # fmt: skip
ALGORITHMS = (None, "ring", "direct", "tree", "hierarchical", "hierarchical:2", "wa")
COLLECTIVES = ("allreduce", "allreduce", "allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "allgather",
               "bcast")  # fmt: skip


@dataclass(frozen=True)
class Call:
    """What all ranks do alike."""

    index: int
    collective: str
    dtype: str
    count: int
    """Elements of a rank's whole input; of an allgather, of each rank's block."""
    op: str
    root: int
    counts: tuple[int, ...] | None
    """Of a reduce_scatter; None: as the call cuts."""
    compressed: bool
    codec: str | None
    algorithm: str | None
    in_place: bool
    registered: bool
    nonblocking: bool
    wait_after: int
    """The index of the call after which a Request is waited for; more than there are: at the end, by Waitall."""
    polls: bool
    """And whether by Test."""
    scale: float
    """Of floats."""

    @property
    def name(self) -> str:
        """The method's."""
        name = ("I" + self.collective) if self.nonblocking else self.collective.capitalize()
        return name + "_comp" * self.compressed

    @property
    def reduces(self) -> bool:
        return self.collective not in ("allgather", "bcast")


@dataclass(frozen=True)
class Program:
    seed: int
    size: int
    calls: tuple[Call, ...]


def make(seed: int, *, nonblocking: bool = True, most_elements: int = MOST_ELEMENTS, size: int = 0) -> Program:
    """`size` 0: of the seed, too. The other options leave the rest of a program as it is, or as like as can be."""
    rng = random.Random(seed)
    drawn = rng.randint(1, MOST_RANKS)
    size = size or drawn
    length = rng.randint(2, 6)
    largest = min(most_elements, round(10 ** rng.uniform(0, 6)))
    calls = tuple(_call(rng, index, length, size, largest, nonblocking) for index in range(length))
    return Program(seed, size, calls)


def _call(rng: random.Random, index: int, length: int, size: int, largest: int, nonblocking: bool) -> Call:
    collective, dtype = rng.choice(COLLECTIVES), rng.choice(DTYPES)
    count = rng.choice((0, 1, rng.randint(0, 2 * size), *4 * [rng.randint(0, largest)], largest))
    counts = None
    if collective in ("allgather", "reduce_scatter_block"):
        count //= size
    if collective == "reduce_scatter_block":
        count *= size
    elif collective == "reduce_scatter" and rng.random() < 0.5:
        ends = sorted(rng.randint(0, count) for _ in range(size - 1))
        counts = tuple(end - start for start, end in zip([0, *ends], [*ends, count], strict=True))
    posted = rng.random() < 0.5
    compressed = rng.random() < 0.6
    return Call(
        index,
        collective,
        dtype,
        count,
        rng.choice(operations(dtype)),
        rng.randrange(size),
        counts,
        compressed,
        rng.choice(CODECS),
        rng.choice(ALGORITHMS),
        rng.random() < 0.4,
        rng.random() < 0.4,
        posted and nonblocking,
        index + rng.choice((0, 1, 2, length)),
        rng.random() < 0.3,
        rng.choice((0.01, 1.0)),
    )


def operations(dtype: str) -> tuple[str, ...]:
    """Those that are defined for it."""
    if dtype.startswith("complex"):
        return ("SUM", "PROD", "AVG")
    if dtype == "bool":
        return ("LAND", "LOR", "LXOR")
    return ("SUM", "SUM", "PROD", "MAX", "MIN", *(("AVG",) if dtype in FLOATS else ()))
