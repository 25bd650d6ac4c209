"""Networks trained by four ranks over four NICs, by LGC and by the methods that its paper compares it with.

A training is kept as soon as it is done, in a file of its own that Tables IV to VI and Fig. 13 read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.papers.context import Context, require_torch
from benchmarks.papers.over_nics import LINK
from softnic.experiments.compare.plan import Training, TrainingJob
from softnic.experiments.compare.run import TrainingNodes
from softnic.experiments.compare.training import Evaluation, RankSteps
from softnic.gradients.lgc.phases import PHASES
from softnic.measure.spread import Spread

FILE = "lgc-trainings"
BATCH, RATE = 16, 0.05
"""Of all trainings; the rate falls linearly to zero."""
TITLES = {"convnet": "ConvNet5", "resnet": "ResNet8"}
"""The tables' names of the networks of softnic.experiments.compare."""
_POINTS = 20
"""Of a curve of losses."""


@dataclass(frozen=True)
class LgcPlan:
    """A training, and the lengths of LGC's phases."""

    workers: int
    training: Training
    full: int
    """Steps of LGC's first phase, and of DGC's warm-up."""
    learn: int
    """Steps of LGC's second phase."""
    models: tuple[str, ...] = ("convnet", "resnet")

    @property
    def steps(self) -> int:
        return self.training.steps

    @property
    def phases(self) -> str:
        """LGC's phases, in the syntax of a method."""
        return f"momentum=0.9,full={self.full},learn={self.learn}"

    @property
    def settings(self) -> dict[str, int]:
        return {"steps": self.steps, "full": self.full, "workers": self.workers}


FULL = LgcPlan(4, Training(BATCH, 400, RATE, looks=8), full=60, learn=120)
QUICK = LgcPlan(2, Training(BATCH, 6, RATE, looks=2), full=2, learn=2, models=("convnet",))


def plan(context: Context) -> LgcPlan:
    return QUICK if context.quick else FULL


@dataclass(frozen=True)
class PhaseSteps:
    """The steps of one of LGC's phases. Bytes are of a rank and a step, means over both."""

    seconds: float
    """Of a step: the median of the phase, of the median over the ranks."""
    given: float
    """Bytes of the gradients of the layers that the autoencoder covers."""
    sent: float
    """Bytes that are sent for them."""
    down: float
    """Bytes from the master to a worker."""
    weights: int
    """Bytes of the autoencoder's weights, sent once, of all ranks."""


@dataclass(frozen=True)
class MethodTraining:
    """One training by one method, as small as the tables and curves need it."""

    at: Sequence[int]
    """Steps after which the test set was evaluated."""
    scores: Sequence[float]
    """Accuracy there, 0..1."""
    losses: Sequence[float]
    """Training loss by equal parts of the steps, mean over the ranks and the steps of the part."""
    wire: int
    """Bytes that all NICs sent, with all headers."""
    given: int
    """Bytes of a rank's gradients in a step."""
    late: float
    """Bytes that a rank sends for them in the last tenth of the steps, after all warm-up, mean over ranks and steps."""
    phases: Mapping[str, PhaseSteps]
    """Of LGC."""

    @property
    def losses_at(self) -> list[int]:
        """The step at which each part of the losses ends."""
        return [round(self.at[-1] * (part + 1) / len(self.losses)) for part in range(len(self.losses))]

    @property
    def accuracy(self) -> float:
        return self.scores[-1]

    @property
    def late_ratio(self) -> float:
        return self.given / self.late


def summarised(evaluations: Sequence[Evaluation], ranks: Sequence[RankSteps]) -> MethodTraining:
    """Return what is kept of a training."""
    losses = np.mean([rank.losses for rank in ranks], axis=0).tolist()
    _, means = smoothed(losses, _POINTS)
    sent = [rank.sent_bytes[len(losses) * 9 // 10 :] for rank in ranks]
    return MethodTraining(
        [each.step for each in evaluations],
        [each.score for each in evaluations],
        means,
        evaluations[-1].wire_bytes,
        ranks[0].given_bytes,
        float(np.mean(sent)),
        dict(_phases(ranks)),
    )


def _phases(ranks: Sequence[RankSteps]) -> Iterator[tuple[str, PhaseSteps]]:
    begin = 0
    steps = np.median([rank.seconds for rank in ranks], axis=0)
    for phase in PHASES if ranks[0].traffic else ():
        parts = [rank.traffic[phase] for rank in ranks]
        calls = parts[0]["calls"]
        given, sent, down = (
            sum(part[leg] for part in parts) / (calls * len(parts)) for leg in ("covered_given", "covered_sent", "down")
        )
        seconds = float(np.median(steps[begin : begin + calls]))
        yield phase, PhaseSteps(seconds, given, sent, down, sum(part["weights"] for part in parts))
        begin += calls


def trained(context: Context, model: str, trainings: Mapping[str, str], what: str) -> dict[str, list[MethodTraining]]:
    """Train with every seed by each method, unless the shared file has it; results have the trainings' names.

    `trainings`: methods of softnic.gradients, by name. `what`: the item, for progress. Raises ReproduceError,
    MeasurementError, ClusterError.
    """
    require_torch("LGC", "")
    own, file = plan(context), context.shared(FILE)
    settings = {"training": asdict(own.training), "workers": own.workers, "link": LINK, "data": context.data.name}
    done: dict[str, list[MethodTraining]] = {name: [] for name in trainings}
    with TrainingNodes(own.workers, context.settings.seed, LINK) as nodes:
        for seed in context.seeds:
            for name, method in trainings.items():
                context.progress(f"{what}: {TITLES[model]}, {name}, seed {seed}, {own.steps} steps")
                job = TrainingJob(model, method, own.training, own.workers, str(context.data_path.absolute()), seed)

                def measure(job: TrainingJob = job) -> MethodTraining:
                    result, ranks = nodes.train(job, lambda _what: None, linear=True)
                    return summarised(result.evaluations, ranks)

                unit = file.once(f"{TITLES[model]}, {method}, seed {seed}", settings, measure, MethodTraining)
                done[name].append(unit)
    return done


def over_seeds(trainings: Sequence[MethodTraining], value: Callable[[MethodTraining], float]) -> Spread:
    """Return a figure of each of the trainings."""
    return Spread([value(each) for each in trainings])


def smoothed(losses: Sequence[float], points: int) -> tuple[list[float], list[float]]:
    """Return means over parts of about the same length: the step at which each part ends, and its mean."""
    parts = np.array_split(np.asarray(losses), min(points, len(losses)))
    ends = np.cumsum([len(part) for part in parts])
    return [float(end) for end in ends], [float(part.mean()) for part in parts]


def networks_differ(context: Context) -> str:
    """Return how the networks here differ from the paper's."""
    return (
        f"Networks of 0.3 to 0.4 million parameters on {context.data.name}; the paper has ResNet50 (25.6 million) on "
        "Cifar10 and ImageNet, and others."
    )


def differs(context: Context) -> list[str]:
    """Return how trainings here differ from the paper's."""
    own = plan(context)
    return [
        networks_differ(context),
        f"{own.workers} ranks, {own.steps} steps of 16 samples each, {own.full} and {own.learn} of them in the "
        "first two phases. The paper has two to eight nodes, and phases of 200 and 200 to 300 steps.",
        context.seeds_sentence,
    ]
