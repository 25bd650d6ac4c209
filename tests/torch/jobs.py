"""Jobs of tests: a module of this directory as ranks, processes over real NICs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from softnic import Cluster

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300.0


def results(module: str, nodes: int, argument: Path, **links: Any) -> list[list[dict[str, Any]]]:
    """Run `python -m tests.torch.MODULE ARGUMENT` on each rank; return what each prints as lines of RESULT and JSON.

    `links` are options of Cluster.
    """
    command = [sys.executable, "-m", f"tests.torch.{module}", str(argument)]
    with Cluster(nodes=nodes, **links) as cluster:
        ranks = [
            subprocess.Popen(
                command,
                env=os.environ | cluster.env(rank),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(nodes)
        ]
        outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    found = []
    for output, errors in outputs:
        lines = [json.loads(line[7:]) for line in output.splitlines() if line.startswith("RESULT ")]
        assert lines, errors
        found.append(lines)
    return found
