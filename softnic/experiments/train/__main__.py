"""`python -m softnic.experiments.train`: one rank of a training, to be started by `softnic run`, `softnic train` or
`softnic demo`.

    softnic run -n 4 --rate 1gbit -- python -m softnic.experiments.train --strategy inc+bounded:10

Rank 0 tells how it goes. With --events every rank writes JSON lines instead: `{"step": 10, "loss": 0.5}` now and
then, and its Outcome as the last line; with --trace as well, a line before it has what it did when (timeline.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from softnic import MPI
from softnic.experiments import numpy_models
from softnic.experiments.data import DataError, load
from softnic.experiments.trainer import Outcome, Trained, TrainingPlan, aggregate, train
from softnic.experiments.training_ranks import KINDS, StrategyName, TrainingRanks

TELL_EVERY_S = 0.1
"""At most this often an event says how far training is."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        world = TrainingRanks(args.strategy, args.in_flight)
        plan = _plan(args)
        data = load(args.data)
        if world.size < 1:
            raise DataError(f"--strategy {args.strategy}: the last rank is the aggregator, and there is no other")
        least = len(data.train_labels) // world.size
        if not 0 < plan.batch <= least:
            raise DataError(f"--batch {plan.batch}: each of {world.size} ranks has {least} samples of {data.name}")
        if world.rank == world.size:
            trained = aggregate(data, plan, world)
        else:
            trained = train(data, plan, world, _teller(world.rank, plan.steps, args.events))
    except (DataError, MPI.Exception) as error:
        print(f"softnic.experiments.train: {error}", file=sys.stderr)
        return 1
    if args.weights is not None and world.rank == 0:
        np.save(args.weights, trained.replica.model.parameters)
    outcome = dataclasses.replace(trained.outcome, weights_bytes=world.weights.sent)
    if args.events:
        _tell_outcome(trained, outcome, args.trace)
    elif world.rank == 0:
        _print_outcome(outcome)
    return 0


def _plan(args: argparse.Namespace) -> TrainingPlan:
    usual = numpy_models.rates(args.model)
    return TrainingPlan(
        steps=args.steps,
        batch=args.batch,
        rate=usual.rate if args.learning_rate is None else args.learning_rate,
        momentum=usual.momentum if args.momentum is None else args.momentum,
        seed=args.seed,
        model=args.model,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m softnic.experiments.train",
        description="One rank of training a model by gradient exchange.",
        epilog="strategies:\n"
        + "".join(f"  {kind:<16}{what}\n" for kind, what in KINDS.items())
        + "\nexample: softnic run -n 4 -- python -m softnic.experiments.train --strategy inc+bounded:10 --steps 300",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--strategy", type=_strategy, default=StrategyName("inc"), metavar="NAME", help="one of those below (inc)")
    add(
        "--in-flight",
        type=_count,
        default=0,
        metavar="N",
        help="layers that are exchanged at a time; 0: all (0)",
    )
    add("--model", type=_model, default="hdc", metavar="NAME", help=f"{numpy_models.HELP} (hdc)")
    add("--steps", type=_steps, default=300, metavar="N", help="optimizer steps (300)")
    add("--batch", type=int, default=25, metavar="N", help="samples a rank and step (25)")
    add("--learning-rate", type=float, metavar="X", help="of SGD (hdc: 0.01, mlp: 0.1)")
    add("--momentum", type=float, metavar="X", help="of SGD (hdc: 0.9, mlp: 0)")
    add("--seed", type=int, default=7, metavar="N", help="of weights and batches (7)")
    add("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    add("--weights", type=Path, metavar="FILE", help="write rank 0's final weights, as numpy does")
    add("--events", action="store_true", help="write JSON lines for a program")
    add("--trace", action="store_true", help="with --events: tell what each rank did when")
    return parser


def _strategy(text: str) -> StrategyName:
    try:
        return StrategyName.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _model(text: str) -> str:
    try:
        return numpy_models.check(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _steps(text: str) -> int:
    steps = _count(text)
    if not steps:
        raise argparse.ArgumentTypeError("at least one step is needed")
    return steps


def _teller(rank: int, steps: int, events: bool) -> Callable[[int, float], None]:
    """Rank 0's progress: events now and then, or ten lines in all."""
    told = 0.0

    def tell(step: int, loss: float) -> None:
        nonlocal told
        if rank:
            return
        if not events:
            if step % max(1, steps // 10) == 0:
                print(f"step {step} of {steps}: loss {loss:.4f}", flush=True)
        elif time.monotonic() - told >= TELL_EVERY_S or step == steps:
            told = time.monotonic()
            print(json.dumps({"step": step, "loss": loss}), flush=True)

    return tell


def _tell_outcome(trained: Trained, outcome: Outcome, trace: bool) -> None:
    if trace:
        iterations = [each.as_json() for each in trained.replica.timeline.iterations]
        print(json.dumps({"losses": trained.losses, "cpu_s": trained.cpu_s, "iterations": iterations}))
    print(json.dumps(dataclasses.asdict(outcome)), flush=True)


def _print_outcome(outcome: Outcome) -> None:
    weights = f", {outcome.weights_bytes / 1e6:.1f} MB of weights received" if outcome.weights_bytes else ""
    print(
        f"accuracy {outcome.accuracy:.2%}, {outcome.exchanged_bytes / 1e6:.1f} MB of gradients exchanged{weights} "
        f"in {outcome.exchange_s:.2f} s of {outcome.total_s:.2f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
