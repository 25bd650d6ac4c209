"""A figure over several seeds: its mean and how far the seeds are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SEEDS = (1, 2, 3)
"""Seeds of trainings whose accuracy is published."""


@dataclass(frozen=True)
class Spread:
    """The values of a figure, one for each seed, at least one."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample; 0 for a single value."""
        if len(self.values) < 2:
            return 0.0
        mean = self.mean
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self.values) / (len(self.values) - 1))

    def text(self, form: str = ".2f", factor: float = 1.0) -> str:
        """Format mean and deviation, both times `factor`: `97.72 ± 0.10`; of a single value, the value."""
        mean = format(self.mean * factor, form)
        return mean if len(self.values) < 2 else f"{mean} ± {format(self.deviation * factor, form.lstrip('+'))}"

    def less(self, other: Spread) -> Spread:
        """Return the differences to another figure, seed by seed. Raises ValueError for other numbers of seeds."""
        return Spread([own - theirs for own, theirs in zip(self.values, other.values, strict=True)])


def cell(values: Sequence[float], form: str = ".2f", factor: float = 1.0) -> str | None:
    """Return mean and deviation of the seeds that have the figure, as `Spread.text`; None where none has it."""
    return Spread(values).text(form, factor) if values else None
