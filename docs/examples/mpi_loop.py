"""A plain training loop: numpy computes, MPI's calls average the gradients. No PyTorch anywhere.

    mpirun -n 4 python mpi_loop.py
    softnic run -n 4 --rate 1gbit -- python mpi_loop.py

`--method` is what `softnic.gradients.get` takes; with `exact` every step sends all gradients as they are.
"""

import argparse

import numpy as np

from softnic import MPI, gradients


def dataset(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """This rank's share: points of 64 dimensions, and which of 10 fixed directions each lies closest to."""
    directions = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
    points = np.random.default_rng(1 + rank).normal(size=(4096, 64)).astype(np.float32)
    return points, (points @ directions).argmax(1)


def gradient(weights: np.ndarray, points: np.ndarray, classes: np.ndarray) -> tuple[float, np.ndarray]:
    """The cross-entropy of softmax regression, and how it changes with the weights."""
    scores = points @ weights
    scores -= scores.max(axis=1, keepdims=True)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rows = np.arange(len(classes))
    loss = float(-np.log(shares[rows, classes]).mean())
    shares[rows, classes] -= 1
    return loss, points.T @ shares / len(classes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--method", default="dgc:0.05", help="what is sent of the gradients (dgc:0.05); exact: all")
    args = parser.parse_args()

    comm = MPI.COMM_WORLD
    method = gradients.get(args.method)
    points, classes = dataset(comm.rank)
    weights = np.zeros((64, 10), np.float32)
    for step in range(args.steps):
        batch = np.arange(step * 64, step * 64 + 64) % len(points)
        loss, change = gradient(weights, points[batch], classes[batch])
        method.average(comm, {"weights": change.ravel()})  # in place: from here on the same on every rank
        weights -= 0.5 * change
        if comm.rank == 0 and step % 20 == 19:
            print(f"step {step + 1}: loss {loss:.3f}", flush=True)
    if comm.rank == 0:
        print(f"{args.method} sent {method.stats.sent_bytes:,} bytes for {method.stats.given_bytes:,}", flush=True)


if __name__ == "__main__":
    main()
