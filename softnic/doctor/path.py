"""Checks between this host and one where `softnic doctor --listen` runs."""

from __future__ import annotations

import errno
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass

from softnic import underlay
from softnic.doctor.client import ProbeClient
from softnic.doctor.findings import Finding, note, ok, problem
from softnic.doctor.probes import Answer, Facts, facts, proof
from softnic.underlay import Address
from softnic.units import text_rate, text_time

MAX_OFFSET_S = 1.0
MIN_NIC_MTU = 576
MAX_NIC_MTU = 9000


@dataclass(frozen=True, slots=True)
class PathSettings:
    """What the NICs of both hosts are to have in common."""

    peer: Address
    key: bytes | None = None
    mtu: int | None = None
    """`--mtu` of the NICs; None: not known."""
    version: str = ""
    """Of this installation; empty: as installed."""
    measure: bool = True


@dataclass(frozen=True, slots=True)
class PathResult:
    """The findings, and the rate that was measured, bits per second; None: not measured."""

    findings: list[Finding]
    rate_bps: float | None = None


def check(settings: PathSettings) -> PathResult:
    """Check the path to a peer, at the first of its addresses that answers. Raises OSError if its name has none."""
    addresses = underlay.addresses(settings.peer)
    client, unreached = _choose(addresses)
    if client is None:
        return PathResult(unreached)
    try:
        result = _check(client, settings)
    finally:
        client.close()
    result.findings.extend(unreached)
    if client.rejected and not client.is_other_version:
        text = f"{client.rejected} replies of {_name(client)} were not a doctor's, and were ignored"
        why = "another program has the port, or the host is not to be trusted"
        result.findings.append(note("answers", text, why, f"ss -lunp sport = {client.peer[1]}, on {client.peer[0]}"))
    return result


def _choose(addresses: Sequence[Address]) -> tuple[ProbeClient | None, list[Finding]]:
    """Return who asks the first address that answers, else the first with a route; without an answer also what is wrong
    with addresses that have none."""
    silent: Address | None = None
    unreached: list[Finding] = []
    for address in addresses:
        try:
            client = ProbeClient(address, address[1])
        except OSError as error:
            unreached.append(_without_route(address, error))
            continue
        if len(addresses) == 1 or client.ask() is not None:
            return client, []
        client.close()
        silent = silent or address
    return None if silent is None else ProbeClient(silent, silent[1]), unreached


def _without_route(address: Address, error: OSError) -> Finding:
    """Say that this host cannot send to an address, as one without IPv6 cannot to an IPv6 address."""
    family = underlay.family_name(address[0])
    own = underlay.names(underlay.own_families()) or "no address but loopback's"
    text = f"no way to {underlay.way(address)}: {_reason(error)}; this host has {own}"
    why = f"NICs here cannot send to that host over {family}"
    fix = "configure the address of the family that both hosts have, or give this host an address of the other one"
    return problem("way", text, why, fix)


def _check(client: ProbeClient, settings: PathSettings) -> PathResult:
    by_tcp = _ask_by_tcp(client)
    reply = client.ask()
    if reply is None:
        return PathResult(_unanswered(client, by_tcp))
    found = [ok("peer", f"{underlay.way(client.peer)} answers by UDP both ways in {text_time(reply.round_trip_s)}")]
    if not isinstance(by_tcp, Answer):
        text = f"no TCP connection to {_name(client)}: {_reason(by_tcp)}"
        why = "softnic's own traffic is UDP; a store of PyTorch, or SOFTNIC_STORE, needs TCP between the hosts"
        found.append(note("tcp", text, why, _accept(client.peer[1], "tcp")))
    if not client.uses_wire_port:
        text = f"UDP port {client.peer[1]} of this host is in use, so another one was tried"
        why = "a firewall's rule for the port of the NICs was not checked in the direction to this host"
        found.append(note("port", text, why, "stop the NIC that has it (ss -ulnp names it) and ask again"))
    if reply.answer.facts is not None:
        theirs = reply.answer.facts
        found += compare(theirs, settings, client.nonce, client.peer[0], reply.round_trip_s)
    there, back = client.path_mtu(reply.round_trip_s)
    found += _mtu(client, there, back, settings)
    if not settings.measure:
        return PathResult(found)
    rate_bps = _rate(client, min(there, back))
    if rate_bps is not None:
        found.append(ok("link", f"UDP to {_name(client)}: at least {text_rate(rate_bps)} in a short burst"))
    return PathResult(found, rate_bps)


def _name(client: ProbeClient) -> str:
    return underlay.text(client.peer)


def _ask_by_tcp(client: ProbeClient) -> Answer | OSError | None:
    try:
        return client.ask_by_tcp()
    except OSError as error:
        return error


def _reason(error: OSError | None) -> str:
    return "no answer of a listener" if error is None else error.strerror or str(error)


def _unanswered(client: ProbeClient, by_tcp: Answer | OSError | None) -> list[Finding]:
    """Tell apart a host that is not there, one without listener, and a firewall in one of the two directions."""
    host, port = client.peer
    if client.is_other_version:
        text = f"the doctor at {_name(client)} speaks another version of its protocol than this one"
        why = "the two installations differ, so neither the path nor the NICs can be compared"
        return [problem("version", text, why, "install the same wheel on both: pip install softnic-*.whl")]
    if not isinstance(by_tcp, Answer):
        if by_tcp is None or by_tcp.errno == errno.ECONNREFUSED:
            why = "the host answers, but no doctor listens there, so the path cannot be checked"
            return [
                problem("peer", f"no doctor listens at {_name(client)}", why, f"softnic doctor --listen, on {host}")
            ]
        text = f"{_name(client)} does not answer: UDP: no answer, TCP: {_reason(by_tcp)}"
        why = "NICs on the two hosts cannot reach each other"
        fix = f"ping {host}; if that answers, a firewall drops port {port}: {_accept(port)}"
        return [problem("peer", text, why, fix)]
    counted = _ask_by_tcp(client)
    received = counted.received if isinstance(counted, Answer) else 0
    why = "NICs exchange frames over this port in both directions; connections through them would time out"
    if received:
        text = f"{_name(client)} receives datagrams from here, but its answers do not arrive"
        return [problem("firewall", text, why, f"on this host: {_accept(port)}")]
    text = f"datagrams from {client.own_address} do not arrive at {_name(client)}, TCP does"
    return [problem("firewall", text, why, f"on {host}: {_accept(port)}")]


def _accept(port: int, protocol: str = "udp") -> str:
    return f"nft insert rule inet filter input {protocol} dport {port} accept (or: ufw allow {port}/{protocol})"


def compare(theirs: Facts, settings: PathSettings, nonce: str, host: str, round_trip_s: float) -> list[Finding]:
    """Compare versions, keys and clocks with what a host says in answer to a nonce."""
    ours = facts(settings.key, nonce, settings.version)
    found = []
    if (ours.version, ours.control, ours.codecs) == (theirs.version, theirs.control, theirs.codecs):
        found.append(ok("version", f"both hosts have softnic {ours.version}"))
    else:
        text = f"softnic {ours.version} here, {theirs.version} on {host}"
        if ours.codecs != theirs.codecs:
            text += "; their codecs differ"
        why = "ranks of one job must agree on codecs and collectives; tags whose codec a peer lacks stay uncompressed"
        found.append(problem("version", text, why, "install the same wheel on both: pip install softnic-*.whl"))
    found.append(_keys(settings.key, nonce, theirs, host))
    offset_s = theirs.time_s - (time.time() - round_trip_s / 2)
    if abs(offset_s) > MAX_OFFSET_S:
        text = f"the clock of {host} differs by {text_time(abs(offset_s))}"
        why = "captures and logs of the two hosts cannot be merged by time; nothing else depends on it"
        found.append(note("time", text, why, "timedatectl set-ntp true, on both hosts"))
    else:
        found.append(ok("time", f"the clocks agree within {text_time(max(abs(offset_s), round_trip_s))}"))
    return found


def _keys(key: bytes | None, nonce: str, theirs: Facts, host: str) -> Finding:
    why = "NICs with different keys, or with and without one, drop all frames of each other"
    if key is None and not theirs.proof:
        return ok("key", "neither side was given a key: frames are plain VXLAN")
    if key is None:
        return problem("key", f"{host} has a key, this host was given none", why, "pass --key FILE, or --config FILE")
    if not theirs.proof:
        fix = f"softnic doctor --listen --key FILE, on {host}; softnicd --key FILE there"
        return problem("key", f"this host has a key, {host} was given none", why, fix)
    if hmac.compare_digest(proof(key, nonce), theirs.proof):
        return ok("key", "both hosts have the same key")
    fix = f"copy one key file to both: scp /etc/softnic/key root@{underlay.bracketed(host)}:/etc/softnic/key"
    return problem("key", f"the key of {host} is another one", why, fix)


def _mtu(client: ProbeClient, there: int, back: int, settings: PathSettings) -> list[Finding]:
    headers = underlay.overhead(underlay.family(client.peer[0]), settings.key is not None)
    smallest, interface = min(there, back), client.interface_mtu
    most = max(MIN_NIC_MTU, min(MAX_NIC_MTU, smallest - headers))
    found = []
    if smallest < interface:
        direction = "to" if there < interface else "from"
        text = f"packets {direction} {client.peer[0]} are lost above {smallest} bytes, the MTU here is {interface}"
        why = "larger packets vanish without an error, so connections that carry them stall"
        fix = f"softnicd --mtu {most} on all hosts (or mtu = {most}), or the same MTU on every interface of the path"
        found.append(problem("path", text, why, fix))
    if settings.mtu is None:
        found.append(ok("mtu", f"packets of {smallest} bytes pass both ways: softnicd --mtu {most} fits"))
    elif settings.mtu > smallest - headers:
        text = f"--mtu {settings.mtu} makes packets of {settings.mtu + headers} bytes, but {smallest} pass"
        why = "full frames are lost, so connections open and then stall"
        found.append(problem("mtu", text, why, f"softnicd --mtu {most} on all hosts (or mtu = {most})"))
    else:
        found.append(ok("mtu", f"packets of --mtu {settings.mtu} pass: {smallest} bytes pass both ways"))
    return found


def _rate(client: ProbeClient, packet: int) -> float | None:
    """Measure a burst; None if nothing of it arrived or nobody can say."""
    sent, took_s = client.burst(packet - client.headers)
    for _ in range(3):
        time.sleep(0.05)
        if (reply := client.ask()) is not None and (rate_bps := burst_rate(reply.answer, sent, took_s)):
            return rate_bps
    return None


def burst_rate(answer: Answer, sent: int, took_s: float) -> float:
    """Return the rate at which a burst arrived: at most that at which it was sent, whatever the peer says; 0: none."""
    if not answer.burst_s or not took_s:
        return 0.0
    return 8 * min(answer.burst_bytes / answer.burst_s, sent / took_s)
