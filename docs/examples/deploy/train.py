"""Trains a linear model with the gradients of all ranks, which cross the network compressed.

The first training of a new installation (docs/deployment.md).
"""

import numpy as np

import softnic
from softnic import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
generator = np.random.default_rng(0)
wanted = generator.normal(0, 1, 1024).astype(np.float32)
samples = np.random.default_rng(1 + rank).normal(0, 1, (2048, wanted.size)).astype(np.float32)
answers = samples @ wanted

weights = np.zeros_like(wanted)
gradient = softnic.empty(weights.size, np.float32)
for step in range(60):
    error = samples @ weights - answers
    gradient[:] = samples.T @ error / len(samples)
    comm.Allreduce_comp(MPI.IN_PLACE, gradient, codec="bounded:10")
    weights -= 0.4 * gradient / ranks
    if rank == 0 and step % 20 == 19:
        print(f"step {step + 1} on {ranks} ranks: loss {np.square(error).mean():.4f}", flush=True)
