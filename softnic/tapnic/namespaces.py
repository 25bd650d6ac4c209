"""Network namespaces and TAP devices in them, also for unprivileged users.

A network namespace is a network stack of its own in the kernel. An unprivileged user creates one inside a user
namespace, which gives the right to configure it (user_namespaces(7)) and keeps the user's identity. Other processes of
the user may enter it later, by the PID of a process inside.

This file is also a program, because a process that changes its namespaces must have one thread only:

- `hold`: makes a namespace with its loopback up, writes its PID to stdout, and stays until stdin ends;
- `enter PID [--resolver FILE] COMMAND...`: becomes the command, in the namespace of that process, with that file as its
  /etc/resolv.conf;
- `tap PID SOCKET NAME ...`: opens a device there and sends its file descriptor over the Unix socket with this number.

It imports a small part of the standard library only, so that the program starts fast.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
"""sys/mount.h."""
_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x1, 0x2
"""linux/if_tun.h. Without TUN_F_TSO6 the kernel segments IPv6 itself."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8913, 0x8914, 0x8916, 0x891C
_SIOCSIFMTU, _SIOCSIFHWADDR = 0x8922, 0x8924
_RTM_NEWLINK, _NLM_F_REQUEST, _NLM_F_ACK, _IFLA_TXQLEN = 16, 1, 4, 13
_IFF_UP, _ARPHRD_ETHER = 0x1, 1
_VNET_HEADER_BYTES = 10
QUEUE_PACKETS = 4096
"""Length of a device's transmit queue. Packets beyond it are lost, and retransmitted by the kernel."""
DEVICE = "/dev/net/tun"
RESOLVER = "/etc/resolv.conf"

_libc = ctypes.CDLL(None, use_errno=True)


def open_tap(name: str, mac: bytes, mtu: int, ip: str, prefix: int) -> int:
    """Return the file descriptor of a new TAP device in this namespace, up, with this address and virtio-net headers.

    The device is removed when the file descriptor is closed. Raises OSError, with advice in its text.
    """
    try:
        descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, f"cannot make the TAP device {name}: {_closed(error)}") from None
    try:
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(descriptor, _TUNSETVNETHDRSZ, struct.pack("i", _VNET_HEADER_BYTES))
        fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
        _configure(name, mac, mtu, ip, prefix)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, f"cannot make the TAP device {name}: {_advice(error)}") from None
    return descriptor


def _closed(error: OSError) -> str:
    """Return why `DEVICE` cannot be opened, and what to do."""
    said = os.strerror(error.errno or errno.EIO)
    if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return f"{said} ({DEVICE}: the kernel needs the module tun)"
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{DEVICE} is closed to this user: as root, chmod 666 {DEVICE} opens it"
    return said


def _advice(error: OSError) -> str:
    said = os.strerror(error.errno or errno.EIO)
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{said}: it takes root, or a network namespace of one's own (unshare -Urn, and --namespace)"
    taken = error.errno in (errno.EBUSY, errno.EINVAL)  # in use by another TAP device, or one of another kind
    return f"{said} (is there a device of this name already?)" if taken else said


def _configure(name: str, mac: bytes, mtu: int, ip: str, prefix: int) -> None:
    """Configure the device as `ip link set` and `ip addr add` do."""
    mask = socket.inet_ntoa(((1 << 32) - (1 << 32 - prefix)).to_bytes(4, "big"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:

        def request(number: int, form: str, *values: object) -> None:
            fcntl.ioctl(way, number, struct.pack("16s" + form, name.encode(), *values).ljust(40, b"\0"))

        request(_SIOCSIFHWADDR, "H6s", _ARPHRD_ETHER, mac)
        request(_SIOCSIFMTU, "i", mtu)
        for number, address in ((_SIOCSIFADDR, ip), (_SIOCSIFNETMASK, mask)):
            request(number, "HH4s", socket.AF_INET, 0, socket.inet_aton(address))
    _lengthen_queue(name)
    _bring_up(name)


def _lengthen_queue(name: str) -> None:
    """Lengthen the transmit queue by netlink (rtnetlink(7)): the ioctl requires root in the initial namespace."""
    link = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(name), 0, 0)
    message = link + struct.pack("=HHI", 8, _IFLA_TXQLEN, QUEUE_PACKETS)
    header = struct.pack("=IHHII", 16 + len(message), _RTM_NEWLINK, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as way:
        way.send(header + message)
        failed = -struct.unpack_from("=16xi", way.recv(4096))[0]
    if failed:
        raise OSError(failed, os.strerror(failed))


def _bring_up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        given = fcntl.ioctl(way, _SIOCGIFFLAGS, struct.pack("16s24x", name.encode()))
        flags = struct.unpack_from("16xH", given)[0] | _IFF_UP
        fcntl.ioctl(way, _SIOCSIFFLAGS, struct.pack("16sH22x", name.encode(), flags))


def program(*arguments: str) -> list[str]:
    """Return the command line that runs this file."""
    return [sys.executable, "-IS", __file__, *arguments]


def open_tap_in(pid: int, name: str, mac: bytes, mtu: int, ip: str, prefix: int) -> int:
    """Open a device in the network namespace of a process. Raises OSError."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        what = (str(pid), str(theirs.fileno()), name, mac.hex(), str(mtu), ip, str(prefix))
        done = subprocess.run(
            program("tap", *what), pass_fds=[theirs.fileno()], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(errno.EPERM, done.stderr.strip() or f"no TAP device {name} in the namespace of {pid}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return descriptors[0]


# --- the program


def _call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _make() -> None:
    """Enter a new network namespace and, without privileges, a new user namespace that maps this user to itself."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        _call("unshare", _CLONE_NEWNET)
    else:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
        for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path(f"/proc/self/{file}").write_text(text)
    _bring_up("lo")


def _enter(pid: int) -> None:
    """Enter the namespaces of a process. Raises OSError."""
    if not Path(f"/proc/{pid}").exists():
        raise OSError(errno.ESRCH, f"there is no process {pid}, whose network namespace is to be used")
    for kind, flag in (("user", _CLONE_NEWUSER), ("net", _CLONE_NEWNET)):
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        if theirs.samefile(f"/proc/self/ns/{kind}"):
            continue
        descriptor = os.open(theirs, os.O_RDONLY)
        try:
            _call("setns", descriptor, flag)
        finally:
            os.close(descriptor)


def _use_resolver(file: str) -> None:
    """Let this process and its children see `file` at RESOLVER. Where the system has none, nothing changes."""
    if not Path(RESOLVER).exists():
        return
    _call("unshare", _CLONE_NEWNS)
    _call("mount", None, b"/", None, _MS_REC | _MS_SLAVE, None)
    _call("mount", os.fsencode(file), os.fsencode(RESOLVER), None, _MS_BIND, None)


def _main(arguments: Sequence[str]) -> None:
    what, *rest = arguments
    if what == "hold":
        _make()
        print(os.getpid(), flush=True)
        while os.read(0, 4096):
            pass
        return
    pid, *rest = rest
    _enter(int(pid))
    if what == "enter":
        if rest[0] == "--resolver":
            _, file, *rest = rest
            _use_resolver(file)
        os.execvp(rest[0], rest)
    where, name, mac, mtu, ip, prefix = rest
    tap = open_tap(name, bytes.fromhex(mac), int(mtu), ip, int(prefix))
    with socket.socket(fileno=int(where)) as way:
        socket.send_fds(way, [b"\0"], [tap])


if __name__ == "__main__":
    try:
        _main(sys.argv[1:])
    except OSError as error:
        text = error.strerror or str(error)
        sys.exit(f"{error.filename}: {text}" if error.filename else text)
