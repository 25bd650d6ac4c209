"""Checks of NICs that run on this host, by what they have counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softnic import underlay
from softnic.cluster.nic_process import read_stats, running_nics
from softnic.doctor.client import path_mtu
from softnic.doctor.findings import Finding, note, ok, problem
from softnic.ipc.control import VERSION, NicStats
from softnic.ipc.snapshot import MeetingInfo, PeerWay

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
        "compare softnicd --mtu with `ip link`: it must be 50 bytes smaller, 70 over IPv6, 24 more with a key",
    ),
}
_DROPPED = "link_kernel_dropped_datagrams"
_SEALED = "link_sessions"
"""A counter of NICs with a key."""


_NATS = {
    "open": "no NAT",
    "unknown": "a NAT of unknown kind",
    "no UDP": "a NAT or firewall that lets no UDP through",
}
"""Kinds that are not named as they are."""


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
    found = found or [ok("nic", f"{name} ({stats.info.ip}) answers and has dropped nothing")]
    if stats.meeting is not None:
        found += _meeting(name, stats.meeting)
    return found + [finding for way in stats.ways for finding in _way(stats, way)]


def to_peer(ip: str, paths: Sequence[str]) -> list[Finding] | None:
    """Return the findings about the way to the node with an address, by the NICs with these control sockets, or by all
    that are found and answer; None: it is no peer of any of them."""
    found: list[Finding] | None = None
    for path in [Path(each) for each in paths] or running_nics():
        try:
            stats = read_stats(path)
        except OSError:
            continue
        for way in stats.ways:
            if way.peer == ip:
                found = [*(found or []), *_way(stats, way)]
    return found


def _meeting(name: str, meeting: MeetingInfo) -> list[Finding]:
    """Return the findings about the job whose nodes a NIC meets."""
    if meeting.refusal:
        fix = "end the nodes that are too many, or make a token for more: softnic meet token --nodes N"
        return [problem("meeting", f"the server refuses {name}: {meeting.refusal}", "it meets no other node", fix)]
    found = []
    if not meeting.registered:
        why = "nodes that have met go on; those that join or move are not found"
        found.append(
            note("meeting", f"no meeting server answers {name}", why, "start softnic meet on the server again")
        )
    found.append(ok("nat", f"{name} is behind {_NATS.get(meeting.nat, f'a {meeting.nat} NAT')}"))
    if meeting.tcp:
        why = "everything to other nodes goes through one TCP connection to the server, which is slower than UDP"
        found.append(note("nat", f"no UDP passes from {name} to the meeting server", why, "let UDP port 9470 pass"))
    if meeting.waiting:
        why = "programs cannot connect to these nodes"
        fix = "look whether softnic join still runs there, and let a server relay, or a node: softnic join --relay"
        found.append(problem("way", f"{name} has no way to {', '.join(meeting.waiting)}", why, fix))
    return found


def _way(stats: NicStats, way: PeerWay) -> list[Finding]:
    """Return the findings about the way to a peer, as the kernel knows it here."""
    name, host = stats.info.name, underlay.parse(way.address)[0]
    if underlay.source(host) is None:
        text = f"{name} has no route to {way.peer} by {way.address} ({way.family})"
        own = underlay.names(underlay.own_families()) or "no address but loopback's"
        why = f"frames to that node are lost: this host has {own}"
        fix = "configure the address of the family that both hosts have, or give this host an address of the other one"
        return [problem("way", text, why, fix)]
    text = f"{name} reaches {way.peer} by {way.address} ({way.family})"
    found = [ok("way", text)]
    if way.relayed:
        why = "the relay adds its own way and its limit of the rate: the NATs of both hosts let no direct way through"
        fix = "give one of the two a public address or a forwarded UDP port (softnic join --wire :PORT --reachable-at)"
        by = f" by node {way.relay}" if way.relay else ""
        found = [note("way", f"{text}, relayed{by}", why, fix)]
    overhead = underlay.overhead(underlay.family(host), _SEALED in stats.counters)
    most = path_mtu(host)
    if most < stats.info.mtu + overhead:
        text = f"{name} makes packets of {stats.info.mtu + overhead} bytes, and the path to {way.peer} takes {most}"
        why = "the kernel cuts each into fragments, which costs CPU, and the loss of one is that of the whole"
        fix = f"softnicd --mtu {most - overhead} on all hosts (or mtu = {most - overhead})"
        found.append(note("mtu", text, why, fix))
    return found
