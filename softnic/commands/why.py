"""`softnic stat --why`: why the steps of a run are slow or stuck, from all NICs of this host or of several."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softnic.commands import CommandError, check_writable, deliver_json, write_file
from softnic.commands.nics import chosen_nics
from softnic.diagnosis.findings import diagnose
from softnic.diagnosis.reader import read_samples
from softnic.diagnosis.result import WaitFinding
from softnic.diagnosis.sample_files import MAX_FILE_BYTES, decoded, encoded, merged
from softnic.diagnosis.samples import NicSample
from softnic.terminal import printable

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
    check_writable(json)
    findings = diagnose(_read(files) if files else read_samples(chosen_nics(named), _SECONDS))
    if deliver_json(json, [_as_json(finding) for finding in findings]):
        for number, finding in enumerate(findings, 1):
            print(f"{number}. {printable(finding.describe())}  ({finding.share:.0%})")
            for evidence in finding.evidence:
                print(f"   {printable(evidence)}")
            print(f"   next: {finding.advice}")
        if not findings:
            print(_NOTHING)
    return 0


def write_samples(named: Sequence[str] | None, target: str) -> int:
    """Write what the NICs named, or all on this host, answer: for `explain` with the files of other hosts."""
    check_writable(target)
    content = encoded(socket.gethostname(), read_samples(chosen_nics(named), _SECONDS))
    if target == "-":
        sys.stdout.buffer.write(content + b"\n")
    else:
        write_file(target, content + b"\n")
    return 0


def _read(paths: Sequence[str]) -> list[NicSample]:
    """Return the samples of these files together. Raises CommandError for other files."""
    files = []
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                files.append(decoded(file.read(MAX_FILE_BYTES + 1)))
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
