"""Random programs: many requests of all kinds in flight, on links of all kinds, by ranks that are not in step."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from softnic.collectives import schedule
from softnic.collectives.operations import AVG, MAX, SUM
from softnic.collectives.schedule import ALGORITHMS, COLLECTIVES

from .byhand import executed
from .group import LOSSY, Group
from .test_engine import CODECS, contributions, fields_of

LINKS: tuple[dict[str, Any] | None, ...] = (None, LOSSY, {"rate_bps": 2e8, "delay_s": 2e-3}, {"delay_s": 1e-4})


class Posted(NamedTuple):
    collective: str
    algorithm: str
    fields: dict[str, Any]
    sources: list[npt.NDArray[Any]]
    results: list[npt.NDArray[Any]]
    expected: list[npt.NDArray[Any]]

    def check(self) -> None:
        size, root = len(self.sources), self.fields.get("root", -1)
        cut = schedule.blocks(self.collective, self.algorithm, self.sources[0].size, size)
        for rank in range(size):
            part = cut[rank] if self.collective == "reduce_scatter" else slice(None)
            if self.collective != "reduce" or rank == root:
                assert self.results[rank][part].tobytes() == self.expected[rank][part].tobytes(), self[:3]


def request(draw: random.Random, size: int) -> Posted:
    collective, algorithm = draw.choice(COLLECTIVES), draw.choice((*ALGORITHMS, "hierarchical:2"))
    op, codec = draw.choice((SUM, MAX, AVG)), draw.choice(("", *CODECS))
    dtype = "float32" if codec else draw.choice(("float32", "float64", "int16"))
    if dtype == "int16":
        op = SUM
    count = draw.choice((draw.randrange(20), draw.randrange(3_000), draw.randrange(60_000)))
    sources = contributions(size, count, dtype, seed=draw.getrandbits(32))
    fields = {**fields_of(collective, size, op), "codec": codec}
    if "root" in fields:
        fields["root"] = draw.randrange(size)
    expected = executed(collective, algorithm, sources, op=op, codec=codec, root=fields.get("root", -1))
    in_place = collective in ("allgather", "bcast") or draw.random() < 0.5
    results = sources if in_place else [np.zeros_like(source) for source in sources]
    return Posted(collective, algorithm, fields, sources, results, expected)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randrange(2, 8)
    group = Group(size, seed=seed, link=LINKS[seed % len(LINKS)])
    for _ in range(3):
        program = [request(draw, size) for _ in range(draw.randrange(1, 12))]
        next_of = [0] * size
        while any(number < len(program) for number in next_of):
            rank = draw.choice([rank for rank in range(size) if next_of[rank] < len(program)])
            posted = program[next_of[rank]]
            next_of[rank] += 1
            group.post(
                rank,
                posted.sources[rank],
                posted.results[rank],
                posted.collective,
                algorithm=posted.algorithm,
                **posted.fields,
            )
            if draw.random() < 0.2:
                group.clock.run_for(group.members, draw.random() * 5e-3)
        group.run(120.0)
        for posted in program:
            posted.check()
    for member in group.members:
        assert sorted(member.completed) == list(range(1, member.posted + 1))
