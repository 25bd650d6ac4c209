"""Threads of one rank make calls at the same time: one may wait for what another one brings about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run


def begun(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_message_is_sent_while_another_thread_waits_for_the_answer() -> None:
    def program(comm: Communicator) -> Any:
        found: list[Any] = []
        waiting = begun(lambda: found.append(comm.recv(source=1 - comm.rank, tag=1)))
        if comm.rank == 0:
            comm.send("question", 1, tag=2)
        comm.send("answer" if comm.rank == 0 else f"answer to {comm.recv(source=0, tag=2)}", 1 - comm.rank, tag=1)
        waiting.join()
        return found

    assert run(2, program) == [["answer to question"], ["answer"]]


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_message_is_sent_while_another_thread_waits_in_a_collective(size: int) -> None:
    """That the receiver calls only after the message."""

    def program(comm: Communicator) -> Any:
        total, data = np.full(1, comm.rank + 1), np.full(size, comm.rank)
        if comm.rank == 0:
            waiting = begun(lambda: comm.Allreduce(np.ones(1, int), total))
            comm.Send(data, 1)
            waiting.join()
        else:
            comm.Recv(data, 0)
            comm.Allreduce(np.ones(1, int), total)
        return int(total[0]), int(data[-1])

    assert run(2, program) == [(2, 0), (2, 0)]
