"""torch's own tests of its distributed package, run against a backend: `python -m tests.torch.conformance`.

They are in torch.testing._internal.distributed.distributed_test, written for one new process a rank and test. Here
each rank is one process that makes a new process group for every test, and so is done in minutes. A test passes if it
does on every rank; the table says of each what came of it, and `--backend gloo` gives the table to compare with. Tests
that torch leaves out by the backend's name are run all the same, unless they need a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from softnic import Cluster

RANKS = 4
PATIENCE_S = 30.0
"""Timeout of every group."""
MARK = "RESULT "


def suite(backend: str) -> type[Any]:
    """Return torch's tests as methods of one class, with all features of Gloo enabled."""
    os.environ["BACKEND"] = backend
    os.environ |= {"TEMP_DIR": tempfile.gettempdir(), "WORLD_SIZE": str(RANKS)}
    from torch.testing._internal import common_distributed, common_utils

    for backends in common_distributed.DistTestCases.backend_feature.values():
        if "gloo" in backends:
            backends.add(backend)
    from torch.testing._internal.distributed import distributed_test

    class Suite(distributed_test.DistributedTest._DistTestBase, common_utils.TestCase):
        pass

    return Suite


def rank_main(backend: str, rank: int, directory: Path, names: list[str]) -> None:
    """Run the tests in order on one rank, and write a line about each."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    torch.set_num_threads(1)
    if backend == "softnic":
        import softnic.torch  # noqa: F401
    tests = suite(backend)
    from torch.testing._internal.distributed import distributed_test

    for name in names:
        place = directory / name
        for part in ("barrier", "test_dir", "init_dir"):
            (place / part).mkdir(parents=True, exist_ok=True)
        os.environ["TEMP_DIR"] = str(place)
        distributed_test.Barrier.barrier_id = 0
        store = FileStore(str(place / "store"), RANKS)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=PATIENCE_S)
        )
        test = tests(name)
        test.rank, test.world_size, test.file_name = rank, RANKS, str(place / "store")
        outcome = outcome_of(test, name)
        if dist.is_initialized():
            dist.destroy_process_group()
        print(MARK + json.dumps([name, *outcome]), flush=True)


def outcome_of(test: Any, name: str) -> tuple[str, str]:
    """Return the outcome of a test on this rank (passed, skipped or failed) and the reason."""
    method = getattr(test, name)
    try:
        test.setUp()
        method()
    except unittest.SkipTest as reason:
        return "skipped", str(reason)
    except SystemExit as end:
        from torch.testing._internal.common_distributed import TEST_SKIPS

        reasons = [skip.message for skip in TEST_SKIPS.values() if skip.exit_code == end.code]
        return "skipped", reasons[0] if reasons else f"exit code {end.code}"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def names_of(pattern: str) -> list[str]:
    return [name for name in sorted(dir(suite("gloo"))) if name.startswith("test_") and re.search(pattern, name)]


def run(backend: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """Run tests. Returns the outcome of each: failed if it failed on any rank, skipped if skipped on all."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        cluster = stack.enter_context(Cluster(nodes=RANKS)) if backend == "softnic" else None
        logs = [Path(directory) / f"log{rank}" for rank in range(RANKS)]
        ranks = []
        for rank, path in enumerate(logs):
            env = {**os.environ, "WORLD_SIZE": str(RANKS), "RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
            env |= {"PYTHONWARNINGS": "ignore", **(cluster.env(rank) if cluster else {})}
            command = [sys.executable, "-m", "tests.torch.conformance", "--rank", str(rank), "--backend", backend]
            log = stack.enter_context(path.open("w"))
            command += ["--directory", directory, *names]
            ranks.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        for process in ranks:
            process.wait()
        return worst([path.read_text() for path in logs])


def worst(logs: list[str]) -> dict[str, tuple[str, str]]:
    """Combine the lines of all ranks into one outcome for each test."""
    order = ("skipped", "passed", "failed")
    found: dict[str, tuple[str, str]] = {}
    for log in logs:
        for line in log.splitlines():
            if line.startswith(MARK):
                name, outcome, why = json.loads(line.removeprefix(MARK))
                if name not in found or order.index(outcome) > order.index(found[name][0]):
                    found[name] = (outcome, why)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="softnic")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.rank is not None:
        rank_main(options.backend, options.rank, options.directory, options.names)
    else:
        names = names_of("|".join(options.names))
        for name, (outcome, why) in run(options.backend, names).items():
            print(outcome, name, why.splitlines()[0][:150] if why else "")


if __name__ == "__main__":
    main()
