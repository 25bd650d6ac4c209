"""Frames that the kernel refuses in the middle of a burst leave an emulated link once, in order, all the same."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from tests.link.doubles import A, B, number_of, numbered
from tests.link.refusing_kernel import SEED, RefusingKernel, built, run_with
from tests.link.sockets import opened

ANSWERS = (1, 1, 2, 5, 1 << 20, -errno.EAGAIN, -errno.ENOBUFS)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("kernel"))


def answers(random: Random, *errors: int) -> list[int]:
    """Return what a kernel answers to calls: messages that it takes, that it is full, and each of these errors."""
    found = [random.choice(ANSWERS) for _ in range(random.randrange(12))]
    for error in errors:
        found.insert(random.randrange(len(found) + 1), -error)
    return found


class Sending:
    """An emulated link over a wire, and the far end of that wire."""

    def __init__(self, stack: ExitStack, random: Random, *, gso: bool, reorder: float = 0.0) -> None:
        self.random, self.gso = random, gso
        self.wire, self.far = opened(stack), opened(stack)
        self.wire.add_peer(B, self.far.address)
        self.far.add_peer(A, self.wire.address)
        if not gso:
            (peer,) = self.wire._forwarding.peers
            peer.disable_gso()
        rate_bps, delay_s = random.choice((None, 1e8, 1e9)), random.choice((0.0, 1e-4, 1e-2))
        spec = EmulationSpec(rate_bps=rate_bps, delay_s=delay_s, reorder=reorder)
        self.link = EmulatedLink(self.wire, spec, seed=1)
        self.now = 0.0
        self.sent = 0
        self.arrived: list[int] = []

    def send(self, count: int) -> None:
        """Send batches of random sizes."""
        end = self.sent + count
        while self.sent < end:
            batch = min(self.random.randrange(1, 60), end - self.sent)
            self.link.send(numbered(self.sent, batch, 60), self.now)
            self.sent += batch
            self.receive()

    def receive(self) -> None:
        while (frames := self.far.receive(self.now)) is not None:
            self.arrived += map(number_of, frames)

    def finish(self) -> None:
        while (at := self.link.next_time()) is not None:
            self.now = max(self.now, at)
            self.link.advance(self.now)
            self.receive()

    def check(self) -> None:
        in_order = sorted(self.arrived) if self.link.counted.reordered else self.arrived
        assert in_order == list(range(self.sent))
        assert not self.link.in_transit
        counted = self.wire.counted
        assert (counted.sent_frames, counted.sent_bytes) == (self.sent, self.sent * 60)
        assert counted.dropped_full == counted.dropped_send_error == 0
        assert self.link.counted.sent == self.sent


def send_despite(seed: int, reorder: float) -> int:
    """Send over a kernel that refuses frames as the seed says. Return the number of its answers."""
    random, kernel, given = Random(seed), RefusingKernel(), 0
    with ExitStack() as stack:
        sending = Sending(stack, random, gso=seed % 2 == 0, reorder=reorder)
        no_gso_at = random.randrange(6) if sending.gso else -1
        for part in range(6):
            script = answers(random, errno.EIO if part == no_gso_at else errno.ECONNREFUSED)
            kernel.refuse_as(script)
            sending.send(random.randrange(300))
            if random.random() < 0.7:
                sending.finish()
            given += len(script) - kernel.left
        kernel.refuse_as(())
        sending.finish()
        sending.check()
    return given


def send_all(reorder: float) -> None:
    assert sum(send_despite(seed, reorder) for seed in range(60)) > 600


@pytest.mark.parametrize("reorder", [0.0, 0.1], ids=["in order", "reordered"])
def test_each_frame_leaves_once_and_in_order(library: Path, reorder: float) -> None:
    run_with(library, ["-c", f"from tests.link.test_emulation_refusals import send_all; send_all({reorder})"])


def stop_in_the_second_part_of_a_burst() -> None:
    """A push lists 512 frames at a time: the kernel takes those, and of the next ones a few."""
    kernel = RefusingKernel()
    with ExitStack() as stack:
        sending = Sending(stack, Random(1), gso=True)
        sending.link = EmulatedLink(sending.wire, EmulationSpec(delay_s=1.0), seed=1)
        sending.send(1500)
        kernel.refuse_as((8, 4, -errno.EAGAIN, -errno.EAGAIN))
        sending.now = 1.0
        sending.link.advance(1.0)
        sending.receive()
        assert len(sending.arrived) == 512 + 4 * 64
        assert sending.wire.is_waiting
        sending.finish()
        sending.check()


def test_an_error_in_the_second_part_of_a_burst_loses_nothing(library: Path) -> None:
    name = "stop_in_the_second_part_of_a_burst"
    run_with(library, ["-c", f"from tests.link.test_emulation_refusals import {name}; {name}()"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_turns_over_a_kernel_that_refuses_frames_lose_nothing(library: Path, seed: int) -> None:
    """Turns in C, which leave what the kernel refuses to Python."""
    tests = "tests/daemon/test_turn.py::test_turns_through_an_emulated_link_lose_nothing"
    run_with(library, ["-m", "pytest", "-q", "-p", "no:cacheprovider", tests], **{SEED: str(seed)})
