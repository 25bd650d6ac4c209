"""This host, with low limits; NICs that have dropped datagrams; codecs and links; the datagrams of listeners."""

from __future__ import annotations

import errno
import json
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from softnic import codecs, underlay
from softnic.doctor import host, probes, running, speed
from softnic.doctor.listener import ProbeListener
from softnic.ipc import control
from softnic.ipc.snapshot import MeetingInfo, PeerWay
from softnic.model.parameters import CodecFigures, Machine
from tests.commands.conftest import environment

INFO = control.NicInfo(control.VERSION, "node0", "10.77.0.1", "", 1500, "fill", {}, [], 1)
QUICK = CodecFigures(betas=(8.0,), alpha=0.95, encode_bytes_s=2e9, decode_bytes_s=2e9)
HERE = Machine(
    description="a machine",
    P_Worker=1e11,
    add_bytes_s=1e10,
    memory_bytes_s=1e10,
    update_bytes_s=1e10,
    alpha=0.95,
    latency_s=0,
    codecs={"rht:4": QUICK},
)


def test_a_process_with_low_limits() -> None:
    """`softnic doctor` as a user starts it where the limits are low."""
    limits = ["prlimit", "--nofile=256:256", "--memlock=65536:65536"]
    done = subprocess.run(
        [*limits, sys.executable, "-P", "-m", "softnic", "doctor", "--no-speed", "--json", "-"],
        env=environment() | {"SOFTNIC_KERNELS": "scalar"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    found = {each["check"]: each for each in said["findings"] if each["level"] != "ok"}
    assert not said["ok"]
    assert found["descriptors"]["text"] == "at most 256 file descriptors"
    assert "--nofile=65536:65536" in found["descriptors"]["fix"]
    assert (found["memlock"]["level"], found["memlock"]["text"]) == ("note", "at most 65.5 KB of locked memory")
    assert found["simd"]["level"] == ("problem" if len(codecs.simd_available()) > 1 else "note")
    assert all(each["why"] and each["fix"] for each in found.values())


def test_findings_of_this_host_have_reasons() -> None:
    found = host.check()
    assert {"system", "simd", "gso", "gro", "queues", "buffers", "descriptors", "clock"} <= {
        each.check for each in found
    }
    assert all(each.level == "ok" or (each.why and each.fix) for each in found)


@pytest.mark.parametrize("counter", ["link_dropped_wrong_key", "link_dropped_plaintext", "link_dropped_unknown_source"])
def test_a_nic_that_drops_its_peers(counter: str) -> None:
    good = control.NicStats(INFO, {counter: 0}, [])
    assert [each.level for each in running.of(good)] == ["ok"]
    [found] = running.of(msgspec.structs.replace(good, counters={counter: 7}))
    assert found.level == "problem"
    assert counter in found.text


def test_the_ways_of_a_nic_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is wrong with one that this host has no route for."""
    ways = [PeerWay("10.77.0.2", "[2001:db8::2]:4789", "IPv6"), PeerWay("10.77.0.3", "127.0.0.1:4789", "IPv4")]
    known = {"127.0.0.1": "127.0.0.1", underlay.UNUSED[underlay.IPV4]: "192.0.2.9"}
    monkeypatch.setattr(underlay, "source", known.get)
    [_, lost, good] = running.of(control.NicStats(INFO, {}, [], peers=2, ways=ways))
    assert (lost.check, lost.level) == ("way", "problem")
    assert lost.text == "node0 has no route to 10.77.0.2 by [2001:db8::2]:4789 (IPv6)"
    assert lost.why == "frames to that node are lost: this host has IPv4"
    assert (good.level, good.text) == ("ok", "node0 reaches 10.77.0.3 by 127.0.0.1:4789 (IPv4)")


@pytest.mark.parametrize(("mtu", "sealed", "fits"), [(1430, False, True), (1431, False, False), (1406, True, True),
                                                     (1407, True, False)])  # fmt: skip
def test_packets_that_the_kernel_would_cut_are_a_note(
    monkeypatch: pytest.MonkeyPatch, mtu: int, sealed: bool, fits: bool
) -> None:
    monkeypatch.setattr(underlay, "source", lambda _: "2001:db8::1")
    monkeypatch.setattr(running, "path_mtu", lambda _: 1500)
    info = msgspec.structs.replace(INFO, mtu=mtu)
    ways = [PeerWay("10.77.0.2", "[2001:db8::2]:4789", "IPv6")]
    found = running.of(control.NicStats(info, {"link_sessions": 0} if sealed else {}, [], peers=1, ways=ways))
    assert [each.level for each in found] == ["ok", "ok"] + ["note"] * (not fits)
    assert fits or found[2].fix.startswith(f"softnicd --mtu {mtu - 1} on all hosts")


def test_a_nic_of_another_version_and_one_that_does_not_answer() -> None:
    old = control.NicStats(msgspec.structs.replace(INFO, version=control.VERSION - 1), {}, [])
    assert [each.fix for each in running.of(old)] == ["restart the NIC: systemctl restart softnicd@NAME"]
    [found] = running.check(["/nowhere/nic.sock"])
    assert (found.level, "/nowhere/nic.sock" in found.text) == ("problem", True)


def test_a_codec_pays_on_a_slow_link_and_not_on_a_fast_one() -> None:
    [slow] = [each.text for each in speed.check(HERE, 1e9) if each.check == "advice"]
    [fast] = [each.text for each in speed.check(HERE, 1e12) if each.check == "advice"]
    for text in (slow, fast):
        assert text.startswith("gradients by rht:4, weights exactly; over ")
    assert "over 1 Gbit/s compression pays: an all-reduce of 100 MB between 2 hosts takes " in slow
    assert "compression does not pay with these cores" in fast
    slower = replace(QUICK, encode_bytes_s=1e7)
    [weak] = [each.text for each in speed.check(replace(HERE, codecs={"rht:4": slower}), 1e9) if each.check == "advice"]
    assert "does not pay" in weak


def test_the_load_beside_which_codecs_were_measured_is_said() -> None:
    quiet, busy = (next(each for each in speed.check(HERE, 1e9, load) if each.check == "codec") for load in (0.0, 1e4))
    assert re.search(r"^rht:4: encodes 2\.0, .* measured for 2 s beside a load of 0\.0 on \d+ cores$", quiet.text)
    assert (quiet.level, busy.level) == ("ok", "note")
    assert "look slower" in busy.why
    assert "when the host is idle" in busy.fix


def test_answers_are_never_longer_than_questions() -> None:
    """A listener cannot be used to flood others, and ignores what is none of its datagrams."""
    over = threading.Event()
    listener = ProbeListener(("127.0.0.1", 0), key=bytes(32))
    thread = threading.Thread(target=listener.serve, args=(over.is_set,))
    thread.start()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect(listener.address)
            question = probes.Question(token="t", facts=True)
            for datagram in (b"", b"noise", probes.MAGIC + b"{", probes.MAGIC * 9, probes.encode(question)):
                asking.send(datagram)  # none has an answer: the last one is shorter than that would be
            asking.send(probes.encode(question, probes.QUESTION_BYTES))
            asking.settimeout(30)
            datagram = asking.recv(1 << 16)
    finally:
        over.set()
        thread.join()
        listener.close()
    answer = probes.decode(datagram, probes.Answer)
    assert answer.size == probes.QUESTION_BYTES
    assert answer.received == 2
    assert len(datagram) <= probes.QUESTION_BYTES


def test_a_system_that_does_not_steer_datagrams_has_one_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int, **_options: bool) -> None:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    monkeypatch.setattr(host, "steer", refuse)
    [found] = [each for each in host.check() if each.check == "queues"]
    assert found.text == "datagrams are not steered to queues: Protocol not available"
    assert found.why == "a NIC has one queue here, and so one thread, whatever its configuration says"


def job(**given: Any) -> control.NicStats:
    """Return the statistics of a NIC that meets two other nodes, of which it reaches one by a relay."""
    ways = [PeerWay("10.77.0.3", "127.0.0.1:9501", "IPv4", relayed=True, age=1.0)]
    meeting = msgspec.structs.replace(MeetingInfo(3, 3, 0, relayed=1, registered=True), **given)
    return control.NicStats(INFO, {}, [], peers=2, ways=ways, meeting=meeting)


def test_a_nic_behind_a_nat_and_the_relay_that_it_uses_are_named() -> None:
    nic, nat, way = running.of(job(nat="symmetric"))
    assert [nic.level, nat.level, way.level] == ["ok", "ok", "note"]
    assert nat.text == "node0 is behind a symmetric NAT"
    assert way.text == "node0 reaches 10.77.0.3 by 127.0.0.1:9501 (IPv4), relayed"
    assert "forwarded UDP port" in way.fix
    texts = [each.text for each in running.of(job(nat="no UDP", tcp=True))]
    assert texts[1] == "node0 is behind a NAT or firewall that lets no UDP through"
    assert "no UDP passes from node0" in texts[2]


def test_a_job_that_is_not_met_is_a_problem() -> None:
    [found] = [each for each in running.of(job(refusal="the job has all its nodes")) if each.level == "problem"]
    assert "the server refuses node0: the job has all its nodes" in found.text
    [found] = [each for each in running.of(job(waiting=["10.77.0.2"])) if each.level == "problem"]
    assert found.text == "node0 has no way to 10.77.0.2"
    assert any("no meeting server answers" in each.text for each in running.of(job(registered=False)))


def test_the_way_to_a_node_is_found_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "read_stats", lambda _: job(nat="open"))
    found = running.to_peer("10.77.0.3", ["a.sock"])
    assert found is not None
    assert [each.level for each in found] == ["note"]
    assert running.to_peer("10.77.0.4", ["a.sock"]) is None
