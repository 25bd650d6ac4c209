"""Trainings whose ranks are threads of this process, over kernel sockets that round tagged floats as NICs would."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from softnic.experiments import methods, torch_models
from softnic.experiments.compare.plan import Training, TrainingJob
from softnic.experiments.compare.training import Evaluation, RankSteps, RankTraining, Usage
from softnic.experiments.torch_replica import TorchReplica
from tests.mpi.groups import FakeNics
from tests.mpi.ranks import communicators

TEXT = "What is trained here is not meant to be learned. " * 60


def job(
    method: str, model: str = "hdc", steps: int = 3, looks: int = 1, workers: int = 2, batch: int = 4
) -> TrainingJob:
    return TrainingJob(model, method, Training(batch, steps, 0.05, looks), workers, None, 7)


def images(train: int = 40, test: int = 10) -> torch_models.TorchData:
    """Images of noise, each with a label."""
    made = torch.Generator().manual_seed(1)
    side = torch_models.SIDE

    def some(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand((count, 1, side, side), generator=made), torch.randint(10, (count,), generator=made)

    return torch_models.TorchData("noise", *some(train), *some(test))


def new_replica(job: TrainingJob) -> TorchReplica:
    return TorchReplica(torch_models.build(job.model, job.seed), job.training.rate_at, job.training.momentum)


class TrainedRanks:
    """All ranks of a completed training: evaluations and replicas by rank."""

    def __init__(
        self, job: TrainingJob, data: torch_models.TorchData, used: Callable[[int], Usage] = lambda _rank: Usage(0, 0.0)
    ) -> None:
        size = job.workers + methods.aggregators(job.method)
        self.evaluations: list[list[Evaluation]] = [[] for _ in range(size)]
        self.replicas = [new_replica(job) for _ in range(size)]
        self.steps: list[int] = []
        self.done: dict[int, RankSteps] = {}
        self._errors: list[Exception] = []
        nics = FakeNics()
        comms, more = communicators(size), communicators(size, transport=nics)

        def body(rank: int) -> None:
            replica = self.replicas[rank]
            on_step = self.steps.append if not rank else lambda _step: None
            try:
                method = methods.gradient_method(job.method)
                with methods.strategy(job.method, method, replica, comms[rank], lambda _name: more[rank]) as strategy:
                    training = RankTraining(job, data, comms[rank], replica, strategy, method)
                    training.run(lambda: used(rank), self.evaluations[rank].append, on_step)
                    self.done[rank] = training.steps()
            except Exception as error:
                self._errors.append(error)
            finally:
                comms[rank].Free()

        threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for comm in more:
            comm.Free()
        nics.close()
        if self._errors:
            raise self._errors[0]
