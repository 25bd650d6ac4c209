"""`softnic stat --why`: why the steps of a run are slow or stuck, from all NICs of this host or of several."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softnic.comm.diagnosis.findings import diagnose
from softnic.comm.diagnosis.reader import read_samples
from softnic.comm.diagnosis.result import WaitFinding
from softnic.comm.diagnosis.sample_files import decoded, encoded, merged
from softnic.comm.diagnosis.samples import NicSample
from softnic.commands import CommandError, deliver_json
from softnic.commands.nics import chosen_nics

_SECONDS = 2.0
_APART = (
    "the files are not of the same time, or the clocks of the hosts differ: what is stuck is found all the same, but "
    "findings about steps that are only slow may be wrong. Run --samples on all hosts at once."
)
_NOTHING = (
    "nothing stands out: no rank is waited for more than another, and no link or NIC is slower than the others. If "
    "steps are slow all the same, all links are busy alike (softnic stat --seconds 1), or the ranks compute."
)


def explain(named: Sequence[str] | None, json: str | None, files: Sequence[str] | None = None) -> int:
    """Show the findings, the most likely first: of the NICs named, of all on this host, or of the files given."""
    findings = diagnose(_read(files) if files else read_samples(chosen_nics(named), _SECONDS))
    if deliver_json(json, [_as_json(finding) for finding in findings]):
        for number, finding in enumerate(findings, 1):
            print(f"{number}. {finding.describe()}  ({finding.share:.0%})")
            for evidence in finding.evidence:
                print(f"   {evidence}")
            print(f"   next: {finding.advice}")
        if not findings:
            print(_NOTHING)
    return 0


def write_samples(named: Sequence[str] | None, target: str) -> int:
    """Write what the NICs named, or all on this host, answer: for `explain` with the files of other hosts."""
    content = encoded(socket.gethostname(), read_samples(chosen_nics(named), _SECONDS))
    if target == "-":
        sys.stdout.buffer.write(content + b"\n")
    else:
        Path(target).write_bytes(content + b"\n")
    return 0


def _read(paths: Sequence[str]) -> list[NicSample]:
    """Return the samples of these files together. Raises CommandError for other files."""
    files = []
    for path in paths:
        try:
            files.append(decoded(Path(path).read_bytes()))
        except ValueError as error:
            raise CommandError(f"{path}: not a file of softnic stat --why --samples: {error}") from None
    samples, together = merged(files)
    if not together:
        print(_APART, file=sys.stderr)
    return samples


def _as_json(finding: WaitFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "share": round(finding.share, 3),
        "rank": finding.rank,
        "ip": finding.ip,
        "call": finding.call,
        "where": finding.where,
        "evidence": list(finding.evidence),
        "next": finding.advice,
    }
