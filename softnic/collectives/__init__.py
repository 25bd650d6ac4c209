"""Collectives as a NIC executes them: schedules (softnic/collectives/schedule) over byte streams, without a process.

Everything is sans-IO. The owner of a CollectiveEngine posts requests to it, calls `advance` after its node has received
and before it sends, and takes its replies. One engine is one rank's part; the others run on their NICs. Several streams
lead to each of them: on CONTROL the engines compare what they do and report failures (messages.py); DATA carries the
blocks of collectives and nothing else, in the order of requests and steps; two more carry single messages.

Reading order: stream, messages, operations; then how bytes move: steps, peer_queue; then collective_op, message_op,
engine.
"""

from softnic.collectives.engine import CollectiveEngine
from softnic.collectives.operations import nbytes

__all__ = ["CollectiveEngine", "nbytes"]
