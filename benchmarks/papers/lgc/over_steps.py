"""The information that two nodes' gradients have in common during a training, for LGC's Figs. 3 and 12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.papers.context import Context, needs_torch
from benchmarks.papers.learner import one_thread
from benchmarks.papers.lgc.gradients import steps
from benchmarks.papers.lgc.training import TITLES
from softnic.gradients.information import LEVELS, PAPER_LEVELS, estimate

LEAST_WORDS = 128
"""Layers with fewer elements are left out: their histograms say nothing."""


@dataclass(frozen=True)
class Look:
    """Estimates of a layer at a step, in bits an element: with 2^32 levels, and with 64."""

    step: int
    layer: str
    entropy: float
    mutual: float
    chance: float
    """Of shuffled gradients, which have nothing in common."""
    coarse_entropy: float
    coarse_mutual: float
    coarse_chance: float

    @property
    def share(self) -> float:
        """Share of the entropy that is common by the paper's estimate."""
        return self.mutual / self.entropy if self.entropy else 0.0

    @property
    def chance_share(self) -> float:
        return self.chance / self.entropy if self.entropy else 0.0

    @property
    def beyond(self) -> float:
        """Share that is common beyond chance, with 64 levels."""
        excess = max(0.0, self.coarse_mutual - self.coarse_chance)
        return excess / self.coarse_entropy if self.coarse_entropy else 0.0


def looks(
    context: Context, model: str, nodes: int, pair: tuple[int, int], count: int, at: Sequence[int]
) -> tuple[Look, ...]:
    """Return the estimates of every layer for two of the nodes of a training of `count` steps, at the steps `at`.

    The item's file keeps them. Raises ReproduceError without torch.
    """

    def measure() -> tuple[Look, ...]:
        found = []
        for step, gradients in enumerate(steps(context, model, nodes, count), start=1):
            context.progress(f"{TITLES[model]}, {nodes} nodes, step {step} of {count}")
            if step in at:
                a, b = (gradients[node] for node in pair)
                for name in (name for name in a if a[name].size >= LEAST_WORDS):
                    fine, coarse = (estimate(a[name], b[name], levels) for levels in (PAPER_LEVELS, LEVELS))
                    figures = [part for each in (fine, coarse) for part in (each.entropy, each.mutual, each.by_chance)]
                    found.append(Look(step, name, *figures))
        return tuple(found)

    settings = {"pair": pair, "count": count, "at": list(at), "seed": context.settings.seed, "data": context.data.name}
    with needs_torch("LGC", ""), one_thread():
        return context.kept.once(f"{TITLES[model]}, {nodes} nodes", settings, measure, tuple[Look, ...])
