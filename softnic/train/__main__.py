"""`python -m softnic.train`: one rank of the training, to be started by `softnic run` or `softnic demo`.

    softnic run -n 4 --rate 1gbit -- python -m softnic.train --codec bounded:10

Rank 0 tells how it goes. With --events every rank writes JSON lines instead: `{"step": 10, "loss": 0.5}` now and
then, and its Outcome as the last line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from softnic import MPI, codecs
from softnic.train.data import DataError, Floats, load
from softnic.train.exchange import Outcome, Plan, train

EXACT = "exact"
TELL_EVERY_S = 0.1
"""At most this often an event says how far training is."""


class World:
    """All ranks of MPI.COMM_WORLD; `codec` is None for an exact exchange."""

    def __init__(self, codec: str | None) -> None:
        self._comm = MPI.COMM_WORLD
        self._codec = codec
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size()

    def sum(self, gradients: Floats) -> None:
        if self._codec is None:
            self._comm.Allreduce(MPI.IN_PLACE, gradients, op=MPI.SUM)
        else:
            self._comm.Allreduce_comp(MPI.IN_PLACE, gradients, op=MPI.SUM, codec=self._codec)

    def barrier(self) -> None:
        self._comm.Barrier()


def codec_name(text: str) -> str:
    """A codec's full name, or `exact`."""
    try:
        return text if text == EXACT else str(codecs.get(text))
    except codecs.CodecError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    world = World(None if args.codec == EXACT else args.codec)
    plan = Plan(args.steps, args.batch, args.learning_rate, args.momentum, args.seed)
    try:
        data = load(args.data)
        least = len(data.train_labels) // world.size
        if not 0 < plan.batch <= least:
            raise DataError(f"--batch {plan.batch}: each of {world.size} ranks has {least} samples of {data.name}")
        outcome = train(data, plan, world, _teller(world.rank, plan.steps, args.events))
    except (DataError, MPI.Exception) as error:
        print(f"softnic.train: {error}", file=sys.stderr)
        return 1
    if args.events:
        print(json.dumps(dataclasses.asdict(outcome)), flush=True)
    elif world.rank == 0:
        _print_outcome(outcome)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m softnic.train",
        description="One rank of training the digit classifier by gradient exchange.",
        epilog="example: softnic run -n 4 -- python -m softnic.train --codec bounded:10 --steps 300",
    )
    parser.add_argument(
        "--codec", type=codec_name, default=EXACT, help="how gradients are compressed, as in bounded:10 (exact)"
    )
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="optimizer steps (300)")
    parser.add_argument("--batch", type=int, default=25, metavar="N", help="samples a rank and step (25)")
    parser.add_argument("--learning-rate", type=float, default=0.01, metavar="X", help="of SGD (0.01)")
    parser.add_argument("--momentum", type=float, default=0.9, metavar="X", help="of SGD (0.9)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of weights and batches (7)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    parser.add_argument("--events", action="store_true", help="write JSON lines for a program")
    return parser


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


def _print_outcome(outcome: Outcome) -> None:
    print(
        f"accuracy {outcome.accuracy:.2%}, {outcome.exchanged_bytes / 1e6:.1f} MB of gradients exchanged "
        f"in {outcome.exchange_s:.2f} s of {outcome.total_s:.2f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
