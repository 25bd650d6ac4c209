"""`softnic stat --why`: why the steps of a run are slow or stuck, from all NICs of this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softnic.comm.diagnosis.findings import diagnose
from softnic.comm.diagnosis.reader import read_samples
from softnic.comm.diagnosis.result import WaitFinding
from softnic.commands import deliver_json
from softnic.commands.nics import chosen_nics

_SECONDS = 2.0
_NOTHING = (
    "nothing stands out: no rank is waited for more than another, and no link or NIC is slower than the others. If "
    "steps are slow all the same, all links are busy alike (softnic stat --seconds 1), or the ranks compute."
)


def explain(named: Sequence[str] | None, json: str | None) -> int:
    """Show the findings of the NICs named, or of all on this host, the most likely first."""
    findings = diagnose(read_samples(chosen_nics(named), _SECONDS))
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
