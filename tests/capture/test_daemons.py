"""Real NICs: what a program sent is what a capture of its daemons decodes to."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from softnic import socket
from softnic.capture import reader
from softnic.capture.flows import Analysis, FlowView
from softnic.capture.streams import stream_bytes, stream_floats
from softnic.codecs import get
from softnic.commands import main
from softnic.commands.capture import recording

from ..daemon.nics import WAIT_S, pair, running
from .conftest import Tshark
from .lab import TOS, gradient

LOSSY = ("--loss", "3%", "--seed", "3")
EMULATED = ("--delay", "1ms")
DIRECT = ()
"""Frames go straight to the kernel."""


@pytest.mark.parametrize(
    ("codec", "flags"),
    [("bounded:12", LOSSY), ("bfp:7", LOSSY), ("truncate:16", LOSSY), ("bounded:12", EMULATED), ("bounded:12", DIRECT)],
)
def test_a_capture_of_a_tagged_transfer_decodes_to_what_was_sent(
    tmp_path: Path, tshark: Tshark, codec: str, flags: tuple[str, ...]
) -> None:
    sent = gradient(500_000) / np.float32(4)
    decoded = get(codec).roundtrip(sent)
    path = tmp_path / "x.pcapng"
    with (
        running(2, "--offload", f"0x28={codec}", *flags) as nics,
        recording([nic.path for nic in nics], path) as recorder,
    ):
        here, there = pair(nics)
        received = bytearray()

        def receive() -> None:
            while data := there.recv(1 << 20):
                received.extend(data)

        receiver = threading.Thread(target=receive)
        receiver.start()
        here.setsockopt(socket.SOL_NIC, socket.NIC_BLOCKS, 1)
        here.sendall(b"before")
        here.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TOS)
        here.sendall(sent.data)
        here.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
        here.sendall(b"after")
        here.shutdown(socket.SHUT_WR)
        receiver.join(WAIT_S * 3)
        here.close()
        there.close()
        counters = [nic.counters() for nic in nics]
    assert counters[0]["fast_path_sent"]
    assert counters[1]["fast_path_received"], "a capture leaves segments to C"
    assert bytes(received) == b"before" + decoded.tobytes() + b"after"
    assert recorder.dropped == 0

    analysis = Analysis(reader.read(path))
    flow = next(flow for flow in analysis.flows if flow.main.original_bytes)
    views: dict[str, FlowView] = {analysis.capture.interfaces[view.interface].name: view for view in flow.views}
    assert set(views) == {"node0:host", "node0:wire", "node1:wire", "node1:host"}
    assert stream_floats(analysis, views["node0:host"]).tobytes() == sent.tobytes()
    for name in ("node0:wire", "node1:wire", "node1:host"):
        assert stream_floats(analysis, views[name]).tobytes() == decoded.tobytes(), name
        assert stream_bytes(analysis, views[name]) == received, name
    if flags == LOSSY:
        assert flow.main.repeated_packets > 0, "what was lost was sent again"
        assert views["node1:wire"].packets < views["node0:wire"].packets
    else:
        assert views["node1:wire"].packets == views["node0:wire"].packets
    assert tshark(path, "frame.number", where="_ws.malformed") == []


def test_inspect_of_a_default_nic(tmp_path: Path) -> None:
    path, floats = tmp_path / "x.pcapng", tmp_path / "floats"
    with running(2) as nics, recording([nics[0].path], path):
        here, there = pair(nics)
        with here, there:
            here.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TOS)
            here.sendall(gradient(1000).data)
            left = 4000
            while left:
                left -= len(there.recv(left))
    assert main(["inspect", str(path), "--flow", "1", "--floats", str(floats)]) == 0
    assert np.load(floats).tobytes() == get("bounded:10").roundtrip(gradient(1000)).tobytes()
