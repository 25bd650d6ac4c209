"""Results of trainings, in a file for each model, so that an interrupted comparison can continue.

A result is reused for the same training only: model, method, data, schedule, seed, ranks and links. Results of other
settings stay beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from softnic.experiments.compare.plan import METHODS, TrainingJob
from softnic.experiments.compare.training import Evaluation
from softnic.measure.kept import ResultFile
from softnic.measure.report import finite


@dataclass(frozen=True)
class TrainingResult:
    """One training by one method."""

    model: str
    method: str
    evaluations: tuple[Evaluation, ...]
    took_s: float
    """Total time, with all that the evaluations do not count."""
    seed: int = 7

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]

    @property
    def diverged(self) -> bool:
        """Whether the weights were NaN or infinite at the end."""
        return self.last.diverged

    def as_json(self) -> dict[str, Any]:
        """Return the evaluations by field, with null in place of NaN and infinities."""
        looks = [finite(asdict(evaluation)) for evaluation in self.evaluations]
        return {"looks": {name: [look[name] for look in looks] for name in looks[0]}, "took_s": self.took_s}

    @classmethod
    def from_json(cls, job: Mapping[str, Any], given: Mapping[str, Any]) -> TrainingResult:
        """Return the result of a job, whose fields are given, too. Raises ValueError for anything else."""
        kept = msgspec.convert(given, _Kept)
        rows = zip(*kept.looks.values(), strict=True)
        known = [[math.nan if value is None else value for value in row] for row in rows]
        evaluations = msgspec.convert(
            [dict(zip(kept.looks, row, strict=True)) for row in known], tuple[Evaluation, ...]
        )
        if not evaluations:
            raise ValueError("a training without an evaluation")
        return cls(job["model"], job["method"], evaluations, kept.took_s, job["seed"])


class _Kept(msgspec.Struct):
    """A result as `as_json` writes it: by field, the value at each evaluation."""

    looks: dict[str, list[Any]]
    took_s: float


class TrainingResults:
    """A directory of results: a file for each model. None: nothing is kept."""

    def __init__(self, directory: Path | None, link: Mapping[str, str]) -> None:
        self._directory = directory
        self._link = link

    def find(self, job: TrainingJob) -> TrainingResult | None:
        """Return the kept result of a training, if there is a valid one."""
        kept = self._file(job.model).find(_unit(job), self._settings(job), dict[str, Any])
        try:
            return None if kept is None else TrainingResult.from_json(asdict(job), kept)
        except ValueError:
            return None

    def keep(self, job: TrainingJob, result: TrainingResult) -> TrainingResult:
        """Write a result. Returns it as `find` does from now on. Raises OSError."""
        file, settings = self._file(job.model), self._settings(job)
        kept = file.keep(_unit(job), settings, result.as_json(), dict[str, Any], result.took_s)
        return TrainingResult.from_json(asdict(job), kept)

    def _file(self, model: str) -> ResultFile:
        return ResultFile(None if self._directory is None else self._directory / file_name(model))

    def _settings(self, job: TrainingJob) -> dict[str, Any]:
        return {"job": asdict(job.portable()), "link": dict(self._link)}


def file_name(model: str) -> str:
    return f"compare-{model}.json"


def _unit(job: TrainingJob) -> str:
    return f"{job.method}, seed {job.seed}"


def kept_units(path: Path) -> list[dict[str, Any]]:
    """Return the units of a result file, each with settings and value; none if there is no file.

    Raises OSError, and ValueError for another file.
    """
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        units = msgspec.convert(content["units"], dict[str, dict[str, Any]])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of results: {error}") from None
    return list(units.values())


def kept_trainings(directory: Path, model: str) -> list[tuple[TrainingJob, TrainingResult]]:
    """Return all kept trainings of a model over links as fast as the machine, by seed, in the order of the methods.

    Raises OSError, and ValueError for another file.
    """
    path = directory / file_name(model)
    found = []
    for unit in kept_units(path):
        try:
            if not unit["settings"]["link"]:
                job = msgspec.convert(unit["settings"]["job"], TrainingJob)
                found.append((job, TrainingResult.from_json(asdict(job), unit["value"])))
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path} is not a file of results: {error}") from None
    order = {method: number for number, method in enumerate(METHODS)}
    return sorted(found, key=lambda each: (order.get(each[0].method, len(order)), each[0].method, each[0].seed))
