"""Nodes behind NATs of the kernel: what they find out about them, and that the relay connects them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from softnic.cluster.netns_lab.host import NetnsHost, join
from softnic.link.reach.token import Grant, Token
from softnic.link.reach.tunnel import Tunnel
from softnic.underlay import Address
from tests import needs
from tests.meeting.wires import Wire, bound, until

pytestmark = [needs.hosts, needs.tools("nft")]

ROOT = Path(__file__).resolve().parents[2]
PORT = 9470
OUT = "ip saddr 192.0.0.0/16 oifname eth1"
NO_UDP = "no UDP"
NATS = {
    "full cone": (f"{OUT} masquerade", "iifname eth1 udp dport 1024-65535 dnat to {inside}"),
    "port-restricted": (f"{OUT} masquerade", ""),
    "symmetric": (f"{OUT} masquerade fully-random", ""),
    NO_UDP: (f"{OUT} masquerade", ""),
}


class Site:
    """A host behind a NAT that is connected to the server's host."""

    def __init__(self, stack: contextlib.ExitStack, server: NetnsHost, net: int, device: str, kind: str) -> None:
        self.host, self.nat = stack.enter_context(NetnsHost()), stack.enter_context(NetnsHost())
        join(self.host, self.nat, net=net)
        inside = self.host.address
        join(self.nat, server, net=net + 1, devices=("eth1", device))
        self.server_address = self.nat.peer
        self.host.run("ip", "route", "add", "default", "via", self.host.peer)
        self.nat.run("ip", "route", "add", "default", "via", self.nat.peer)
        self.nat.set(ip_forward=1)
        out, back = NATS[kind]
        self.nat.run("nft", "add table ip nat")
        for name, hook, rule in (
            ("post", "postrouting priority srcnat", out),
            ("pre", "prerouting priority dstnat", back),
        ):
            self.nat.run("nft", f"add chain ip nat {name} {{ type nat hook {hook}; }}")
            if rule:
                self.nat.run("nft", f"add rule ip nat {name} {rule.format(inside=inside)}")
        if kind == NO_UDP:
            self.nat.run("nft", "add chain ip nat forward { type filter hook forward priority 0; }")
            self.nat.run("nft", "add rule ip nat forward ip protocol udp drop")
        self.address = inside


@contextlib.contextmanager
def sites(*kinds: str) -> Iterator[tuple[list[Site], Address, bytes]]:
    """Yield hosts behind NATs, the address of a server that they reach, and its secret."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(NetnsHost())
        found = [Site(stack, server, 2 * index, f"eth{index}", kind) for index, kind in enumerate(kinds)]
        server.set(ip_forward=1)
        first, other = found[0].server_address, found[1].server_address
        secret = os.urandom(32)
        file = server.directory / "secret"
        file.write_text(secret.hex())
        file.chmod(0o600)
        options = ["--listen", f"{first}:{PORT}", "--other-address", other, "--tcp", f"{first}:{PORT}"]
        options += ["--secret", str(file)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = server.start(
            sys.executable, "-m", "softnic", "meet", *options, env=environment, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "listens" in line
        yield found, (first, PORT), secret


@contextlib.asynccontextmanager
async def wires_of(found: list[Site], server: Address, secret: bytes) -> AsyncIterator[list[Wire]]:
    grant = Grant(os.urandom(16), len(found), int(time.time()) + 600)
    token = Token.make(secret, [server], grant, os.urandom(32))
    wires = []
    try:
        for site in found:
            with site.host.entered():
                wires.append(Wire(token, site.address))
        yield wires
    finally:
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("kind", [each for each in NATS if each != NO_UDP])
async def test_nodes_find_the_kind_of_nat_and_the_relay_connects_them(kind: str) -> None:
    with sites(kind, "symmetric") as (found, server, secret):
        async with wires_of(found, server, secret) as wires:
            a, b = wires
            to_b, to_a = await bound(a, b)
            a.socket.sendto(b"\x11 to b", to_b)
            b.socket.sendto(b"\x12 to a", to_a)
            await until(lambda: bool(a.frames and b.frames))
            assert (a.frames, b.frames) == ([(to_b, b"\x12 to a")], [(to_a, b"\x11 to b")])
            await until(lambda: "unknown" not in (a.client.nat, b.client.nat))
            assert (a.client.nat, b.client.nat) == (kind, "symmetric")


async def test_a_node_that_no_udp_reaches_is_connected_by_tcp() -> None:
    with sites(NO_UDP, "symmetric") as (found, server, secret):
        async with wires_of(found, server, secret) as wires:
            a, b = wires
            await until(lambda: a.client.nat == NO_UDP)
            with found[0].host.entered():  # the sockets of the tunnel are this host's
                index, tunnel = await Tunnel.open_any(a.token, a.key, [[server]], a.address)
                a.client.add_tunnel(index, tunnel.local(PORT), tunnel.local)
                a.poll()
                to_b, to_a = await bound(a, b)
            a.socket.sendto(b"\x11 to b", to_b)
            b.socket.sendto(b"\x12 to a", to_a)
            await until(lambda: bool(a.frames and b.frames))
            assert (a.frames, b.frames) == ([(to_b, b"\x12 to a")], [(to_a, b"\x11 to b")])
            assert (to_b[0], to_a[0]) == ("127.0.0.1", server[0])
            tunnel.close()
