"""Results of trainings, one file each, so that an interrupted comparison can continue.

A file is reused for the same training only: model, method, data, schedule, seed, ranks and links. Results of other
settings are measured again and replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softnic.experiments.compare.plan import TrainingJob
from softnic.experiments.compare.training import Evaluation
from softnic.experiments.report import finite


@dataclass(frozen=True)
class TrainingResult:
    """One training by one method."""

    model: str
    method: str
    evaluations: tuple[Evaluation, ...]
    took_s: float
    """Total time, with all that the evaluations do not count."""

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]

    @property
    def diverged(self) -> bool:
        """Whether the weights were NaN or infinite at the end."""
        return not (math.isfinite(self.last.loss) and math.isfinite(self.last.score))

    def as_json(self) -> dict[str, Any]:
        """Return the result with null in place of NaN and infinities."""
        looks = [finite(asdict(evaluation)) for evaluation in self.evaluations]
        return {"model": self.model, "method": self.method, "looks": looks, "took_s": self.took_s}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> TrainingResult:
        looks: list[dict[str, Any]] = [
            {name: math.nan if value is None else value for name, value in look.items()} for look in given["looks"]
        ]
        return cls(given["model"], given["method"], tuple(Evaluation(**look) for look in looks), given["took_s"])


class TrainingResults:
    """A directory of results. None: nothing is kept."""

    def __init__(self, directory: Path | None, link: Mapping[str, str]) -> None:
        self._directory = directory
        self._link = link

    def find(self, job: TrainingJob) -> TrainingResult | None:
        """Return the kept result of a training, if there is one."""
        if self._directory is None:
            return None
        try:
            given = json.loads(_path(self._directory, job).read_text())
        except (FileNotFoundError, ValueError):
            return None
        if given.get("digest") != job.digest(self._link):
            return None
        return TrainingResult.from_json(given["result"])

    def keep(self, job: TrainingJob, result: TrainingResult) -> None:
        """Write a result atomically. Raises OSError."""
        if self._directory is None:
            return
        content = {"digest": job.digest(self._link), "job": asdict(job), "link": dict(self._link)}
        path = _path(self._directory, job)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps({**content, "result": result.as_json()}, indent=2) + "\n")
        unfinished.replace(path)


def _path(directory: Path, job: TrainingJob) -> Path:
    name = "".join(c if c.isalnum() or c in "-+.," else "_" for c in f"{job.model}-{job.method}")
    return directory / f"{name}.json"
