"""Jobs of tests: a module of this directory as ranks, processes over real NICs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softnic import Cluster

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0


def results(
    module: str, nodes: int, argument: Path, env: Sequence[Mapping[str, str]] = (), **links: Any
) -> list[list[dict[str, Any]]]:
    """Run `python -m tests.torch.MODULE ARGUMENT` on each rank; return what each prints as lines of RESULT and JSON.

    `env` has more variables of each rank; with NODE, it is on that node, beside others. `links` are options of Cluster.
    """
    # They compute much: NICs that get no core for three seconds would be taken for dead.
    command = ["nice", "-n", "4", sys.executable, "-m", f"tests.torch.{module}", str(argument)]
    with Cluster(nodes=nodes, **links) as cluster:
        ranks = [
            subprocess.Popen(
                command,
                env={**os.environ, **cluster.env(int(more.get("NODE", rank))), **more},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, more in enumerate(env or [{}] * nodes)
        ]
        outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    found = [
        [json.loads(line[7:]) for line in output.splitlines() if line.startswith("RESULT ")] for output, _ in outputs
    ]
    assert all(found), "\n".join(
        f"rank {number} ended with {rank.returncode}: {errors}"
        for number, (rank, (_, errors)) in enumerate(zip(ranks, outputs, strict=True))
    )
    return found
