"""How fast codecs are here, and which of them pays at a link: measured by softnic.bench, predicted by softnic.model."""

from __future__ import annotations

from dataclasses import dataclass

from softnic.bench.calibrate import CalibrationSettings, run
from softnic.doctor.findings import Finding, ok
from softnic.experiments.report import Progress
from softnic.model.layers import Layer
from softnic.model.parameters import Machine
from softnic.model.predict import TrainingSetup, predict
from softnic.units import text_rate, text_time

CODECS = ("rht:4", "bounded:8", "bfp:7")
RATES_BPS = (1e9, 1e10, 1e11)
PARAMETERS = 25_000_000
"""Of the exchanged gradient: 100 MB."""
NODES = 2
EXACT = "exactly"


@dataclass(frozen=True, slots=True)
class PredictedExchange:
    """The predicted time of one exchange."""

    codec: str
    seconds: float


def measure(progress: Progress = lambda _what: None) -> Machine:
    """Measure this host for about two seconds. Starts no process."""
    return run(CalibrationSettings(CODECS, megabytes=4, rounds=3, slice_s=0.03, through_nics=False), progress)


def exchanges(machine: Machine, rate_bps: float) -> list[PredictedExchange]:
    """Return the times of an all-reduce by NICs, exactly and with each codec, the shortest first."""
    gradient = (Layer("gradient", PARAMETERS, 0.0, 0.0),)

    def seconds(codec: str, strategy: str) -> float:
        setup = TrainingSetup(
            network=gradient, batch=1, rate_bps=rate_bps, codec=codec, nodes=(NODES,), strategies=(strategy,)
        )
        return predict(setup, machine)[0].exchange_s

    times = [PredictedExchange(EXACT, seconds(CODECS[0], "nic"))]
    times += [PredictedExchange(codec, seconds(codec, "nic+c")) for codec in machine.codecs]
    return sorted(times, key=lambda each: each.seconds)


def check(machine: Machine, rate_bps: float | None) -> list[Finding]:
    """Return what codecs do here, and which pays at a rate (None: at usual ones)."""
    found = [
        ok("codec", f"{name}: encodes {_gb(each.encode_bytes_s)}, decodes {_gb(each.decode_bytes_s)} GB/s on one core")
        for name, each in machine.codecs.items()
    ]
    return found + [_advice(machine, rate) for rate in (RATES_BPS if rate_bps is None else (rate_bps,))]


def _gb(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:.1f}"


def _advice(machine: Machine, rate_bps: float) -> Finding:
    times = exchanges(machine, rate_bps)
    best, exact = times[0], next(each for each in times if each.codec == EXACT)
    where = f"over {text_rate(rate_bps)}, an all-reduce of 100 MB between {NODES} hosts"
    exactly = f"{text_time(exact.seconds)} exactly (predicted)"
    if best is exact:
        return ok("advice", f"{where}: no codec pays, {exactly}")
    return ok("advice", f"{where}: take {best.codec}, {text_time(best.seconds)} instead of {exactly}")
