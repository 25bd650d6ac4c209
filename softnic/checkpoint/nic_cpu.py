"""The CPU that serving causes: that of its threads, and its part of the NIC's, by bytes.

A NIC is shared with the job's own traffic. Of the CPU that its process takes (proc(5)) a source is charged the part
that its bytes are of all bytes that the NIC sent and received in the meantime; both are looked at ten times a second,
while the source serves.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from softnic.ipc.control import QueryStats
from softnic.ipc.socket_state import client

_LOOK_S = 0.1


class NicCpu:
    """What serving is charged for.

    Parameters
    ----------
    path : str
        Control socket of the NIC.
    pid : int
        Of the NIC's process.
    """

    def __init__(self, path: str, pid: int) -> None:
        self._path = path
        self._stat = Path(f"/proc/{pid}/stat")
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._thread = threading.local()
        self._looked_at = 0.0
        self._sent = 0
        self._cpu_s, self._wire_bytes = self._look()

    def own(self, thread_time_s: float) -> float:
        """Return the CPU of the calling thread since its last call, given its CPU time now."""
        before = getattr(self._thread, "before", 0.0)
        self._thread.before = thread_time_s
        return thread_time_s - before

    def of(self, sent: int, now: float) -> float:
        """Return the CPU to charge for the NIC, after `sent` more bytes. The caller has a lock for it."""
        self._sent += sent
        if now - self._looked_at < _LOOK_S:
            return 0.0
        pause_s = now - self._looked_at
        cpu_s, wire_bytes = self._look()
        used_s, moved = cpu_s - self._cpu_s, wire_bytes - self._wire_bytes
        part = min(1.0, self._sent / moved) if moved > 0 and pause_s < 10 * _LOOK_S else 0.0
        self._looked_at, self._sent = now, 0
        self._cpu_s, self._wire_bytes = cpu_s, wire_bytes
        return max(0.0, used_s * part)

    def _look(self) -> tuple[float, int]:
        """Return CPU seconds and wire bytes of the NIC; zeros if it does not say."""
        try:
            fields = self._stat.read_text().rpartition(")")[2].split()
            counters = client(self._path).call(QueryStats()).counters
        except OSError:
            return 0.0, 0
        return (int(fields[11]) + int(fields[12])) * self._tick_s, counters["tx_wire_bytes"] + counters["rx_wire_bytes"]
