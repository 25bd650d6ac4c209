"""iperf3, curl and http.server between a kernel's TCP and ours."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from softnic.cluster.netns_lab.host import NetnsHost
from tests import needs
from tests.daemon.nics import until
from tests.daemon.test_process_monitor import QuietHandler, Server
from tests.peers.forward import inwards, outwards
from tests.peers.sides import KERNEL, LIMIT_S, OURS, Sides

pytestmark = [needs.hosts, pytest.mark.slow]

SIZE = 4_000_000
MORE = 24_000_000
"""Than waits on the way when a client of iperf3's says that it has sent it all."""


class Uploads(QuietHandler):
    """http.server with uploads."""

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        with Path(self.translate_path(self.path)).open("wb") as file:
            while left:
                part = self.rfile.read(min(left, 1 << 16))
                assert part, "the request ended early"
                file.write(part)
                left -= len(part)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def serving_files(joined: Sides) -> Iterator[str]:
    """http.server on the NIC, with the current directory; its URL."""
    with Server(joined.nic, Uploads) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://{OURS}:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@needs.tools("curl")
class TestCurl:
    def test_downloads_and_uploads(self, joined: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = os.urandom(SIZE)
        (tmp_path / "weights").write_bytes(content)
        monkeypatch.chdir(tmp_path)
        with serving_files(joined) as url:
            joined.plain.run("curl", "-sSf", "-o", str(tmp_path / "down"), f"{url}/weights")
            joined.plain.run("curl", "-sSf", "-T", str(tmp_path / "weights"), f"{url}/up")
        assert (tmp_path / "down").read_bytes() == content
        assert (tmp_path / "up").read_bytes() == content

    def test_many_files_over_kept_connections(
        self, joined: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "from").mkdir()
        (tmp_path / "to").mkdir()
        for number in range(40):
            (tmp_path / "from" / str(number)).write_bytes(os.urandom(1000 * number))
        monkeypatch.chdir(tmp_path / "from")
        with serving_files(joined) as url:
            many = ("--parallel", "--parallel-max", "8", "-o", f"{tmp_path}/to/#1")
            joined.plain.run("curl", "-sSf", *many, f"{url}/[0-39]")
        for number in range(40):
            name = str(number)
            assert (tmp_path / "to" / name).read_bytes() == (tmp_path / "from" / name).read_bytes()


def test_http_client_of_ours_and_http_server_of_theirs(joined: Sides, tmp_path: Path) -> None:
    content = os.urandom(SIZE)
    (tmp_path / "weights").write_bytes(content)
    where = ("--bind", KERNEL, "--directory", str(tmp_path), "--protocol", "HTTP/1.1", "8000")
    with _output(tmp_path) as output:
        joined.plain.start(sys.executable, "-u", "-m", "http.server", *where, stdout=output, stderr=output)
        _wait_for(tmp_path / "output", "Serving HTTP")
        client = http.client.HTTPConnection(KERNEL, 8000)
        client.sock = joined.nic.connect((KERNEL, 8000))
        with contextlib.closing(client):
            for _ in range(2):
                client.request("GET", "/weights")
                assert client.getresponse().read() == content


@needs.tools("iperf3")
class TestIperf3:
    """iperf3's control connection and data streams, through a relay at the NIC's end."""

    @pytest.mark.parametrize("options", [(), ("-R",), ("--bidir",), ("-P", "4")], ids=" ".join)
    def test_a_client_of_the_kernels(self, joined: Sides, tmp_path: Path, options: tuple[str, ...]) -> None:
        with iperf3_server(joined.nic.host, tmp_path), inwards(joined.nic, 5201) as address:
            assert_all_arrived(joined.plain, address, options)

    @pytest.mark.parametrize("options", [(), ("-P", "4", "-R")], ids=" ".join)
    def test_a_server_of_the_kernels(self, joined: Sides, tmp_path: Path, options: tuple[str, ...]) -> None:
        with iperf3_server(joined.plain, tmp_path), outwards(joined.nic, (KERNEL, 5201)) as address:
            assert_all_arrived(joined.nic.host, address, options)


@contextlib.contextmanager
def iperf3_server(host: NetnsHost, directory: Path) -> Iterator[None]:
    with _output(directory) as output:
        process = host.start("iperf3", "-s", "-1", "--forceflush", stdout=output, stderr=output)
        _wait_for(directory / "output", "Server listening")
        yield
        assert process.wait(LIMIT_S) == 0, (directory / "output").read_text()


def assert_all_arrived(host: NetnsHost, address: tuple[str, int], options: tuple[str, ...]) -> None:
    to = ("-c", address[0], "-p", str(address[1]))
    said: dict[str, Any] = json.loads(host.run("iperf3", *to, "-J", "-n", str(MORE), *options, timeout_s=LIMIT_S))
    assert "error" not in said
    for way in ("", "_bidir_reverse")[: 1 + ("--bidir" in options)]:
        sent, received = (said["end"][f"sum_{what}{way}"]["bytes"] for what in ("sent", "received"))
        assert sent >= MORE or way
        assert received > 0
        assert received <= sent


def _output(directory: Path) -> IO[bytes]:
    return (directory / "output").open("wb")


def _wait_for(file: Path, text: str) -> None:
    until(lambda: text in file.read_text())
