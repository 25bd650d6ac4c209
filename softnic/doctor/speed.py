"""How fast the recommended codec is here, and at which links it pays: softnic.bench measures, softnic.model predicts.

The recommendation does not depend on the measurement, whose two seconds see neither the data nor the accuracy of a
model; whether compression pays does.
"""

from __future__ import annotations

import os

from softnic.bench.calibrate import CalibrationSettings, run
from softnic.doctor.findings import Finding, note, ok
from softnic.measure.report import Progress
from softnic.model.layers import Layer
from softnic.model.parameters import Machine
from softnic.model.predict import TrainingSetup, predict
from softnic.units import text_rate, text_time

CODEC = "rht:4"
"""For gradients; exact for weights."""
RATES_BPS = (1e9, 1e10, 1e11)
PARAMETERS = 25_000_000
"""Of the exchanged gradient: 100 MB."""
NODES = 2


def measure(progress: Progress = lambda _what: None) -> Machine:
    """Measure this host for about two seconds. Starts no process."""
    return run(CalibrationSettings((CODEC,), megabytes=4, rounds=3, slice_s=0.03, through_nics=False), progress)


def seconds(machine: Machine, rate_bps: float, strategy: str) -> float:
    """Return the predicted time of an all-reduce by NICs: `nic` exactly, `nic+c` with the codec."""
    gradient = (Layer("gradient", PARAMETERS, 0.0, 0.0),)
    setup = TrainingSetup(
        network=gradient, batch=1, rate_bps=rate_bps, codec=CODEC, nodes=(NODES,), strategies=(strategy,)
    )
    return predict(setup, machine)[0].exchange_s


def check(machine: Machine, rate_bps: float | None, load: float | None = None) -> list[Finding]:
    """Return how fast the codec is here, and whether it pays at a rate (None: at usual ones).

    `load` is the mean number of runnable threads while it was measured; None: that of the last minute.
    """
    load = os.getloadavg()[0] if load is None else load
    return [_speed(machine, load), *(_advice(machine, rate) for rate in ((rate_bps,) if rate_bps else RATES_BPS))]


def _speed(machine: Machine, load: float) -> Finding:
    figures, cores = machine.codec(CODEC), len(os.sched_getaffinity(0))
    speed = f"encodes {_gb(figures.encode_bytes_s)}, decodes {_gb(figures.decode_bytes_s)} GB/s on one core"
    text = f"{CODEC}: {speed}, measured for 2 s beside a load of {load:.1f} on {cores} cores"
    if load <= cores:
        return ok("codec", text)
    why = "other programs use the cores, so that codecs look slower, and pay less, than they do alone"
    return note("codec", text, why, "run softnic doctor again when the host is idle")


def _gb(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:.1f}"


def _advice(machine: Machine, rate_bps: float) -> Finding:
    exact, compressed = (seconds(machine, rate_bps, strategy) for strategy in ("nic", "nic+c"))
    where = f"gradients by {CODEC}, weights exactly; over {text_rate(rate_bps)} compression"
    times = f"an all-reduce of 100 MB between {NODES} hosts takes"
    exactly = f"{text_time(exact)} exactly (predicted)"
    if compressed >= exact:
        return ok("advice", f"{where} does not pay with these cores: {times} {text_time(compressed)}, and {exactly}")
    return ok("advice", f"{where} pays: {times} {text_time(compressed)} instead of {exactly}")
