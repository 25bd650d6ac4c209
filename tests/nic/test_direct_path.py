"""Frames that go from the NIC to the kernel without the link, where the link has nothing to do for them."""

from __future__ import annotations

import errno
from random import Random

import pytest

from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.link.base import UdpPath
from softnic.nic.nic import Nic
from softnic.packet.frames import Frames
from tests.link.doubles import Recorder
from tests.nic.harness import IP_A, MAC_A, MAC_B, Pair


class Direct(Recorder):
    """A recorder with a path to the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.path: UdpPath | None = UdpPath(3, None, 1, True)
        self.direct: list[tuple[int, int]] = []

    def direct_path(self, destination: bytes) -> UdpPath | None:
        assert destination == MAC_B
        return self.path

    def on_direct_sent(self, frames: int, wire_bytes: int) -> None:
        self.direct.append((frames, wire_bytes))


PAYLOAD = Random(1).randbytes(10_000)
FRAMES = 7
SIZES = [1514] * 6 + [10_000 - 6 * 1448 + 66]


def sent(answer: int, link: Direct | None = None, capture: CaptureHook | None = None) -> Direct:
    """Returns the link of a NIC that sent one segment, the kernel having accepted `answer` frames."""
    link = link or Direct()
    nic = Nic(link if capture is None else CapturedLink(link, capture), MAC_A, IP_A)
    nic._segmenter.send_udp = lambda _: answer  # type: ignore[method-assign, assignment]
    pair = Pair().handshake()
    transmitted = nic.transmit(pair.segment(PAYLOAD, tos=0), MAC_B, 100, 0.0)
    assert transmitted[:3] == (10_000, FRAMES, sum(SIZES))
    return link


def through_the_link() -> list[bytes]:
    """Returns the frames as a link without a path gets them."""
    link = Direct()
    link.path = None
    return [frame for _, frame in sent(0, link).sent]


def test_the_kernel_gets_all_frames() -> None:
    link = sent(FRAMES)
    assert (link.direct, link.sent) == ([(FRAMES, sum(SIZES))], [])


@pytest.mark.parametrize("accepted", [1, 3, FRAMES - 1])
def test_the_link_gets_those_that_the_kernel_left(accepted: int) -> None:
    link = sent(accepted)
    assert link.direct == [(accepted, sum(SIZES[:accepted]))]
    assert [frame for _, frame in link.sent] == through_the_link()[accepted:]


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ECONNREFUSED, errno.EIO])
def test_the_link_gets_all_after_an_error(error: int) -> None:
    link = sent(-error)
    assert link.direct == []
    assert [frame for _, frame in link.sent] == through_the_link()


def test_kept_frames_stay_when_the_next_are_cut() -> None:
    link = Direct()
    link.path = None
    nic, pair = Nic(link, MAC_A, IP_A), Pair().handshake()
    for size in (100, 100_000, 200_000, 100):
        nic.transmit(pair.segment(Random(size).randbytes(size), tos=0), MAC_B, 4000, 0.0)
    first: Frames = link.batches[0]
    assert first[0].endswith(Random(100).randbytes(100))
    assert link.batches[1][0][66:] == Random(100_000).randbytes(100_000)[:1448]


def test_a_capture_sees_every_frame() -> None:
    hook = CaptureHook(IP_A)
    assert sent(FRAMES, capture=hook).direct
    hook.sinks.append(None)  # type: ignore[arg-type]
    link = CapturedLink(Direct(), hook)
    assert link.direct_path(MAC_B) is None
