"""Checks of NICs that run on this host, by what they have counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softnic.cluster.nic_process import read_stats, running_nics
from softnic.doctor.findings import Finding, note, ok, problem
from softnic.ipc.control import VERSION, NicStats

_COUNTED = {
    "link_dropped_wrong_key": (
        "datagrams under another key",
        "frames of that peer are dropped",
        "copy the same key file to all hosts: scp /etc/softnic/key root@HOST:/etc/softnic/key",
    ),
    "link_dropped_plaintext": (
        "datagrams without encryption from peers",
        "this NIC has a key and that peer has none, so their frames are dropped",
        "give that NIC the key too: softnicd --key FILE",
    ),
    "link_dropped_unknown_source": (
        "datagrams from addresses that are not peers",
        "a peer whose address or port differs from the configured one is not heard",
        'add it under [peers] in the configuration: "10.77.0.2" = "HOST:4789" (softnic stat names the address)',
    ),
    "link_dropped_send_error": (
        "datagrams that the kernel refused to send",
        "no route, or an MTU larger than that of the interface",
        "compare softnicd --mtu with `ip link`: it must be 50 bytes smaller, 74 with a key",
    ),
}
_DROPPED = "link_kernel_dropped_datagrams"


def check(paths: Sequence[str]) -> list[Finding]:
    """Return the findings of the NICs with these control sockets, or of all that are found and answer."""
    found: list[Finding] = []
    for path in [Path(each) for each in paths] or running_nics():
        try:
            found += of(read_stats(path))
        except OSError as error:
            if not paths:  # left behind by a cluster that was killed
                continue
            why = "programs cannot use it"
            fix = "systemctl restart softnicd@NAME; journalctl -u softnicd@NAME shows why it ended"
            found.append(problem("nic", error.strerror or str(error), why, fix))
    return found or [ok("nic", "no NIC runs here as this user")]


def of(stats: NicStats) -> list[Finding]:
    """Return the findings of one NIC."""
    name, counters = stats.info.name, stats.counters
    found = []
    if stats.info.version != VERSION:
        text = f"{name} speaks version {stats.info.version} of the control protocol, this installation {VERSION}"
        why = "programs that use this installation cannot use that NIC"
        found.append(problem("nic", text, why, "restart the NIC: systemctl restart softnicd@NAME"))
    for counter, (what, why, fix) in _COUNTED.items():
        if count := counters.get(counter, 0):
            found.append(problem("nic", f"{name} has dropped {count:,} {what} since it started ({counter})", why, fix))
    if count := counters.get(_DROPPED, 0):
        text = f"the kernel has dropped {count:,} datagrams to {name} ({_DROPPED})"
        why = "its socket's buffer was full; TCP sends them again"
        found.append(note("nic", text, why, "sysctl -w net.core.rmem_max=16777216, and a core that is free"))
    return found or [ok("nic", f"{name} ({stats.info.ip}) answers and has dropped nothing")]
