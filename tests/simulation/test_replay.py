"""A seed determines every frame and its time, in every process, with SIMD or without, with a capture or without."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from softnic.sim.node import FIRST_IP
from tests.simulation.recording import WorldRecording
from tests.simulation.scenario import draw
from tests.simulation.world import World

SEEDS = (3, 4, 7)
PROGRAM = """
import sys
from tests.simulation.scenario import draw
from tests.simulation.world import World

world = World(draw(int(sys.argv[1])))
world.run()
print(world.digest)
"""


def digest_of(seed: int) -> str:
    world = World(draw(seed))
    world.run()
    return world.digest


def test_seeds_make_different_worlds() -> None:
    assert len({draw(seed) for seed in range(50)}) == 50
    assert digest_of(3) != digest_of(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_frames(seed: int) -> None:
    first = digest_of(seed)
    assert digest_of(seed) == first
    environment = {**os.environ, "PYTHONHASHSEED": str(seed + 1), "SOFTNIC_KERNELS": "scalar"}
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed)], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == first


def test_recording_changes_nothing(tmp_path: Path) -> None:
    scenario = draw(3)
    output = io.BytesIO()
    recording = WorldRecording(output, [FIRST_IP + index for index in range(len(scenario.nodes))])
    world = World(scenario, recording=recording)
    world.run()
    assert world.digest == digest_of(3)
    path = tmp_path / "world.pcapng"
    path.write_bytes(output.getvalue())
    shown = subprocess.run(
        [sys.executable, "-m", "softnic", "inspect", str(path)], capture_output=True, text=True, check=True
    )
    assert "node0" in shown.stdout
