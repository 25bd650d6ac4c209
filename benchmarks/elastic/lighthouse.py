"""torchft's lighthouse in a process of its own: `python -m benchmarks.elastic.lighthouse PORT LEAST JOIN_MS`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from softnic.measure.child_process import report_json

TICK_MS, SILENT_MS = 20, 3000
"""Between two looks; and after how long without a heartbeat a member is taken for dead."""


def main() -> int:
    coordination: Any = importlib.import_module("torchft.coordination")
    server = coordination.LighthouseServer(
        bind=f"0.0.0.0:{sys.argv[1]}",
        min_replicas=int(sys.argv[2]),
        join_timeout_ms=int(sys.argv[3]),
        quorum_tick_ms=TICK_MS,
        heartbeat_timeout_ms=SILENT_MS,
    )
    report_json(address=server.address())
    sys.stdin.read()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
