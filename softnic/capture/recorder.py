"""Records the blocks of several NICs into one file, in a thread, until it is stopped.

The caller makes the stream sockets and passes their other ends to the NICs; the recorder reads, merges and writes. A
source that ends early is noted and the others continue.
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
from softnic.capture.capture_file import CaptureError
from softnic.capture.merge import Merger
from softnic.units import text_bytes

_ROUND_S = 0.25
_HELD_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_FAREWELL_S = 5.0
"""How long NICs may take to deliver queued blocks when the recording ends."""


@dataclass(frozen=True)
class VantagePoint:
    """Description of one interface in the file."""

    name: str
    description: str
    ip: int
    mac: bytes


class Recorder:
    """Writes a capture file.

    Parameters
    ----------
    output : binary file
        Where to write.
    points : sequence of VantagePoint
        The interfaces.
    sources : sequence of socket
        Stream sockets that NICs write blocks to; the recorder closes them.
    snaplen : int
        Bytes kept of each packet; 0: all.
    """

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
        """Packets dropped by the NICs; known once the recording has ended."""
        return self._merger.dropped

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the recording ends by itself: all sources closed, or an error. Returns False at the timeout."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End the recording and complete the file. Raises the error that ended it, OSError or CaptureError."""
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
        """Read from a source. Returns False at its end."""
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
        """Ask all NICs to end."""
        self._selector.unregister(self._woken)
        self._deadline = time.monotonic() + _FAREWELL_S
        for source in self._sources:
            try:
                source.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # already closed, which its end of file shows

    def _write(self, blocks: bytes) -> None:
        """Write blocks. After an OSError the file still consists of complete blocks."""
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
        """Truncate an incomplete block at the end of the file, which readers would reject."""
        whole = pcapng.whole_blocks(blocks, written)
        with contextlib.suppress(OSError):  # a pipe
            self._output.truncate(self._output.seek(whole - written, os.SEEK_CUR))
            self.bytes_written -= written - whole
