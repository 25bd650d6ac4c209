"""tshark's expert messages on kernel TCP and softnic's, in a capture on the kernel's device."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.daemon.nics import until
from tests.peers.sides import KERNEL, LIMIT_S, OURS, SIDES, Side, Sides, exchange

pytestmark = [needs.hosts, needs.tools("tshark", "dumpcap", "ping"), pytest.mark.slow]
CHECKS = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-o", "tcp.analyze_sequence_numbers:TRUE")
ONLY_BYTES = ("-d", "tcp.port==1-65535,data")
"""What streams carry is noise, also at a port where tshark expects a protocol (IRC at 57000)."""
WORTH_NOTING = 0x00400000
"""Severity of a note (PI_NOTE of Wireshark's proto.h): above a chat, below warnings and errors."""
KERNELS_ZERO = f"!(ip.src == {KERNEL} && tcp.checksum.ffff)"
"""Where Linux computes a checksum for a device that does not, and it is 0, it writes that as 0xffff, as for UDP."""
MARK = b"that was all"
HARMLESS = {
    "Connection finish (FIN)",
    "This frame initiates the connection closing",
    "This frame undergoes the connection closing",
}
"""Every connection has them."""
PROBED = ("This frame is a (suspected)", "Duplicate ACK", "D-SACK Sequence")
"""Where the machine stands still for longer than two round trips, a sender asks by its last segment whether all arrived
(RFC 8985, section 7), and hears that it had. That is seldom."""
RESET = "Connection reset (RST)"
"""Once both have ended, a segment that was overtaken or repeated meets no connection at one of them, which answers with
a reset (RFC 9293, section 3.10.7.1): the last FIN again, or acknowledgements behind the last one, since the kernel
sends from several processors."""


@contextlib.contextmanager
def capturing(joined: Sides, file: Path) -> Iterator[None]:
    """On the plain host. What comes in is captured as it came, not as the kernel joins it, checksums left behind."""
    joined.plain.set_offload("vx0", "gro", False)
    log = file.with_suffix(".log")
    with log.open("wb") as output:
        started = joined.plain.start("dumpcap", "-q", "-B", "64", "-i", "vx0", "-w", str(file), stderr=output)
        until(lambda: "File: " in log.read_text())
        yield
        joined.plain.run("ping", "-c", "1", "-w", "20", "-p", MARK.hex(), OURS)
        until(lambda: MARK in file.read_bytes())
        started.send_signal(signal.SIGINT)
        started.wait(LIMIT_S)
    joined.plain.set_offload("vx0", "gro", True)
    assert "dropped on interface 'vx0': " in log.read_text()


def experts(file: Path) -> Counter[str]:
    """Counts tshark's expert messages."""
    fields = ("-T", "fields", "-e", "_ws.expert.message", "-E", "aggregator=|")
    command = [
        "tshark",
        "-r",
        str(file),
        *CHECKS,
        *ONLY_BYTES,
        "-Y",
        f"_ws.expert.severity >= {WORTH_NOTING} && {KERNELS_ZERO}",
        *fields,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return Counter(said for line in done.stdout.splitlines() for said in line.split("|") if said not in HARMLESS)


@pytest.mark.parametrize("opener", SIDES)
def test_nothing_is_wrong_on_a_good_cable(joined: Sides, tmp_path: Path, opener: Side) -> None:
    file = tmp_path / "good.pcapng"
    with capturing(joined, file):
        for _ in range(3):
            with joined.connection(opener) as (kernel, ours):
                exchange((kernel, ours, 1_000_000), (ours, kernel, 1_000_000))
    packets = count(file, "tcp")
    assert packets > 1000
    said = experts(file)
    assert not {text for text in said if not text.startswith(PROBED) and text != RESET}
    assert all(ends == {KERNEL, OURS} for ends in ended_before_resets(file))
    assert said.total() - said[RESET] < packets / 100
    assert count(file, "tcp.flags.fin == 1 && !tcp.analysis.retransmission") == 6


def count(file: Path, what: str) -> int:
    return len(_chosen(file, what))


def ended_before_resets(file: Path) -> list[set[str]]:
    """Return who had sent a FIN before each reset."""
    fields = ("tcp.stream", "ip.src", "tcp.flags.fin", "tcp.flags.reset")
    lines = _chosen(
        file, "tcp.flags.fin == 1 || tcp.flags.reset == 1", "-T", "fields", *(f"-e{name}" for name in fields)
    )
    ended: dict[str, set[str]] = {}
    found = []
    for stream, source, ends, resets in map(str.split, lines):
        if resets in ("1", "True"):
            found.append(set(ended.get(stream, ())))
        if ends in ("1", "True"):
            ended.setdefault(stream, set()).add(source)
    return found


def _chosen(file: Path, what: str, *flags: str) -> list[str]:
    command = ["tshark", "-r", str(file), *ONLY_BYTES, "-Y", what, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout.splitlines()
