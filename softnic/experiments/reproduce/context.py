"""What an item is made from: data, settings, and whom to tell how far it is."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softnic.experiments.data import DataSet
from softnic.experiments.report import Progress
from softnic.experiments.reproduce import gradients
from softnic.experiments.reproduce.gradients import Settings, Stage
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.report import ReproduceError, needs_torch


@dataclass(frozen=True)
class Context:
    data: DataSet
    data_path: Path
    """Where processes of other ranks load it from."""
    quick: bool = False
    """Small enough to show that it works, in seconds. Its figures are not to be compared with anything."""
    models: tuple[str, ...] = paper.MODELS
    settings: Settings = field(default_factory=Settings)
    progress: Progress = lambda _what: None
    measured: dict[Hashable, Any] = field(default_factory=dict, compare=False)
    """What one item has measured and others of this run take as it is."""

    def stages(self, model: str) -> list[Stage]:
        """A model's gradients, early and late. Raises ReproduceError where its framework is missing."""
        try:
            return gradients.stages(model, self.data, self.settings, self.progress)
        except ImportError as error:
            raise ReproduceError(needs_torch(paper.TITLES[model])) from error

    def only(self, models: Collection[str]) -> list[str]:
        """The chosen models that a figure is of. Raises ReproduceError where it is of none."""
        chosen = [model for model in self.models if model in models]
        if not chosen:
            raise ReproduceError(f"it is of {', '.join(models)}; choose one of them with --model")
        return chosen

    def gradients_differ(self) -> list[str]:
        """How gradients here are not the paper's; for every item that looks at them."""
        given = self.settings
        lines = []
        networks = [paper.TITLES[model] for model in self.models if model != "hdc"]
        if networks:
            lines.append(
                f"{', '.join(networks)}: trained by PyTorch on {self.data.name} enlarged to 3 x {given.side} x "
                f"{given.side}, {given.classes} outputs, in small batches, gradients after {given.early} and "
                f"{given.late} steps; the paper has ImageNet and up to 600,000 iterations."
            )
        if "hdc" in self.models:
            lines.append(
                f"HDC: trained on {self.data.name} for {given.hdc_late} steps by four workers, 25 samples each; the "
                "paper has MNIST and 10,000 iterations."
            )
        if self.quick:
            lines.append("--quick: a few steps and tiny batches; the figures mean nothing.")
        return lines
