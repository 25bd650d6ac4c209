"""Hosts that boot: a systemd of its own in each, on the network of a NetnsHost.

A booted host sees this machine's files; what it writes is in memory and ends with it. Its root is root here, so it is
for trusted commands only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softnic.cluster.netns_lab.host import NetnsHost

BOOT_S = 120.0
RUN_S = 300.0

BOOT = """
mount -t tmpfs softnic-disk {disk} && mkdir {disk}/changed {disk}/work {disk}/root &&
mount -t overlay softnic-root -o lowerdir=/,upperdir={disk}/changed,workdir={disk}/work {disk}/root &&
exec systemd-nspawn --quiet --boot --register=no --keep-unit --link-journal=no --console=pipe --directory={disk}/root \
    --network-namespace-path={network} systemd.unit=basic.target
"""


class BootedHost:
    """A host on which systemd runs; `run` runs a shell's commands there as root."""

    def __init__(self, host: NetnsHost, process: subprocess.Popen[bytes]) -> None:
        self.host = host
        self._process = process
        self._first = ""
        """The process that is number 1 on the host."""
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + BOOT_S
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while self._process.poll() is None and time.monotonic() < until:
            self._first = children.read_text().strip()
            if self._first.isdigit() and self._is_up():
                return
            time.sleep(0.1)
        raise AssertionError(f"the host does not boot: exit code {self._process.poll()}")

    def _is_up(self) -> bool:
        with self.start("systemctl is-active --quiet basic.target", stdout=subprocess.DEVNULL) as process:
            return process.wait() == 0

    def start(
        self, script: str, *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        """Start the commands of a shell script in root's home directory; the first that fails ends it."""
        inside = ["nsenter", "--target", self._first, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        clean = ["env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        shell = ["bash", "-ec", f"cd /root\n{script}"]
        return subprocess.Popen([*inside, *clean, *shell], stdin=stdin, stdout=stdout, stderr=subprocess.STDOUT)

    def run(self, script: str) -> str:
        """Run a shell script and return what it prints; it must end with 0."""
        return finish(self.start(script))

    def copy(self, directory: Path) -> None:
        """Copy the contents of a directory of this machine to root's home directory."""
        with subprocess.Popen(["tar", "-c", "-C", directory, "."], stdout=subprocess.PIPE) as archive:
            assert archive.stdout is not None
            finish(self.start("tar -x --no-same-owner", stdin=archive.stdout.fileno()))
        assert archive.returncode == 0


def finish(process: subprocess.Popen[bytes]) -> str:
    """Return what a command prints; it must end with 0."""
    said, _ = process.communicate(timeout=RUN_S)
    text = said.decode(errors="replace")
    assert process.returncode == 0, f"exit code {process.returncode}\n{text}"
    return text


@contextmanager
def booted(host: NetnsHost) -> Iterator[BootedHost]:
    """Boot a host. Its mounts are in a namespace of their own and end with it."""
    disk = host.directory / "disk"
    disk.mkdir()
    script = BOOT.format(disk=disk, network=host.path)
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    with (host.directory / "console").open("wb") as console:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
        )
    try:
        yield BootedHost(host, process)
    finally:
        first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for each in (process.pid, *map(int, first)):  # the host's first process, and all with it, would go on
            os.kill(each, signal.SIGKILL)
        process.wait()


def missing() -> str:
    """Return why hosts cannot boot on this machine; empty if they can."""
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "this kernel has no overlay file system"
    return ""
