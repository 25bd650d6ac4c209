"""`python -m softnic.experiments.train`: one rank of a training, started by `softnic run`, `train` or `demo`.

    softnic run -n 4 --rate 1gbit -- python -m softnic.experiments.train --strategy inc+bounded:10

Rank 0 prints progress. With --events every rank writes JSON lines instead: `{"step": 10, "loss": 0.5}` from time to
time, and its Outcome as the last line; with --trace, a line with its timeline (timeline.py) before that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from softnic import MPI
from softnic.arguments import argument, count
from softnic.experiments import numpy_models
from softnic.experiments.data import DataError, load
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.runner import Throttle, report_failure
from softnic.experiments.strategies import KINDS, StrategyName
from softnic.experiments.trainer import RankOutcome, RankRun, TrainingPlan, train
from softnic.experiments.training_ranks import TrainingRanks
from softnic.measure.child_process import report_json

REPORT_EVERY_S = 0.1
"""Shortest interval between events that report progress."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    rank = 0
    try:
        ranks = TrainingRanks(args.strategy, args.in_flight)
        rank = ranks.rank
        done, replica = _train(args, ranks)
    except (DataError, MPI.Exception) as error:
        if args.events:
            report_failure(rank, error)
        else:
            print(f"softnic.experiments.train: {error}", file=sys.stderr)
        return 1
    if args.weights is not None and rank == 0:
        np.save(args.weights, replica.parameters)
    outcome = replace(done.outcome, weights_bytes=ranks.weights.sent)
    if args.events:
        if args.trace:
            iterations = [each.as_json() for each in done.iterations]
            report_json(losses=done.losses, cpu_s=done.cpu_s, iterations=iterations)
        report_json(**asdict(outcome))
    elif rank == 0:
        _print_outcome(outcome)
    return 0


def _train(args: argparse.Namespace, ranks: TrainingRanks) -> tuple[RankRun, NumpyReplica]:
    rates = numpy_models.rates(args.model)
    plan = TrainingPlan(
        steps=args.steps,
        batch=args.batch,
        rate=rates.rate if args.learning_rate is None else args.learning_rate,
        momentum=rates.momentum if args.momentum is None else args.momentum,
        seed=args.seed,
        model=args.model,
    )
    data = load(args.data)
    if ranks.size < 1:
        raise DataError(f"--strategy {args.strategy}: the last rank is the aggregator, and there is no other")
    samples = len(data.train_labels) // ranks.size
    if not 0 < plan.batch <= samples:
        raise DataError(f"--batch {plan.batch}: each of {ranks.size} ranks has {samples} samples of {data.name}")
    return train(data, plan, ranks, _progress(ranks.rank, plan.steps, events=args.events))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m softnic.experiments.train",
        description="One rank of training a model by gradient exchange.",
        epilog="strategies:\n"
        + "".join(f"  {kind:<16}{text}\n" for kind, text in KINDS.items())
        + "\nexample: softnic run -n 4 -- python -m softnic.experiments.train --strategy inc+bounded:10 --steps 300",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    name = argument(StrategyName.parse)
    add("--strategy", type=name, default=StrategyName("inc"), metavar="NAME", help="one of those below (inc)")
    add("--in-flight", type=count(0), default=0, metavar="N", help="layers exchanged at a time; 0: all (0)")
    model = argument(numpy_models.check)
    add("--model", type=model, default="hdc", metavar="NAME", help=f"{numpy_models.HELP} (hdc)")
    add("--steps", type=count(1), default=300, metavar="N", help="optimizer steps (300)")
    add("--batch", type=int, default=25, metavar="N", help="samples per rank and step (25)")
    add("--learning-rate", type=float, metavar="X", help="of SGD (hdc: 0.01, mlp: 0.1)")
    add("--momentum", type=float, metavar="X", help="of SGD (hdc: 0.9, mlp: 0)")
    add("--seed", type=int, default=7, metavar="N", help="of weights and batches (7)")
    add("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    add("--weights", type=Path, metavar="FILE", help="write rank 0's final weights as a numpy file")
    add("--events", action="store_true", help="write JSON lines for another program")
    add("--trace", action="store_true", help="with --events: write each rank's timeline")
    return parser


def _progress(rank: int, steps: int, *, events: bool) -> Callable[[int, float], None]:
    """Return the function that reports rank 0's progress: events from time to time, or ten lines in all."""
    throttle = Throttle(REPORT_EVERY_S)

    def report(step: int, loss: float) -> None:
        if rank:
            return
        if not events:
            if step % max(1, steps // 10) == 0:
                print(f"step {step} of {steps}: loss {loss:.4f}", flush=True)
        elif throttle.is_due() or step == steps:
            report_json(step=step, loss=loss)

    return report


def _print_outcome(outcome: RankOutcome) -> None:
    weights = f", {outcome.weights_bytes / 1e6:.1f} MB of weights received" if outcome.weights_bytes else ""
    print(
        f"accuracy {outcome.accuracy:.2%}, {outcome.exchanged_bytes / 1e6:.1f} MB of gradients exchanged{weights} "
        f"in {outcome.exchange_s:.2f} s of {outcome.total_s:.2f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
