"""Gradient descent that goes on when ranks die, and takes those in that come back. Needs softnic and numpy.

softnic run -n 4 --churn 10s --seed 3 -- python numpy_shrink.py --steps 1000
"""

import argparse
import contextlib
import os
import sys
import threading
import time

import numpy as np

from softnic import MPI

PORT = 7000
"""Where rank 0 accepts those that come."""
ROUNDS = 25
"""Who has asked all nodes so often comes too late: the others have finished, or are gone."""
FAILED = (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED)


class Door:
    """Accepts newcomers one by one in a thread, while this rank computes. It is open at rank 0 alone."""

    def __init__(self):
        self.arrived = None
        self._is_open = True
        self._port = MPI.Open_port(MPI.Info.Create({"ip_port": str(PORT)}))
        threading.Thread(target=self._wait, daemon=True).start()

    def close(self):
        self._is_open = False
        MPI.Close_port(self._port)

    def _wait(self):
        while self._is_open:
            try:
                self.arrived = pair = MPI.COMM_SELF.Accept(self._port).Merge()
            except MPI.Exception:  # who came has ended again; or the door is closed
                continue
            while self._is_open and self.arrived is pair:
                time.sleep(0.01)
        with contextlib.suppress(MPI.Exception):
            if self.arrived:
                self.arrived.Revoke()  # it may come again


def open_if(wanted, door):
    """Return the open door, or None."""
    if door and not wanted:
        door.close()
    return (door or Door()) if wanted else None


def admit(comm, door):
    """Return the communicator with the newcomer, if there is one. All ranks call this."""
    pair = door and door.arrived
    if not comm.bcast(bool(pair)):
        return comm, False
    larger = None
    with contextlib.suppress(MPI.Exception):  # a rank has died, or who came
        larger = comm.Create_intercomm(0, pair or MPI.COMM_SELF, 1).Merge()
    all_have_it = False
    try:
        all_have_it = comm.Agree(larger is not None)  # if some had it and others not, they would go on apart
    finally:
        with contextlib.suppress(MPI.Exception):  # who came has died
            if pair:
                door.arrived = None
                pair.bcast(None) if all_have_it else pair.Revoke()
    return (larger, True) if all_have_it else (comm, False)


def come():
    """Return the communicator that takes this process in: some rank 0 has its door open on one of the nodes."""
    for _ in range(ROUNDS):
        for node in range(int(os.environ["SOFTNIC_WORLD_SIZE"])):
            try:
                pair = MPI.COMM_SELF.Connect(f"10.77.0.{node + 1}:{PORT}").Merge(high=True)
                comm = MPI.COMM_SELF.Create_intercomm(0, pair, 0).Merge(high=True)
                pair.bcast(None)  # the others have it, too
                return comm
            except MPI.Exception:
                time.sleep(0.2)
    sys.exit(print("nobody takes this rank in: the others have finished, or are gone"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    random = np.random.default_rng(int(os.environ["SOFTNIC_RANK"]))
    truth = np.random.default_rng(99).standard_normal(1000).astype(np.float32)
    weights, step = np.zeros(1000, np.float32), 0
    door = None
    newcomer = os.environ.get("SOFTNIC_RESTARTS", "0") != "0"
    comm = come() if newcomer else MPI.COMM_WORLD
    changed = newcomer
    while True:
        try:
            if changed:  # who has made the most steps has the weights that count
                step, source = max(comm.allgather((step, -comm.rank)))
                comm.Bcast(weights, -source)
                changed = False
                if comm.rank == 0:
                    print(f"step {step}: {comm.size} ranks", flush=True)
            if step == args.steps:
                comm.Agree(1)  # all have the last step, or all go on here
                break
            inputs = random.standard_normal((32, 1000), np.float32)
            gradient = inputs.T @ (inputs @ (weights - truth)) / 32
            comm.Allreduce(MPI.IN_PLACE, gradient)
            weights -= 0.002 * gradient / comm.size
            step += 1
            if step % 100 == 0 and comm.rank == 0:
                print(f"step {step}: {comm.size} ranks, error {np.abs(weights - truth).mean():.4f}", flush=True)
            door = open_if(comm.rank == 0, door)
            comm, changed = admit(comm, door)
        except MPI.Exception as error:
            if error.Get_error_class() not in FAILED:
                print(f"rank {comm.rank}: {error}", flush=True)
            changed = True
            try:
                comm = comm.Shrink()
            except MPI.Exception as left_out:  # such as a node that is cut off: the others go on without it
                print(left_out, flush=True)
                door = open_if(False, door)
                comm = come()
    print(f"finished on {os.environ['SOFTNIC_IP']}: step {step}, checksum {weights.sum():.6f}", flush=True)


if __name__ == "__main__":
    main()
