"""Collectives as a NIC executes them: schedules (softnic/collectives/schedule) over TCP connections, without a process.

Sans-IO, as the stack is: whoever owns an `Executor` hands it posts, calls `advance` after the node has received and
before it sends, and takes its replies. One executor is one rank's half of a group; the others' are on their NICs. Two
connections lead to each of them. On WORDS the executors agree on what is done, and tell why it is not (words.py); DATA
carries the blocks and nothing else, in the order of requests and steps.

Reading order: words, arithmetic; then how bytes move: moves, lane; then request, executor.
"""

from softnic.collectives.arithmetic import nbytes
from softnic.collectives.engine import Executor, Places

__all__ = ["Executor", "Places", "nbytes"]
