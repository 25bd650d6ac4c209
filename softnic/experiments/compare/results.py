"""What trainings came to, one file each, so that a comparison that was cut off goes on where it was.

A file is taken again for the same training only: model, method, data, schedule, seed, ranks and links. What other
settings gave is measured anew and replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softnic.experiments.compare.learn import Look
from softnic.experiments.compare.plan import Job


@dataclass(frozen=True)
class Result:
    """One training by one method."""

    model: str
    method: str
    looks: tuple[Look, ...]
    took_s: float
    """With all that is not counted: meeting, judging."""

    @property
    def last(self) -> Look:
        return self.looks[-1]

    @property
    def diverged(self) -> bool:
        """Whether the weights were no numbers any more at the end."""
        return not (math.isfinite(self.last.loss) and math.isfinite(self.last.score))

    def as_json(self) -> dict[str, Any]:
        """What is no number is null."""
        return {**asdict(self), "looks": [numbers(asdict(look)) for look in self.looks]}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Result:
        looks: list[dict[str, Any]] = given["looks"]
        filled: Iterable[dict[str, Any]] = (
            {key: math.nan if value is None else value for key, value in look.items()} for look in looks
        )
        return cls(given["model"], given["method"], tuple(Look(**look) for look in filled), given["took_s"])


class Results:
    """A directory of results; None keeps none."""

    def __init__(self, directory: Path | None, link: Mapping[str, str]) -> None:
        self._directory = directory
        self._link = link

    def find(self, job: Job) -> Result | None:
        """What this training came to before."""
        if self._directory is None:
            return None
        try:
            given = json.loads(self._path(job).read_text())
        except (FileNotFoundError, ValueError):
            return None
        if given.get("digest") != job.digest(self._link):
            return None
        return Result.from_json(given["result"])

    def keep(self, job: Job, result: Result) -> None:
        """All of it, or nothing. Raises OSError."""
        if self._directory is None:
            return
        content = {"digest": job.digest(self._link), "job": asdict(job), "link": dict(self._link)}
        path = self._path(job)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps({**content, "result": result.as_json()}, indent=2) + "\n")
        unfinished.replace(path)

    def _path(self, job: Job) -> Path:
        assert self._directory is not None
        name = "".join(c if c.isalnum() or c in "-+.," else "_" for c in f"{job.model}-{job.method}")
        return self._directory / f"{name}.json"


def numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with None for what JSON has no number for."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in given.items()
    }
