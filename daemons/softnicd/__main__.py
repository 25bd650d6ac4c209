"""`softnicd`: one NIC, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

from softnicd.config import Config, ConfigError, load, parser
from softnicd.log import StandardError
from softnicd.pump import Daemon
from softnicd.selector import Selector
from softnicd.stall_watchdog import Guard
from softnicd.tap import TapDaemon

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's malloc.h."""
NOTIFY_S = 1.0
"""How long whoever asked for notifications may take to read one."""

log = logging.getLogger("softnicd")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 after a clean stop, 1 where something cannot be opened, 2 for a bad configuration."""
    try:
        return _main(arguments)
    finally:
        _flush_log()


def _flush_log() -> None:
    """Python flushes stderr at exit, and exits with code 120 if that fails. A log on a full disk is not worth that."""
    try:
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def _main(arguments: Sequence[str] | None) -> int:
    given = parser().parse_args(arguments)
    try:
        config = load(given)
    except ConfigError as error:
        print(f"softnicd: {error}", file=sys.stderr)
        return 2
    level = logging.DEBUG if given.verbose else logging.INFO
    logging.basicConfig(
        format=f"softnicd {config.label}: %(message)s", level=level, handlers=[StandardError()], force=True
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    guard = Guard(config.label, config.patience_s, config.watchdog_s)
    guard.start()
    try:
        selector = Selector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(run(config, selector, guard, given.ready_fd))
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        print(f"softnicd: {text}", file=sys.stderr)
        return 1
    return 0


async def run(config: Config, selector: Selector, guard: Guard, ready_descriptor: int | None = None) -> None:
    """Runs a NIC until a signal ends it. Raises OSError for what cannot be opened."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGTSTP, _stay)
    _allow_descriptors()
    _keep_freed_memory()
    daemon = TapDaemon(config, loop, selector) if config.tap else Daemon(config, loop, selector)
    try:
        gc.collect()
        gc.freeze()  # what is there now stays: collections need not look at it
        guard.attend(loop, daemon.journal.note)
        _announce("READY=1", ready_descriptor)
        await stop.wait()
    finally:
        guard.leave()
        _announce("STOPPING=1")
        daemon.close()


def _stay() -> None:
    """Ctrl-Z: a NIC that stood still would be lost to all that use it."""
    log.warning("a NIC is not to be suspended, since its programs and peers would lose it; Ctrl-C ends it")


def _allow_descriptors() -> None:
    """Every stream is one; the usual soft limit of 1024 is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_freed_memory() -> None:
    """Has glibc keep the buffers of received bytes instead of giving them back and faulting in new ones (mallopt(3)).
    The large buffers of streams, mapped by themselves, still go back with their stream."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _announce(state: str, descriptor: int | None = None) -> None:
    """Tells whoever waits: systemd (sd_notify(3)), and the holder of the other end of `descriptor`."""
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\n")
            os.close(descriptor)
    where = os.environ.get("NOTIFY_SOCKET")
    if where:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.settimeout(NOTIFY_S)
            notify.connect("\0" + where[1:] if where.startswith("@") else where)
            notify.send(state.encode())


if __name__ == "__main__":
    sys.exit(main())
