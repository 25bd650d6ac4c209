"""`softnicd`: one NIC, until SIGTERM, SIGINT or SIGHUP."""

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

from softnic.terminal import drop_unwritten, open_standard_files
from softnicd.config import Config, ConfigError, load, parser
from softnicd.daemon import Daemon
from softnicd.fresh_identity import with_identity
from softnicd.log import log_handler
from softnicd.selector import Selector
from softnicd.stall_watchdog import StallWatchdog
from softnicd.tap import TapNicDaemon

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's malloc.h."""
NOTIFY_S = 1.0
"""Timeout of a notification to systemd."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("softnicd")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a NIC. Returns 0 after a clean stop, 1 if something cannot be opened, 2 for a configuration error."""
    open_standard_files()
    # What started the NIC may have blocked them for itself; a mask is inherited.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*_ENDING, signal.SIGTSTP])
    try:
        return _main(arguments)
    finally:
        drop_unwritten(sys.stderr)


def _main(arguments: Sequence[str] | None) -> int:
    given = parser().parse_args(arguments)
    try:
        config = with_identity(load(given))
    except ConfigError as error:
        print(f"softnicd: {error}", file=sys.stderr)
        return 2
    try:
        handlers = [log_handler(config.log_format, config.label)]
    except OSError as error:
        print(f"softnicd: {error.strerror}", file=sys.stderr)
        return 1
    logging.basicConfig(level=logging.DEBUG if given.verbose else logging.INFO, handlers=handlers, force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    watchdog = StallWatchdog(config.label, config.peer_timeout_s, config.watchdog_s)
    watchdog.start()
    try:
        selector = Selector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(run(config, selector, watchdog, given.ready_fd))
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        print(f"softnicd: {text}", file=sys.stderr)
        return 1
    return 0


async def run(config: Config, selector: Selector, watchdog: StallWatchdog, ready_fd: int | None = None) -> None:
    """Runs a NIC until a signal ends it. Raises OSError if its wire, device or control socket cannot be opened."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGTSTP, _refuse_suspension)
    _raise_fd_limit()
    _keep_freed_memory()
    daemon = TapNicDaemon(config, loop, selector) if config.tap else Daemon(config, loop, selector)
    try:
        gc.collect()
        gc.freeze()  # startup objects live as long as the process; collections skip them
        daemon.meet()
        if config.metrics_address is not None:
            await daemon.serve_metrics(config.metrics_address)
        watchdog.run_on(loop, daemon.event_log.record, daemon.has_gone_on)
        _announce("READY=1", ready_fd)
        await stop.wait()
    finally:
        watchdog.stop_heartbeat()
        _announce("STOPPING=1")
        daemon.close()


def _refuse_suspension() -> None:
    """Ctrl-Z: applications and peers would lose a suspended NIC."""
    log.warning("a NIC does not suspend, since its applications and peers would lose it; Ctrl-C ends it")


def _raise_fd_limit() -> None:
    """Every stream is one; the usual soft limit of 1024 is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_freed_memory() -> None:
    """Makes glibc keep freed receive buffers instead of returning them and faulting in new pages (mallopt(3)).

    The large buffers of streams have mappings of their own and are still returned with their stream.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _announce(state: str, ready_fd: int | None = None) -> None:
    """Notifies systemd (sd_notify(3)) and the process at the other end of `ready_fd`."""
    if ready_fd is not None:
        with contextlib.suppress(OSError):
            os.write(ready_fd, b"\n")
            os.close(ready_fd)
    path = os.environ.get("NOTIFY_SOCKET")
    if path:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.settimeout(NOTIFY_S)
            notify.connect("\0" + path[1:] if path.startswith("@") else path)
            notify.send(state.encode())


if __name__ == "__main__":
    sys.exit(main())
