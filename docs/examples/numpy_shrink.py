"""Gradient descent that goes on when ranks die, and takes those in that come back. Needs softnic and numpy.

softnic run -n 4 --churn 10s --seed 3 -- python numpy_shrink.py --steps 1000
"""

import argparse
import os
import threading
import time

import numpy as np

from softnic import MPI

PORT = 7000
"""Where rank 0 accepts those that come."""
FAILED = (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED)


class Door:
    """Accepts newcomers one by one in a thread, while this rank computes. It is open at rank 0 alone."""

    def __init__(self):
        self.arrived = None
        self._port = ""

    def open_if(self, wanted):
        if wanted and not self._port:
            self._port = MPI.Open_port(MPI.Info.Create({"ip_port": str(PORT)}))
            threading.Thread(target=self._wait, daemon=True).start()
        elif self._port and not wanted:
            port, self._port = self._port, ""
            MPI.Close_port(port)

    def _wait(self):
        while self._port:
            try:
                pair = MPI.COMM_SELF.Accept(self._port).Merge()
            except MPI.Exception:  # who came has ended again; or the door is closed
                continue
            self.arrived = pair
            while self.arrived is pair:
                time.sleep(0.01)


def admit(comm, door):
    """Return the communicator with the newcomer, if there is one. All ranks call this."""
    door.open_if(comm.rank == 0)
    pair = door.arrived
    if not comm.bcast(pair is not None):
        return comm, False
    try:
        return comm.Create_intercomm(0, pair or MPI.COMM_SELF, 1).Merge(), True
    finally:
        door.arrived = None


def come():
    """Return the communicator that takes this process in: some rank 0 has its door open on one of the nodes."""
    while True:
        for node in range(int(os.environ["SOFTNIC_WORLD_SIZE"])):
            try:
                pair = MPI.COMM_SELF.Connect(f"10.77.0.{node + 1}:{PORT}").Merge(high=True)
                return MPI.COMM_SELF.Create_intercomm(0, pair, 0).Merge(high=True)
            except MPI.Exception:
                time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    random = np.random.default_rng(int(os.environ["SOFTNIC_RANK"]))
    truth = np.random.default_rng(99).standard_normal(1000).astype(np.float32)
    weights, step = np.zeros(1000, np.float32), 0
    door = Door()
    newcomer = os.environ.get("SOFTNIC_RESTARTS", "0") != "0"
    comm = come() if newcomer else MPI.COMM_WORLD
    changed = newcomer
    while step < args.steps:
        try:
            if changed:  # who has made the most steps has the weights that count
                step, source = max(comm.allgather((step, -comm.rank)))
                comm.Bcast(weights, -source)
                changed = False
                if comm.rank == 0:
                    print(f"step {step}: {comm.size} ranks", flush=True)
            inputs = random.standard_normal((32, 1000), np.float32)
            gradient = inputs.T @ (inputs @ (weights - truth)) / 32
            comm.Allreduce(MPI.IN_PLACE, gradient)
            weights -= 0.002 * gradient / comm.size
            step += 1
            if step % 100 == 0 and comm.rank == 0:
                print(f"step {step}: {comm.size} ranks, error {np.abs(weights - truth).mean():.4f}", flush=True)
            comm, changed = admit(comm, door)
        except MPI.Exception as error:
            if error.Get_error_class() not in FAILED:
                print(f"rank {comm.rank}: {error}", flush=True)
            changed = True
            try:
                comm = comm.Shrink()
            except MPI.Exception as left_out:  # such as a node that is cut off: the others go on without it
                print(left_out, flush=True)
                comm = come()
    print(f"finished on {os.environ['SOFTNIC_IP']}: step {step}, checksum {weights.sum():.6f}", flush=True)


if __name__ == "__main__":
    main()
