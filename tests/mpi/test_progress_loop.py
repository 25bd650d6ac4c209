"""Many messages of a communicator at a time, in one thread."""

from __future__ import annotations

import gc
import sys

import numpy as np

from softnic.mpi.communicator import Communicator
from softnic.mpi.progress_loop import ProgressLoop, Receiving, Sending
from tests.mpi.ranks import run


def test_a_received_message_leaves_no_reference_to_its_array() -> None:
    def program(comm: Communicator) -> None:
        sent, got = np.arange(4.0) + comm.rank, np.empty(4)
        before = sys.getrefcount(got)
        started: list[Receiving | Sending] = []
        loop = ProgressLoop(comm)

        def turn() -> bool:
            if not started:
                other = 1 - comm.rank
                started.extend((loop.receive(other, 7, got), loop.send(other, 7, sent)))
            return all(each.is_complete for each in started)

        gc.disable()
        try:
            loop.run("test", turn)
            started.clear()
            assert sys.getrefcount(got) == before
        finally:
            gc.enable()
            loop.close()
        assert (got == np.arange(4.0) + 1 - comm.rank).all()

    run(2, program)
