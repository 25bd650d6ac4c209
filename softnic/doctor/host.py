"""Checks of this host: CPU, kernel, limits, socket buffers, clock."""

from __future__ import annotations

import os
import platform
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

from softnic import codecs, underlay
from softnic.doctor.findings import Finding, note, ok, problem
from softnic.link.sockets import SOCKET_BUFFER_BYTES, open_socket, steer
from softnic.units import text_bytes, text_time

MIN_FDS = 4096
"""Hard limit of file descriptors below which a NIC of a small cluster runs out of them."""
SLOW_CLOCK_S = 1e-6
"""Duration of a read of the clock that is a system call or a device, not a register."""
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0")
_UNSHARE = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x10000000 | 0x40000000))"
"""CLONE_NEWUSER and CLONE_NEWNET."""


def check() -> list[Finding]:
    """Return the findings of this host."""
    return [
        _system(),
        _simd(),
        _cores(),
        _offload("GSO", _UDP_SEGMENT, 1400, "4.18"),
        _offload("GRO", _UDP_GRO, 1, "5.0"),
        _steering(),
        _addresses(),
        _buffers(),
        _descriptors(),
        _memlock(),
        _namespaces(),
        _clock(),
    ]


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    if sys.platform == "linux" and sys.byteorder == "little":
        return ok("system", text)
    why = "softnic uses Linux's sockets, and its formats are little-endian"
    return problem("system", text, why, "run it on Linux on x86-64 or AArch64")


def _simd() -> Finding:
    used, available = codecs.simd(), codecs.simd_available()
    if used != available[-1]:
        why = f"codecs run more slowly than with {available[-1]}, which this CPU has"
        return problem("simd", f"SOFTNIC_KERNELS selects the kernels {used}", why, "unset SOFTNIC_KERNELS")
    if used == "scalar":
        why = "the portable kernels of codecs are several times slower"
        fix = "in a virtual machine, show it the host's CPU: qemu -cpu host"
        return note("simd", "this CPU shows no AVX2, AVX-512 or NEON", why, fix)
    return ok("simd", f"{used} kernels (available: {', '.join(available)})")


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0))
    if usable == 1:
        why = "a NIC and the program that uses it compute at the same time"
        return note("cores", "1 core for this process", why, "taskset --cpu-list 0-1 COMMAND, or a larger CPU limit")
    return ok("cores", f"{usable} cores for this process")


def _offload(name: str, option: int, value: int, kernel: str) -> Finding:
    check_name = name.lower()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(_SOL_UDP, option, value)
        except OSError as error:
            why = "without it every frame is a system call of its own, at a fraction of the rate"
            fix = f"a kernel from {kernel} on: apt-get install linux-image-amd64"
            return problem(check_name, f"the kernel has no UDP {name} ({error.strerror})", why, fix)
    return ok(check_name, f"the kernel has UDP {name}")


def _steering() -> Finding:
    with open_socket(("127.0.0.1", 0), shared=True) as first:
        try:
            with open_socket(first.getsockname(), shared=True):
                steer(first.fileno(), 2, sealed=False)
        except OSError as error:
            why = "a NIC has one queue here, and so one thread, whatever its configuration says"
            fix = "on hosts with cores to spare, a kernel or sandbox with SO_REUSEPORT and classic BPF"
            return note("queues", f"datagrams are not steered to queues: {error.strerror}", why, fix)
    return ok("queues", "datagrams are steered to the queues of a NIC")


def _addresses() -> Finding:
    routes = {underlay.names([family]): underlay.source(unused) for family, unused in underlay.UNUSED.items()}
    text = ", ".join(f"{name} from {own}" if own else f"no {name}" for name, own in routes.items())
    return ok("addresses", f"default routes to other hosts: {text}")


def _buffers() -> Finding:
    with open_socket(("127.0.0.1", 0)) as probe:
        granted = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles the value
    if granted >= SOCKET_BUFFER_BYTES:
        return ok("buffers", f"UDP sockets get a receive buffer of {text_bytes(granted)}")
    text = f"UDP sockets get a receive buffer of {text_bytes(granted)}, not {text_bytes(SOCKET_BUFFER_BYTES)}"
    why = "bursts of fast peers that exceed it are dropped (link_kernel_dropped_datagrams) and sent again"
    return note("buffers", text, why, f"sysctl -w net.core.rmem_max={SOCKET_BUFFER_BYTES}")


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard == unlimited or hard >= MIN_FDS:
        return ok("descriptors", f"file descriptors: {soft}, of which a NIC raises to {hard}")
    text = f"at most {hard} file descriptors"
    why = "every stream of a NIC takes one, and the hard limit is as far as it can raise its own"
    fix = "LimitNOFILE=65536 in the unit of softnicd; in a shell, as root: prlimit --pid $$ --nofile=65536:65536"
    return problem("descriptors", text, why, fix)


def _memlock() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or limit >= 1 << 30:
        return ok("memlock", "locked memory: not limited")
    why = "softnic locks no memory and works with this; NCCL and UCX over RDMA beside it do not"
    return note("memlock", f"at most {text_bytes(limit)} of locked memory", why, "ulimit -l unlimited, as root")


def _namespaces() -> Finding:
    child = subprocess.run([sys.executable, "-I", "-c", _UNSHARE], capture_output=True, timeout=30, check=False)
    why = "`softnic run --kernel` needs it; everything else does not"
    if child.returncode:
        fix = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or user.max_user_namespaces=10000"
        return note("namespaces", "this user cannot create user and network namespaces", why, fix)
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return note("namespaces", "/dev/net/tun cannot be opened", why, "modprobe tun && chmod 666 /dev/net/tun")
    return ok("namespaces", "user and network namespaces, and TAP devices")


def _clock() -> Finding:
    began = time.perf_counter()
    for _ in range(10_000):
        time.monotonic()
    each = (time.perf_counter() - began) / 10_000
    source = ""
    if (current := _CLOCK / "current_clocksource").exists():
        source = current.read_text().strip()
    text = f"a read of the clock{f' ({source})' if source else ''} takes {text_time(each)}"
    if each < SLOW_CLOCK_S:
        return ok("clock", text)
    why = "a NIC reads the clock several times a turn, for pacing and round trips"
    return problem("clock", text, why, f"echo tsc > {_CLOCK}/current_clocksource, or the boot parameter tsc=reliable")
