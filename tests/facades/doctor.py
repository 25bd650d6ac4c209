"""The checks of `softnic doctor`."""

from __future__ import annotations

from softnic.doctor import host, path, probes, running, speed
from softnic.doctor.findings import Finding, exit_code
from softnic.doctor.listener import ProbeListener
from softnic.model.parameters import CodecFigures, Machine

__all__ = [
    "CodecFigures",
    "Finding",
    "Machine",
    "ProbeListener",
    "exit_code",
    "host",
    "path",
    "probes",
    "running",
    "speed",
]
