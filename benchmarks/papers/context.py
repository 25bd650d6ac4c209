"""The context of an item: data, models, settings, and measurements that several items share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.papers import cache, gradients
from benchmarks.papers.gradients import GradientSettings, Stage
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.item import ReproduceError
from softnic.experiments.data import DataSet
from softnic.extras import not_installed
from softnic.measure.kept import ResultFile
from softnic.measure.report import Progress
from softnic.measure.spread import SEEDS

T = TypeVar("T")
_HDC_HINT = " (or choose --model hdc)"


@dataclass(frozen=True)
class Context:
    """One run of `softnic reproduce`."""

    data: DataSet
    data_path: Path
    """The file or directory that processes of other ranks load the data from."""
    quick: bool = False
    """Whether to make items as small as possible, in seconds, as a check that everything works."""
    models: tuple[str, ...] = paper.MODELS
    settings: GradientSettings = field(default_factory=GradientSettings)
    progress: Progress = lambda _what: None
    measured: dict[Hashable, Any] = field(default_factory=dict, compare=False)
    """Measurements of this run, by what was measured."""
    kept: ResultFile = field(default_factory=lambda: ResultFile(None), compare=False)
    """The file of the item that is being made: its units continue an interrupted run."""
    results: Path | None = None
    """The directory of that file; None: nothing is kept."""

    def asked(self) -> dict[str, Any]:
        """Return what a run was asked for, in types of JSON: an item kept from such a run is not made again."""
        data = {"name": self.data.name, "digest": cache.digest(self.data)}
        return {"data": data, "quick": self.quick, "models": list(self.models), "gradients": asdict(self.settings)}

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of trainings; with --quick the first one."""
        return SEEDS[:1] if self.quick else SEEDS

    @property
    def seeds_sentence(self) -> str:
        """What figures of trainings are of these seeds, for the reader."""
        if self.quick:
            return "One seed."
        return f"Mean and standard deviation over the seeds {', '.join(map(str, self.seeds))}."

    def once(self, key: Hashable, measure: Callable[[], T]) -> T:
        """Measure something once in this run; later calls with the same key return the first result."""
        if key not in self.measured:
            self.measured[key] = measure()
        found: T = self.measured[key]
        return found

    def shared(self, name: str) -> ResultFile:
        """Return the file of units that several items are made of, `NAME.json` beside those of the items."""
        path = None if self.results is None else self.results / f"{name}.json"
        return self.once(("shared", name), lambda: ResultFile(path))

    def stages(self, model: str) -> list[Stage]:
        """Return a model's gradients early and late in its training. Raises ReproduceError without its framework."""
        with needs_torch(paper.TITLES[model]):
            return gradients.stages(model, self.data, self.settings, self.progress)

    def only(self, models: Collection[str]) -> list[str]:
        """Return the chosen models that a figure shows. Raises ReproduceError where it shows none of them."""
        chosen = [model for model in self.models if model in models]
        if not chosen:
            raise ReproduceError(f"this figure shows {', '.join(models)}; choose one of them with --model")
        return chosen

    def gradients_differ(self) -> list[str]:
        """Return how gradients made here differ from the paper's."""
        settings = self.settings
        lines = []
        networks = [paper.TITLES[model] for model in self.models if model != "hdc"]
        if networks:
            lines.append(
                f"{', '.join(networks)}: trained by PyTorch on {self.data.name} enlarged to 3 x {settings.side} x "
                f"{settings.side}, {settings.classes} outputs, in small batches, gradients after {settings.early} and "
                f"{settings.late} steps; the paper has ImageNet and up to 600,000 iterations."
            )
        if "hdc" in self.models:
            lines.append(
                f"HDC: trained on {self.data.name} for {settings.hdc_late} steps by four workers, 25 samples each; the "
                "paper has MNIST and 10,000 iterations."
            )
        return lines


@contextmanager
def needs_torch(title: str, hint: str = _HDC_HINT) -> Iterator[None]:
    """Turn an ImportError inside the block into a ReproduceError that says how to install PyTorch."""
    try:
        yield
    except ImportError as error:
        raise ReproduceError(f"{title}: {not_installed('torch')}{hint}") from error


def require_torch(title: str, hint: str = _HDC_HINT) -> None:
    """Raise ReproduceError without PyTorch."""
    with needs_torch(title, hint):
        import torch  # noqa: F401
