"""The trace of a world: a hash of every frame with its time and node, and of each connection as it was at its end.

Two runs with the same trace have done the same. traces.json has the traces of the first seeds, each with how often C
left something to Python, so that a change is noticed which costs nothing but time:

    python -m tests.simulation --seeds 200 --traces compare     # which worlds behave otherwise than recorded
    python -m tests.simulation --seeds 200 --traces record      # after a change that is meant to change them
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from struct import pack

from softnic.nic.node import Node
from softnic.packet.frames import Frames
from softnic.tcp.connection import Connection

FILE = Path(__file__).with_name("traces.json")
DIGITS = 8
"""Of a trace, in the file."""


class Trace:
    """The hash of a world, while it runs.

    Times are hashed by their bits. Nothing hashed depends on addresses or on how fast the machine is.
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def on_frames(self, now: float, node: int, frames: Frames) -> None:
        """Add a batch that a node gives to its link."""
        self._hash.update(pack("<dII", now, node, len(frames)))
        for frame in frames:
            self._hash.update(frame)

    def on_end(self, now: float, node: int, connection: Connection, local: float) -> None:
        """Add a connection that has ended, or whose NIC has died; `local` is the time of its node."""
        self._hash.update(pack("<dI", now, node))
        info = connection.info(local)
        self._hash.update(repr(tuple(getattr(info, field.name) for field in fields(info))).encode())

    def on_rest(self, index: int, node: Node) -> None:
        """Add the counters of a node at the end of the world, but for those that are 0."""
        counters = asdict(node.nic.counters) | asdict(node.host.counters)
        counted = sorted(
            (name, value) for name, value in counters.items() if value and not name.startswith("fast_path")
        )
        self._hash.update(f"{index} {counted}".encode())

    def hexdigest(self) -> str:
        """Return the hash of all that was added."""
        return self._hash.hexdigest()


def entry(trace: str, asked_of_python: int) -> str:
    """Return what the file has of a world."""
    return f"{trace[:DIGITS]} {asked_of_python}"


def recorded() -> dict[int, str]:
    """Return the entries of the file by their seeds."""
    return {int(seed): found for seed, found in json.loads(FILE.read_text()).items()}


def record(entries: Mapping[int, str]) -> None:
    """Write entries to the file, which keeps those of other seeds."""
    every = {**(recorded() if FILE.exists() else {}), **entries}
    FILE.write_text(json.dumps({str(seed): every[seed] for seed in sorted(every)}, indent=0) + "\n")


def different(entries: Mapping[int, str], *, counted: bool = True) -> list[int]:
    """Return the seeds whose entries are not those of the file, or are not there but should be.

    Without `counted`, traces are compared only: for worlds in which Python processes segments that C can.
    """
    known, last = recorded(), None if counted else DIGITS
    return sorted(seed for seed in entries if known.get(seed, "")[:last] != entries[seed][:last])
