"""Metrics over HTTP: scraped by a real Prometheus, checked by promtool, and refused where a request is wrong."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import select
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softnicd.metrics import EXPORTED as EXPORTED_METRICS
from softnicd.metrics import drop_labels
from softnicd.metrics_server import MAX_CONNECTIONS as MAX_METRICS_CONNECTIONS
from tests import needs
from tests.daemon.nics import WAIT_S, Nic, free_port, pair, read_all, running, until

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "monitoring"
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
NOT_EXPORTED = {
    *("tx_segments", "rx_segments", "segments_sent", "segments_received", "fast_path_sent", "fast_path_received"),
    *(
        "tx_other_frames",
        "rx_other_frames",
        "rx_steered_frames",
        "loopback_frames",
        "loopback_wire_bytes",
        "capture_frames",
    ),
    *("tx_offload_frames", "rx_offload_frames", "tx_offload_raw_frames", "rx_offload_raw_frames"),
    *("tx_auto_compressed_bytes", "tx_auto_raw_bytes", "tx_auto_trials", "tx_auto_to_raw", "tx_auto_to_compressed"),
    *("resets_sent", "resets_received", "challenge_acks", "out_of_order", "out_of_order_pruned", "path_mtus_lowered"),
    *("icmp_errors", "icmp_sent", "cookies_sent", "cookies_accepted", "link_unknown_source_floods"),
    "link_peers_moved",
    *("link_sent_frames", "link_sent_bytes", "link_received_frames", "link_received_bytes"),
    *("control_malformed", "control_other_users", "control_recreated", "control_overflow", "work_requests_malformed"),
    *("metrics_scrapes", "metrics_refused", "regions", "emulated_sent", "emulated_duplicated", "emulated_reordered"),
    "emulated_corrupted",
}
"""Counters that only `softnic stat` shows."""
GAUGES = {"communicators", "region_bytes", "collectives_microseconds"}
"""Counters that are gauges, or have another unit."""
TRAFFIC = """
import numpy as np
from softnic import MPI
gradient = np.random.default_rng(MPI.COMM_WORLD.rank).normal(0, 0.01, 100_000).astype(np.float32)
total = np.empty_like(gradient)
while True:
    MPI.COMM_WORLD.Allreduce_comp(gradient, total, codec="bounded:10")
"""


@pytest.fixture(scope="module")
def two() -> Iterator[list[Nic]]:
    needs.module("prometheus_client")
    with running(2, "--metrics", "127.0.0.1:0", "--rate", "1gbit") as nics:
        yield nics


def address(nic: Nic) -> tuple[str, int]:
    with nic.client() as client:
        host, port = client.info().metrics
    return host, port


def scraped(nic: Nic, **headers: str) -> tuple[str, str]:
    """Return the content type and the text of a scrape."""
    connection = http.client.HTTPConnection(*address(nic), timeout=WAIT_S)
    connection.request("GET", "/metrics", headers=headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    assert reply.status == 200
    return reply.headers["Content-Type"], text


def values(text: str) -> dict[str, float]:
    """Return the value of each sample, by its name with labels."""
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_samples_are_those_of_the_nic(two: list[Nic]) -> None:
    first, second = pair(two)
    with first, second:
        first.sendall(bytes(100_000))
        read_all(second, 100_000)
        kind, text = scraped(two[0], **OPENMETRICS)
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")
        found = values(text)
        assert found["softnic_transmit_bytes_total"] >= 100_000
        assert found['softnic_streams{state="ESTABLISHED"}'] == 1
        assert found['softnic_peer_connections{peer="10.77.0.2"}'] == 1
        assert found['softnic_peer_rtt_seconds{peer="10.77.0.2"}'] > 0
        assert found["softnic_link_rate_bytes_per_second"] == 1e9 / 8
        assert found["process_cpu_seconds_total"] > 0
        assert 'softnic_nic_info{congestion="auto",ip="10.77.0.1",mode="fill",name="node0"}' in found
        assert all(re.match(r"(softnic|process)_[a-z_]+(\{|$)", name) for name in found)


def test_every_counter_is_exported_or_known_not_to_be(two: list[Nic]) -> None:
    counters = set(two[0].counters())
    dropping = {name for name in counters if drop_labels(name) is not None}
    assert counters - EXPORTED_METRICS - dropping - GAUGES == NOT_EXPORTED
    _, text = scraped(two[0])
    assert text.count("softnic_dropped_total{") == len(dropping)


@needs.tools("promtool")
def test_promtool_finds_nothing_wrong(two: list[Nic]) -> None:
    kind, text = scraped(two[0])
    assert kind.startswith("text/plain; version=")
    for command, given in (
        (["check", "metrics"], text),
        (["check", "rules", str(EXAMPLES / "softnic.rules.yml")], None),
        (["check", "config", str(EXAMPLES / "prometheus.yml")], None),
        (["test", "rules", str(EXAMPLES / "softnic.rules.test.yml")], None),
    ):
        done = subprocess.run(["promtool", *command], input=given, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_every_alert_is_tested_firing_and_quiet() -> None:
    """By promtool, above."""
    alerts = re.findall(r"- alert: (\w+)", (EXAMPLES / "softnic.rules.yml").read_text())
    cases = re.split(r"- eval_time: ", (EXAMPLES / "softnic.rules.test.yml").read_text())[1:]
    tested = {(name, "exp_alerts:" in case) for case in cases for name in re.findall(r"alertname: (\w+)", case)}
    assert tested == {(name, fires) for name in alerts for fires in (True, False)}


def names_in(expressions: str) -> set[str]:
    return set(re.findall(r"\b(?:softnic|process)_\w+", expressions))


def test_rules_and_dashboard_name_metrics_that_exist(two: list[Nic]) -> None:
    first, second = pair(two)
    with first, second:
        there = {name.partition("{")[0] for name in values(scraped(two[0], **OPENMETRICS)[1])}
    rules = re.findall(r"expr: (?:>-\n)?((?:.|\n +(?!for))*)", (EXAMPLES / "softnic.rules.yml").read_text())
    assert names_in(" ".join(rules)) <= there
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert names_in(" ".join(expressions)) <= there
    assert (
        len({panel["id"] for panel in dashboard["panels"]})
        == len(dashboard["panels"])
        == len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]})
    )


class Prometheus:
    """A Prometheus server that scrapes NICs four times a second."""

    def __init__(self, directory: Path, nics: list[Nic]) -> None:
        targets = ["{}:{}".format(*address(nic)) for nic in nics]
        rules = EXAMPLES / "softnic.rules.yml"
        scrape = {"job_name": "softnic", "scrape_interval": "250ms", "static_configs": [{"targets": targets}]}
        (directory / "prometheus.yml").write_text(
            json.dumps({"scrape_configs": [{**scrape, "scrape_timeout": "250ms"}], "rule_files": [str(rules)]})
        )
        self.url = f"http://127.0.0.1:{free_tcp_port()}"
        self.log = directory / "prometheus.log"
        flags = {
            "config.file": directory / "prometheus.yml",
            "storage.tsdb.path": directory / "data",
            "web.listen-address": self.url.removeprefix("http://"),
        }
        with self.log.open("wb") as log:
            command = ["prometheus", *(f"--{name}={value}" for name, value in flags.items())]
            self.process = subprocess.Popen(command, stderr=log)

    def query(self, text: str) -> list[Any]:
        """Return the result of a query; nothing while the server starts."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": text})) as reply:
                found: list[Any] = json.load(reply)["data"]["result"]
                return found
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            select.select([], [], [], 0.1)
            return []

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)


def free_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
@needs.tools("prometheus")
def test_prometheus_scrapes_two_nics(two: list[Nic], tmp_path: Path) -> None:
    server = Prometheus(tmp_path, two)
    try:
        until(lambda: [each["value"][1] for each in server.query('up{job="softnic"}')] == ["1", "1"])
        first, second = pair(two)
        with first, second:
            first.sendall(bytes(1_000_000))
            read_all(second, 1_000_000)
            until(lambda: len(server.query("softnic_receive_bytes_total >= 1e6")) == 1)
            until(lambda: len(server.query('softnic_peer_rtt_seconds{peer=~"10.77.0.[12]"}')) == 2)
        names = {each["metric"]["name"] for each in server.query("softnic_nic_info")}
        assert names == {"node0", "node1"}
    finally:
        server.stop()


@pytest.mark.slow
@needs.tools("prometheus")
def test_every_query_of_the_dashboard_has_data(tmp_path: Path) -> None:
    """With two NICs whose ranks sum floats over a lossy link, and what Grafana puts in place of its variables."""
    needs.module("prometheus_client")
    panels = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    expressions = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    with contextlib.ExitStack() as stack:
        nics = stack.enter_context(running(2, "--metrics", "127.0.0.1:0", "--rate", "1gbit", "--loss", "0.5%"))
        ranks = [stack.enter_context(traffic(nic, rank)) for rank, nic in enumerate(nics)]
        server = Prometheus(tmp_path, nics)
        stack.callback(server.stop)
        for title, expression in expressions:
            query = expression.replace("$instance", ".*").replace("$__rate_interval", "4s")
            assert "$" not in query, title
            deadline = time.monotonic() + WAIT_S
            while not any(math.isfinite(float(each["value"][1])) for each in server.query(query)):
                assert time.monotonic() < deadline, f"{title}: no data for {query}"
                assert [rank.poll() for rank in ranks] == [None, None]
                select.select([], [], [], 0.1)


@contextlib.contextmanager
def traffic(nic: Nic, rank: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a rank of two that calls collectives until it is killed."""
    ours = {"SOFTNIC_NIC": nic.path, "SOFTNIC_RANK": str(rank), "SOFTNIC_WORLD_SIZE": "2"}
    with subprocess.Popen([sys.executable, "-c", TRAFFIC], env={**os.environ, **ours}) as process:
        try:
            yield process
        finally:
            process.kill()


def reply_to(nic: Nic, request: bytes) -> bytes:
    """Return the status line that answers a request; the server closes the connection."""
    with socket.create_connection(address(nic), timeout=WAIT_S) as connection:
        connection.sendall(request)
        return read_all(connection).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"\0\xff\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nA: " + bytes(9000), b"431 Request Header Fields Too Large"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nconnection: close\r\n\r\n", b"200 OK"),
    ],
)
def test_requests_and_their_answers(two: list[Nic], request_text: bytes, status: bytes) -> None:
    before = two[0].counters()["metrics_refused"]
    assert reply_to(two[0], request_text) == b"HTTP/1.1 " + status
    assert two[0].counters()["metrics_refused"] - before == (status != b"200 OK")


def test_silent_connections_and_those_that_scraped_make_room(two: list[Nic]) -> None:
    held = []
    for scrapes in (False, True):
        for _ in range(MAX_METRICS_CONNECTIONS + 2):
            held.append(socket.create_connection(address(two[0]), timeout=WAIT_S))
            if scrapes:
                held[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert held[-1].recv(12) == b"HTTP/1.1 200"
        assert reply_to(two[0], b"GET /metrics HTTP/1.0\r\n\r\n") == b"HTTP/1.1 200 OK"
    for connection in held:
        connection.close()


def test_a_connection_serves_one_scrape_after_the_other(two: list[Nic]) -> None:
    connection = http.client.HTTPConnection(*address(two[0]), timeout=WAIT_S)
    for _ in range(3):
        connection.request("GET", "/metrics")
        first = connection.sock
        assert connection.getresponse().read().startswith(b"# HELP softnic_")
        assert connection.sock is first
    connection.close()


def test_an_address_in_use_is_one_line(two: list[Nic], tmp_path: Path) -> None:
    host, port = address(two[0])
    code, text = started(tmp_path, "--metrics", f"{host}:{port}")
    assert (code, text) == (
        1,
        f"softnicd: cannot serve metrics at {host}:{port}: Address already in use (another process uses this port)\n",
    )


def test_without_prometheus_client_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError(name='prometheus_client')")
    code, text = started(tmp_path, "--metrics", "127.0.0.1:0")
    assert code == 1
    assert text.startswith("softnicd: the module prometheus_client is not installed: ")
    assert text.endswith("-m pip install 'prometheus-client>=0.21'\n")


def started(directory: Path, *flags: str) -> tuple[int, str]:
    """Return the exit code and the errors of a daemon that does not start, run in a directory."""
    nic = Nic(directory, 0, [free_port()], *flags)
    done = subprocess.run(nic.command, capture_output=True, text=True, cwd=directory, timeout=WAIT_S, check=False)
    assert sys.executable == nic.command[0]
    return done.returncode, done.stderr
