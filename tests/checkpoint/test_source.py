"""Sources and receivers on NICs: one process each, one of three killed; offers, withdrawals, other steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from softnic.checkpoint import (
    CheckpointError,
    Leaf,
    ReceiptPhase,
    ReceiptProgress,
    StateSource,
    Terms,
    TrainingState,
    receive,
    state_of,
)
from softnic.checkpoint.manifest import Bytes
from softnic.cluster.cluster import Cluster
from tests.checkpoint.peers import a_state
from tests.checkpoint.test_receiver import assert_equal

ROOT = Path(__file__).resolve().parents[2]
SIZE = 24 << 20
Serving = tuple[subprocess.Popen[str], tuple[str, int]]


@contextmanager
def serving(cluster: Cluster, node: int, seed: int, share: float) -> Iterator[Serving]:
    """Run a source on a node of a cluster."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.checkpoint.serving", str(seed), str(SIZE), str(share)],
        env=os.environ | cluster.env(node) | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            host, port = json.loads(process.stdout.readline())
            yield process, (host, port)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def nic() -> Iterator[Path]:
    with Cluster(nodes=1) as cluster:
        yield cluster.controls[0]


def test_a_source_is_killed_amid_a_transfer_from_three() -> None:
    state = a_state(1, SIZE)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(nodes=4, rate="300mbit"))
        one, two, three = (stack.enter_context(serving(cluster, node, 1, 4)) for node in (1, 2, 3))
        killed = threading.Event()

        def kill(progress: ReceiptProgress) -> None:
            if progress.phase is ReceiptPhase.TRANSFER and not killed.is_set():
                killed.set()
                threading.Timer(0.2, two[0].kill).start()

        secret = cluster.env(0)["SOFTNIC_JOB_SECRET"].encode()
        terms = Terms("job", nic=cluster.controls[0], secret=secret, timeout_s=60, stall_s=2)
        receipt = receive([one[1], two[1], three[1]], 5, terms, report=kill)
    assert_equal(receipt.state, state)
    dead = f"{two[1][0]}:{two[1][1]}"
    assert [*receipt.progress.lost] == [dead]
    total = sum(share.asked for share in receipt.shares.values())
    again = sum(share.asked_again for share in receipt.shares.values())
    pieces = sum(share.pieces for share in receipt.shares.values())
    lost = receipt.shares[dead].asked - receipt.shares[dead].pieces
    assert total == pieces + again
    assert 1 <= lost <= 2  # two are asked for at a time
    assert lost <= again <= lost + 4  # and those that were late at the end
    assert 0 < receipt.shares[dead].pieces < pieces


def test_a_later_step_a_withdrawal_and_an_unknown_step(nic: Path) -> None:
    state, terms = a_state(2), Terms("job", nic=nic, timeout_s=5)
    with StateSource(epoch="job", nic=nic) as source:
        source.offer(7, state)
        assert_equal(receive([source.address], 7, terms).state, state)
        with pytest.raises(CheckpointError, match="it refuses: step 6 is over: the source is at step 7"):
            receive([source.address], 6, terms)
        source.withdraw()
        with pytest.raises(CheckpointError, match=r"step 7 timed out after 0.3 s in the phase connect"):
            receive([source.address], 7, Terms("job", nic=nic, timeout_s=0.3, stall_s=1))
        with pytest.raises(CheckpointError, match="another epoch"):
            receive([source.address], 7, Terms("other", nic=nic))


def test_a_receiver_waits_for_the_step_that_a_source_will_have(nic: Path) -> None:
    state = a_state(3)
    with StateSource(epoch="job", nic=nic) as source:
        source.offer(1, a_state(2))
        later = threading.Timer(0.3, lambda: source.offer(2, lambda: state))
        later.start()
        assert_equal(receive([source.address], 2, Terms("job", nic=nic)).state, state)
        later.join()


def test_a_withdrawal_waits_for_receivers_that_have_begun_and_not_for_ever(nic: Path) -> None:
    weight = np.zeros(8 << 20, np.uint8)
    begun, go = threading.Event(), threading.Event()
    found: list[TrainingState | str] = []

    def place(leaves: Sequence[Leaf]) -> list[Bytes]:
        begun.set()
        go.wait(30)
        return [np.empty(leaf.nbytes, np.uint8) for leaf in leaves]

    def run() -> None:
        try:
            found.append(receive([source.address], 1, Terms("job", nic=nic), allocate=place).state)
        except CheckpointError as error:
            found.append(str(error))

    with StateSource(epoch="job", nic=nic, piece_bytes=1 << 20) as source:
        for wait_s in (0.2, 30.0):
            begun.clear()
            go.clear()
            source.offer(1, state_of({"weight": weight}))
            receiver = threading.Thread(target=run)
            receiver.start()
            assert begun.wait(30)
            if wait_s > 1:
                threading.Timer(0.3, go.set).start()
            source.withdraw(wait_s)
            weight += 1  # the owner goes on
            go.set()
            receiver.join(30)
    refused, state = found
    assert isinstance(refused, str)
    assert "it refuses: the state was withdrawn" in refused
    assert isinstance(state, TrainingState)
    assert (state.array("weight") == 1).all()


def test_what_serving_takes_is_counted(nic: Path) -> None:
    with StateSource(epoch="job", nic=nic, cpu_share=4) as source:
        source.offer(1, state_of({"weight": np.random.default_rng(1).standard_normal(4 << 20).astype(np.float32)}))
        receive([source.address], 1, Terms("job", nic=nic))
        assert source.served_bytes == 16 << 20
        assert 0 < source.cpu_s < 10
