"""`softnic stat --why`: why the steps of a run are slow or stuck, from all NICs of this host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from softnic.cluster.nic_process import running_nics
from softnic.comm.diagnosis.findings import diagnose
from softnic.comm.diagnosis.reader import read_samples
from softnic.comm.diagnosis.result import WaitFinding
from softnic.commands import CommandError, deliver_json
from softnic.commands.snapshots import NO_NIC

_SECONDS = 2.0
_NOTHING = (
    "nothing stands out: no rank is waited for more than another, and no link or NIC is slower than the others. If "
    "steps are slow all the same, all links are busy alike (softnic stat --seconds 1), or the ranks compute."
)


def explain(named: Sequence[str] | None, json: str | None) -> int:
    """Show the findings of the NICs named, or of all on this host, the most likely first."""
    paths = named or [path for path in (os.environ.get("SOFTNIC_NIC"),) if path] or list(map(str, running_nics()))
    if not paths:
        raise CommandError(NO_NIC)
    findings = diagnose(read_samples(paths, _SECONDS))
    if deliver_json(json, [_as_json(finding) for finding in findings]):
        for number, finding in enumerate(findings, 1):
            print(f"{number}. {finding.describe()}  ({finding.share:.0%})")
            for evidence in finding.evidence:
                print(f"   {evidence}")
            print(f"   next: {finding.advice}")
        if not findings:
            print(_NOTHING)
    return 0


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
