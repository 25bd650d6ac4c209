"""NICs for the capture command that answer as a daemon does and capture what the test gives them."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType

from softnic.capture.hook import CaptureHook
from softnic.capture.pcapng import Direction
from softnic.ipc import control
from softnic.packet.frames import Frames


class StandInNic:
    """A control socket in a thread. `wire` puts frames into its captures, `leave` makes it vanish."""

    def __init__(self, path: Path, number: int, name: str = "") -> None:
        self.path = str(path)
        self._info = control.NicInfo(
            version=control.VERSION,
            name=name or f"node{number}",
            ip=f"10.77.0.{number + 1}",
            mac=f"02:53:4e:4d:00:{number + 1:02x}",
            mtu=1500,
            mode="fill",
            offloads={"0x2c": "inceptionn:10"},
            codecs=[0, 1, 2],
            pid=os.getpid(),
        )
        self.hook = CaptureHook(0x0A4D0001 + number, time.time_ns() - time.monotonic_ns())
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(0.01)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.captures: list[control.Capture] = []

    def __enter__(self) -> StandInNic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join()
        self._listener.close()

    def wire(self, frame: bytes, count: int = 1) -> None:
        with self._lock:
            for sink in self.hook.sinks:
                now_ns = self.hook.time_ns(time.monotonic())
                sink.write(sink.wire_interface, now_ns, Frames.of([frame] * count), Direction.OUTBOUND, 0)

    def wait_for_capture(self) -> None:
        deadline = time.monotonic() + 60
        while not self.captures:
            assert time.monotonic() < deadline, "no capture was asked for"
            self._leaving.wait(0.005)

    def _run(self) -> None:
        connections: list[socket.socket] = []
        while not self._leaving.is_set():
            try:
                connection, _ = self._listener.accept()
                connection.settimeout(0.01)
                connections.append(connection)
            except TimeoutError:
                pass
            connections = [connection for connection in connections if self._serve(connection)]
            with self._lock:
                self.hook.poll(time.monotonic())
        for connection in connections:
            connection.close()
        with self._lock:
            self.hook.close()

    def _serve(self, connection: socket.socket) -> bool:
        try:
            message, descriptors, _, _ = socket.recv_fds(connection, control.MAX_MESSAGE, 1)
        except TimeoutError:
            return True
        if not message:
            connection.close()
            return False
        connection.send(control.encode(self._answer(control.decode_request(message), descriptors)))
        return True

    def _answer(self, request: control.Request, descriptors: list[int]) -> control.Reply:
        if isinstance(request, control.QueryNic):
            return self._info
        assert isinstance(request, control.Capture)
        with self._lock:
            self.hook.start(
                descriptors[0],
                time.monotonic(),
                host_interface=request.host_interface,
                wire_interface=request.wire_interface,
                snaplen=request.snaplen,
            )
        self.captures.append(request)
        return control.Done()
