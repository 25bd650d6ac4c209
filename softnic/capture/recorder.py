"""Records what several taps send into one file, in a thread of its own, until it is stopped.

Strategy: the caller makes the stream sockets and hands their other ends to the NICs; here is only reading, merging
and writing. A source that ends early is noted and the others go on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from softnic.capture import pcapng
from softnic.capture.merge import Merger
from softnic.capture.reader import CaptureError
from softnic.units import text_bytes

_ROUND_S = 0.25
_HELD_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_FAREWELL_S = 5.0
"""How long NICs may take for what they have queued when the recording ends."""


@dataclass(frozen=True)
class VantagePoint:
    """What the file says of one interface."""

    name: str
    description: str
    ip: int
    mac: bytes


class Recorder:
    """Writes a capture file. `sources` are stream sockets that NICs write blocks to; they are taken over."""

    def __init__(
        self, output: BinaryIO, points: Sequence[VantagePoint], sources: Sequence[socket.socket], snaplen: int = 0
    ) -> None:
        self._output = output
        self._sources = list(sources)
        self._merger = Merger()
        self._selector = selectors.DefaultSelector()
        self._deadline: float | None = None
        self._stopping = threading.Event()
        self.ended: list[int] = []
        """Sources that closed before they were asked to."""
        self.error: OSError | CaptureError | None = None
        """Why the recording ended by itself."""
        self.bytes_written = 0
        self._write(pcapng.section_header("softnic", "Linux"))
        for point in points:
            self._write(
                pcapng.interface_description(point.name, point.description, ip=point.ip, mac=point.mac, snaplen=snaplen)
            )
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, -1)
        for number, source in enumerate(self._sources):
            source.setblocking(False)
            self._selector.register(source, selectors.EVENT_READ, number)
        self._thread = threading.Thread(target=self._run, name="softnic-recorder", daemon=True)
        self._thread.start()

    @property
    def packets(self) -> int:
        return self._merger.packets

    @property
    def dropped(self) -> int:
        """Packets that the NICs had no room for, known once the recording ended."""
        return self._merger.dropped

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until the recording ended by itself: all sources gone, or an error. False: it goes on."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends the recording and completes the file. Raises what made it end, OSError or CaptureError."""
        self._stopping.set()
        self._wake.send(b"x")
        self._thread.join()
        for ours in (self._wake, self._woken):
            ours.close()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._record()
            self._write(self._merger.finish())
        except (OSError, CaptureError) as error:
            self.error = error
        finally:
            self._selector.close()
            for source in self._sources:
                source.close()

    def _record(self) -> None:
        live = len(self._sources)
        round_ends = time.monotonic() + _ROUND_S
        while live:
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline:
                return
            for key, _ in self._selector.select(max(0.0, round_ends - now)):
                if key.data < 0:
                    self._farewell()
                elif not self._read(key.data):
                    self._selector.unregister(key.fileobj)
                    live -= 1
            if time.monotonic() >= round_ends or self._merger.held_bytes > _HELD_BYTES:
                self._write(self._merger.take())
                round_ends = time.monotonic() + _ROUND_S

    def _read(self, number: int) -> bool:
        """Takes what a source has. False: it has ended."""
        try:
            data = self._sources[number].recv(_READ_BYTES)
        except BlockingIOError:
            return True
        except ConnectionError:
            data = b""
        if not data:
            if not self._stopping.is_set():
                self.ended.append(number)
            return False
        self._merger.feed(number, data)
        return True

    def _farewell(self) -> None:
        """Tells all NICs that nothing more is wanted."""
        self._selector.unregister(self._woken)
        self._deadline = time.monotonic() + _FAREWELL_S
        for source in self._sources:
            try:
                source.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # it is gone already, which its end of file tells

    def _write(self, blocks: bytes) -> None:
        """Raises OSError; then what is in the file are whole blocks, all the same."""
        view = memoryview(blocks)
        try:
            while view:
                written = self._output.write(view)
                self.bytes_written += written
                view = view[written:]
            self._output.flush()
        except OSError as error:
            self._cut(blocks, len(blocks) - len(view))
            text = f"{error.strerror}: the recording ends with its first {text_bytes(self.bytes_written)}"
            raise OSError(error.errno, text, getattr(self._output, "name", None)) from error

    def _cut(self, blocks: bytes, written: int) -> None:
        """Takes the part of a block off the end of the file: readers would refuse it."""
        whole = pcapng.whole_blocks(blocks, written)
        with contextlib.suppress(OSError):  # a pipe
            self._output.truncate(self._output.seek(whole - written, os.SEEK_CUR))
            self.bytes_written -= written - whole
