"""The tables of claims, one for each paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softnic.experiments.pages import table
from softnic.experiments.reproduce.a2dtwp.verdicts import CLAIMS as A2DTWP
from softnic.experiments.reproduce.claim import Claim, Results
from softnic.experiments.reproduce.inceptionn.verdicts import CLAIMS as INCEPTIONN
from softnic.experiments.reproduce.lgc.verdicts import CLAIMS as LGC
from softnic.experiments.reproduce.smartnic.verdicts import CLAIMS as SMART_NIC

PAPERS: Mapping[str, Sequence[Claim]] = {
    "inceptionn": INCEPTIONN,
    "smartnic": SMART_NIC,
    "lgc": LGC,
    "a2dtwp": A2DTWP,
}
HEADINGS = ("where", "claim", "theirs", "ours", "verdict", "why", "more")


def claims_table(paper: str, results: Results) -> str:
    """Return a paper's table as Markdown."""
    return table(HEADINGS, [claim.cells(results) for claim in PAPERS[paper]])
