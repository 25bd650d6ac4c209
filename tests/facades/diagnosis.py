"""Why steps are slow or stuck."""

from __future__ import annotations

from softnic.comm.diagnosis.explanation import of_process, why_mismatched, why_stuck
from softnic.comm.diagnosis.findings import diagnose
from softnic.comm.diagnosis.reader import read_samples
from softnic.comm.diagnosis.result import Kind, WaitFinding
from softnic.comm.diagnosis.sample_files import decoded, encoded, merged
from softnic.comm.diagnosis.samples import NicSample

__all__ = [
    "Kind",
    "NicSample",
    "WaitFinding",
    "decoded",
    "diagnose",
    "encoded",
    "merged",
    "of_process",
    "read_samples",
    "why_mismatched",
    "why_stuck",
]
