"""NATs of a laboratory, each proved by plain UDP sockets, and which pairs of them connect."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.nat_lab.kinds import KINDS, PAIRED, theory
from softnic.cluster.nat_lab.lab import TCP_PORTS, NatLab
from softnic.cluster.nat_lab.site import SitePlan
from softnic.cluster.netns_lab.host import HostError, NetnsHost
from tests import needs
from tests.cluster.nat_probes import ANSWER_S, Puncher, admitted, punch, register, seen, udp
from tests.documented import blocks

DIRECT = """
                open  full cone  restricted  port-restricted  symmetric  double  no udp
open             x        x          x              x             x         x       -
full cone        x        x          x              x             x         x       -
restricted       x        x          x              x             x         x       -
port-restricted  x        x          x              x             -         x       -
symmetric        x        x          x              -             -         -       -
double           x        x          x              x             -         x       -
no udp           -        -          -              -             -         -       -
"""
"""RFC 5128, section 3.3, and Ford et al. 2005, section 3: the pairs that hole punching connects."""
SHORT, SHORT_S = ("full cone", "restricted", "port-restricted", "symmetric", "double"), 1
SITES: dict[str, str | SitePlan] = {
    **{kind: kind for kind in KINDS},
    "blackhole": SitePlan(kind="mtu 1280", blackhole=True),
    "dual": SitePlan(kind="double", ipv6=True),
    "hairpin": SitePlan(kind="port-restricted", hosts=2, hairpin=True),
    "hairpin cone": SitePlan(kind="full cone", hosts=2, hairpin=True),
    "no hairpin": SitePlan(kind="full cone", hosts=2),
    **{f"short {kind}": SitePlan(kind=kind, timeout_s=SHORT_S) for kind in SHORT},
}
IP_MTU_DISCOVER, IP_RECVTTL, IP_MTU, IP_PMTUDISC_DONT, IP_PMTUDISC_DO = 10, 12, 14, 0, 2
"""linux/in.h."""
TRANSLATING = ("full cone", "restricted", "port-restricted", "symmetric", "double", "mtu 1280")


def pinned() -> dict[tuple[str, str], bool]:
    rows = DIRECT.strip("\n").splitlines()[1:]
    marks = [row[len("port-restricted") :].split() for row in rows]
    return {(a, b): marks[i][j] == "x" for i, a in enumerate(PAIRED) for j, b in enumerate(PAIRED)}


@pytest.fixture(scope="module")
def lab() -> Iterator[NatLab]:
    with NatLab(SITES, servers=2) as made:
        yield made


@pytest.fixture
def sockets() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


class Servers:
    """Sockets of the servers: `same`; another port of this address; another address."""

    def __init__(self, lab: NatLab, sockets: contextlib.ExitStack, *, ipv6: bool = False) -> None:
        first, second = (server.address6 if ipv6 else server.address for server in lab.servers)
        self.same = sockets.enter_context(udp(lab.servers[0], first))
        self.port = sockets.enter_context(udp(lab.servers[0], first))
        self.address = sockets.enter_context(udp(lab.servers[1], second))

    def named(self) -> dict[str, socket.socket]:
        return {"address": self.address, "port": self.port, "same": self.same}


def test_theory_is_the_table() -> None:
    assert {(a, b): theory(a, b) for a, b in itertools.product(PAIRED, repeat=2)} == pinned()


@pytest.mark.parametrize("kind", KINDS)
def test_theory_of_other_kinds(kind: str) -> None:
    assert theory("mtu 1280", kind) == theory("port-restricted", kind)
    assert theory("ipv6 only", kind) == (kind == "ipv6 only")
    with pytest.raises(KeyError):
        theory("round", kind)


@needs.nats
def test_all_pairs_connect_as_theory_says() -> None:
    expected = pinned()
    names = {(side, kind): f"{side} {kind}" for side in ("left", "right") for kind in PAIRED}
    with NatLab({name: kind for (_, kind), name in names.items()}) as lab, contextlib.ExitStack() as sockets:
        pairs = [
            tuple(
                Puncher(sockets.enter_context(udp(lab.host(names[side, kind]))))
                for side, kind in zip(("left", "right"), kinds, strict=True)
            )
            for kinds in expected
        ]
        punchers = [each for pair in pairs for each in pair]
        server = sockets.enter_context(udp(lab.server, lab.server.address))
        reachable = [kind != "no udp" for kinds in expected for kind in kinds]
        addresses = register(punchers, server, sum(reachable))
        assert sorted(addresses) == [number for number, can in enumerate(reachable) if can]
        for number, address in addresses.items():
            punchers[number ^ 1].targets.add(address)
        connected = punch([(left, right) for left, right in pairs], sum(expected.values()))
    assert dict(zip(expected, connected, strict=True)) == expected


@needs.nats
@pytest.mark.parametrize(
    ("left", "right", "family"),
    [
        ("ipv6 only", "dual", "::"),
        ("mtu 1280", "port-restricted", ""),
        ("double", "dual", ""),
        ("hairpin", "double", ""),
    ],
)
def test_other_pairs_connect(lab: NatLab, sockets: contextlib.ExitStack, left: str, right: str, family: str) -> None:
    servers = Servers(lab, sockets, ipv6=bool(family))
    sides = [Puncher(sockets.enter_context(udp(lab.host(name), family))) for name in (left, right)]
    for side, other in (sides, sides[::-1]):
        other.targets.add(seen(side.socket, servers.same))
    assert punch([(sides[0], sides[1])], 1) == [True]


@needs.nats
@pytest.mark.parametrize("kind", ["open", *TRANSLATING])
def test_mapping_and_filtering(lab: NatLab, sockets: contextlib.ExitStack, kind: str) -> None:
    servers = Servers(lab, sockets)
    probe = sockets.enter_context(udp(lab.host(kind)))
    first = seen(probe, servers.same)
    assert first[0] == lab.address(kind)
    may = {"open": {"port", "address"}, "full cone": {"port", "address"}, "restricted": {"port"}}
    assert admitted(probe, servers.named().items(), first, "same") == may.get(kind, set())
    others = {seen(probe, servers.port), seen(probe, servers.address)}
    if kind == "symmetric":
        assert first not in others
        assert len(others) == 2
    else:
        assert others == {first}
        assert admitted(probe, servers.named().items(), first, "same") == {"port", "address"}
    if kind in TRANSLATING:
        assert first[1] != probe.getsockname()[1]
        assert lab.host(kind).address == "192.168.1.10"
    else:
        assert first == (lab.host(kind).address, probe.getsockname()[1])


@needs.nats
def test_a_nat_forgets_what_is_silent(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    servers = Servers(lab, sockets)
    probes = [sockets.enter_context(udp(lab.host(f"short {kind}"))) for kind in SHORT]
    addresses = [seen(probe, servers.same) for probe in probes]
    time.sleep(1.5 * SHORT_S)
    for probe, address in zip(probes, addresses, strict=True):
        for server in servers.named().values():
            server.sendto(b"late", address)
        servers.same.sendto(b"again", seen(probe, servers.same))
        assert probe.recv(100) == b"again"


def remove_forgotten_flows(router: NetnsHost) -> None:
    """Let the kernel remove expired flows, which it does when they are listed, or else some time later."""
    with router.entered(), contextlib.suppress(FileNotFoundError):
        Path("/proc/thread-self/net/nf_conntrack").read_text()


@needs.nats
def test_a_mapping_outlives_the_flow_that_made_it(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    """A flow that began outside keeps the port of a socket whose own flow the NAT has forgotten."""
    servers = Servers(lab, sockets)
    kinds = "full cone", "restricted"
    probes = [sockets.enter_context(udp(lab.host(f"short {kind}"))) for kind in kinds]
    for _ in range(10):
        mapped = [seen(probe, servers.same) for probe in probes]
        begun = last = time.monotonic()
        longest = 0.0
        while longest < SHORT_S / 2 and last < begun + 1.5 * SHORT_S:
            for probe, address in zip(probes, mapped, strict=True):
                servers.port.sendto(b"port", address)
                probe.sendto(b"answer", servers.port.getsockname())
                assert servers.port.recvfrom(100)[0] == b"answer"
            time.sleep(SHORT_S / 20)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        if longest < SHORT_S / 2:  # or this process was stopped, and the NAT has forgotten all
            break
    for kind in kinds:
        for router in lab.site(f"short {kind}").routers:
            remove_forgotten_flows(router)
    assert [seen(probe, servers.address) for probe in probes] == mapped


@needs.nats
@pytest.mark.parametrize("kind", TRANSLATING)
def test_rebinding(lab: NatLab, sockets: contextlib.ExitStack, kind: str) -> None:
    servers = Servers(lab, sockets)
    probe = sockets.enter_context(udp(lab.host(kind)))
    addresses = [seen(probe, servers.same)]
    for _ in range(3):
        lab.rebind(kind)
        for server in servers.named().values():
            server.sendto(b"late", addresses[-1])
        addresses.append(seen(probe, servers.same))
        servers.same.sendto(b"again", addresses[-1])
        assert probe.recv(100) == b"again"
    assert len(set(addresses)) == len(addresses)
    assert {address for address, _ in addresses} == {lab.address(kind)}


@needs.nats
@pytest.mark.parametrize("kind", [*TRANSLATING, "open", "ipv6 only", "dual", "blackhole"])
def test_moving(lab: NatLab, sockets: contextlib.ExitStack, kind: str) -> None:
    ipv6 = kind in ("ipv6 only", "dual")
    servers = Servers(lab, sockets, ipv6=ipv6)
    probe = sockets.enter_context(udp(lab.host(kind), "::" if ipv6 else ""))
    old, was = seen(probe, servers.same), lab.address(kind)
    lab.move(kind)
    for server in servers.named().values():
        server.sendto(b"late", old)
    new = seen(probe, servers.same)
    servers.same.sendto(b"again", new)
    assert probe.recv(100) == b"again"
    assert new[0] != old[0]
    assert lab.address(kind) != was
    assert new[0] == (lab.host(kind).address6 if ipv6 else lab.address(kind))


@needs.nats
def test_what_has_no_nat_does_not_rebind(lab: NatLab) -> None:
    for kind in ("open", "ipv6 only"):
        with pytest.raises(ValueError, match="has no NAT"):
            lab.rebind(kind)


@needs.nats
@pytest.mark.parametrize("kind", ["open", "symmetric", "double"])
def test_a_blocked_site_is_silent_until_it_is_unblocked(lab: NatLab, sockets: contextlib.ExitStack, kind: str) -> None:
    servers = Servers(lab, sockets)
    probe = sockets.enter_context(udp(lab.host(kind)))
    first = seen(probe, servers.same)
    lab.block(kind)
    servers.same.sendto(b"lost", first)
    probe.sendto(b"lost", servers.same.getsockname())
    lab.unblock(kind)
    assert seen(probe, servers.same) == first
    servers.same.sendto(b"again", first)
    assert probe.recv(100) == b"again"


@needs.nats
def test_two_hosts_of_a_site_with_hairpin(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    servers = Servers(lab, sockets)
    for site, filters in (("hairpin cone", False), ("hairpin", True)):
        left, right = (sockets.enter_context(udp(lab.host(site, number), port=5000)) for number in range(2))
        at_left, at_right = seen(left, servers.same), seen(right, servers.same)
        assert at_left[1] != at_right[1]
        left.sendto(b"first", at_right)
        if not filters:
            assert right.recvfrom(100) == (b"first", at_left)
        right.sendto(b"second", at_left)
        assert left.recvfrom(100) == (b"second", at_right)
        left.sendto(b"third", at_right)
        assert right.recvfrom(100) == (b"third", at_left)


@needs.nats
def test_two_hosts_of_a_site_without_hairpin(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    servers = Servers(lab, sockets)
    left, right = (sockets.enter_context(udp(lab.host("no hairpin", number))) for number in range(2))
    at_right = seen(right, servers.same)
    for _ in range(3):
        left.sendto(b"lost", at_right)
    servers.same.sendto(b"same", at_right)
    assert right.recv(100) == b"same"
    left.sendto(b"direct", (lab.host("no hairpin", 1).address, right.getsockname()[1]))
    assert right.recvfrom(100) == (b"direct", (lab.host("no hairpin").address, left.getsockname()[1]))


@needs.nats
def test_no_udp_passes_and_tcp_to_the_given_ports_only(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    server = sockets.enter_context(udp(lab.server, lab.server.address))
    server.setblocking(False)
    probe = sockets.enter_context(udp(lab.host("no udp")))
    with lab.server.entered():
        listeners = {
            port: sockets.enter_context(socket.create_server((lab.server.address, port))) for port in (80, *TCP_PORTS)
        }
    with lab.host("no udp").entered():
        tries = {port: sockets.enter_context(socket.socket()) for port in listeners}
    for port, client in tries.items():
        probe.sendto(b"lost", server.getsockname())
        client.setblocking(False)
        assert client.connect_ex((lab.server.address, port)) == errno.EINPROGRESS
    for port in TCP_PORTS:
        listeners[port].settimeout(ANSWER_S)
        accepted, (address, _) = listeners[port].accept()
        sockets.enter_context(accepted)
        assert address == lab.address("no udp")
        accepted.sendall(b"hello")
        tries[port].settimeout(ANSWER_S)
        assert tries[port].recv(100) == b"hello"
    listeners[80].setblocking(False)
    with pytest.raises(BlockingIOError):
        listeners[80].accept()
    with pytest.raises(BlockingIOError):
        server.recv(100)


@needs.nats
@pytest.mark.parametrize("site", ["ipv6 only", "dual"])
def test_ipv6_is_not_translated_and_admits_only_replies(lab: NatLab, sockets: contextlib.ExitStack, site: str) -> None:
    servers = Servers(lab, sockets, ipv6=True)
    probe = sockets.enter_context(udp(lab.host(site), "::"))
    first = seen(probe, servers.same)
    assert first[:2] == (lab.host(site).address6, probe.getsockname()[1])
    assert admitted(probe, servers.named().items(), first, "same") == set()
    assert {seen(probe, servers.port), seen(probe, servers.address)} == {first}
    if site == "ipv6 only":
        over_ipv4 = sockets.enter_context(udp(lab.host(site)))
        with pytest.raises(OSError, match="unreachable"):
            over_ipv4.sendto(b"lost", (lab.server.address, 9))


@needs.nats
def test_two_layers_are_two_routers(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    server = sockets.enter_context(udp(lab.server, lab.server.address))
    server.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
    hops: dict[str, int] = {}
    for kind in ("port-restricted", "double"):
        probe = sockets.enter_context(udp(lab.host(kind)))
        probe.sendto(b"far", server.getsockname())
        ((_, _, ttl),) = server.recvmsg(100, 100)[1]
        hops[kind] = 64 - int.from_bytes(ttl, sys.byteorder)
    assert hops == {"port-restricted": 2, "double": 3}


def path_mtu(probe: socket.socket) -> int:
    return probe.getsockopt(socket.IPPROTO_IP, IP_MTU)


@needs.nats
@pytest.mark.parametrize("site", ["mtu 1280", "blackhole"])
def test_mtu(lab: NatLab, sockets: contextlib.ExitStack, site: str) -> None:
    servers = Servers(lab, sockets)
    probe = sockets.enter_context(udp(lab.host(site)))
    servers.same.connect(seen(probe, servers.same))
    probe.connect(servers.same.getsockname())
    for sender, receiver in ((probe, servers.same), (servers.same, probe)):
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        assert path_mtu(sender) == 1500
        for _ in range(3):
            with contextlib.suppress(OSError):  # EMSGSIZE: the MTU is known, or has just become known
                sender.send(bytes(1400))
        sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # which clears what was reported
        sender.send(b"small")
        assert receiver.recv(2000) == b"small"
        assert path_mtu(sender) == (1500 if site == "blackhole" else 1280)
        sender.send(bytes(1252))
        assert receiver.recv(2000) == bytes(1252)
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        sender.send(bytes(1400))
        assert receiver.recv(2000) == bytes(1400)


@needs.nats
def test_private_addresses_do_not_cross_the_public_network(lab: NatLab, sockets: contextlib.ExitStack) -> None:
    """Neither those of hosts, which other sites have, too, nor those of routers."""
    host, (router,) = lab.host("full cone"), lab.site("full cone").routers
    route = router.run("ip", "-oneline", "route", "get", lab.server.address)
    end = route.split(" src ")[1].split()[0]
    targets = [sockets.enter_context(udp(each, port=5001)) for each in (host, router)]
    for stranger in (lab.server, lab.host("restricted")):
        probe = sockets.enter_context(udp(stranger))
        for address in (host.address, end):
            probe.sendto(b"lost", (address, 5001))
    neighbour = sockets.enter_context(udp(host))
    for address, target in zip((host.address, end), targets, strict=True):
        neighbour.sendto(b"near", (address, 5001))
        assert target.recv(100) == b"near"


@needs.nats
def test_a_link_with_faults() -> None:
    far = SitePlan(kind="port-restricted", faults={"delay": "20ms", "loss": "30%"})
    with NatLab({"far": far, "near": "open"}, seed=7) as lab, contextlib.ExitStack() as sockets:
        servers = [sockets.enter_context(udp(lab.server, lab.server.address)) for _ in range(2)]
        near, distant = (sockets.enter_context(udp(lab.host(name))) for name in ("near", "far"))
        assert seen(near, servers[0])[0] == lab.address("near")
        for each in (distant, servers[1]):
            each.settimeout(0.1)
        begun: list[float] = []
        taken: dict[int, float] = {}
        while len(begun) < 1000 and len(taken) < 10:
            begun.append(time.monotonic())
            distant.sendto(b"%d" % (len(begun) - 1), servers[1].getsockname())
            with contextlib.suppress(TimeoutError):
                servers[1].sendto(*servers[1].recvfrom(100))
                number = int(distant.recv(100))
                taken.setdefault(number, time.monotonic() - begun[number])
        counted = lab.counters("far")
    assert len(taken) == 10
    assert min(taken.values()) >= 0.04
    assert counted["lost"] > 0
    assert counted["sent"] > counted["lost"]


HELD = """
import time
from softnic.cluster.nat_lab.lab import NatLab
from softnic.cluster.nat_lab.site import SitePlan
with NatLab({"a": SitePlan(kind="double", faults={"delay": "1ms"})}) as lab:
    print(lab.host("a").start("sleep", "1000").pid, lab._carrier._process.pid, flush=True)
    time.sleep(1000)
"""


@needs.nats
def test_nothing_is_left_when_the_process_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = list(map(int, process.stdout.readline().split()))
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + ANSWER_S
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < until:
        time.sleep(0.01)
    assert alive == []


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def descriptors() -> set[tuple[str, str]]:
    """The open file descriptors of this process, and what they are of."""
    gc.collect()  # what earlier tests have left
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the folder
            found.add((path.name, str(path.readlink())))
    return found


@needs.nats
def test_nothing_is_left_of_a_lab() -> None:
    fds, devices = descriptors(), Path("/proc/self/net/dev").read_text().count(":")
    with NatLab({"a": SitePlan(kind="double", hosts=2), "b": SitePlan(kind="ipv6 only")}) as lab:
        process = lab.host("a").start("sleep", "1000")
        directory = lab.host("a").directory
    assert process.returncode == -signal.SIGKILL
    assert not directory.exists()
    assert descriptors() - fds == set()  # threads of earlier tests may still close some
    assert Path("/proc/self/net/dev").read_text().count(":") == devices


@needs.nats
@needs.tools("iperf3", "ping")
def test_the_example_of_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "CONTRIBUTING.md"
    (example,) = [block.text for block in blocks(page) if block.language == "python"]
    exec(compile(example, page.name, "exec"), {})
    assert "1 received" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ({"kind": "round"}, "no kind of NAT is named 'round'"),
        ({"kind": "open", "hosts": 2}, "1 to 1 hosts, not 2"),
        ({"kind": "symmetric", "hosts": 0}, "1 to 100 hosts, not 0"),
        ({"kind": "symmetric", "timeout_s": 0}, "timeout_s must be at least 1, not 0"),
    ],
)
def test_plans_that_cannot_be_built(plan: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SitePlan(**plan)  # type: ignore[arg-type]


@needs.nats
def test_a_lab_that_fails_leaves_nothing() -> None:
    fds = descriptors()
    with pytest.raises(HostError):
        NatLab({"a": SitePlan(kind="open", faults={"delay": "1ms"}), "b": "no udp"}, tcp_ports=(70000,))
    assert descriptors() - fds == set()  # threads of earlier tests may still close some
