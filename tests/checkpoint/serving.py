"""A process that serves a state: `python -m tests.checkpoint.serving SEED SIZE SHARE`. It ends with its input."""

from __future__ import annotations

import json
import sys

from softnic.checkpoint import StateSource
from tests.checkpoint.peers import a_state

if __name__ == "__main__":
    seed, size, share = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with StateSource(epoch="job", cpu_share=share, compress=True, piece_bytes=1 << 20) as source:
        source.offer(5, a_state(seed, size))
        print(json.dumps(source.address), flush=True)
        sys.stdin.read()
        print(source.served_bytes, flush=True)
