"""The tables of claims, one for each paper, and the table of all verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import get_args

from benchmarks.papers.a2dtwp import evidence as a2dtwp
from benchmarks.papers.claim import Claim, Results, Verdict, load
from benchmarks.papers.inceptionn import evidence as inceptionn
from benchmarks.papers.lgc import evidence as lgc
from benchmarks.papers.smartnic import evidence as smartnic
from softnic.measure.pages import table

EVIDENCE: Mapping[str, ModuleType] = {
    "inceptionn": inceptionn,
    "smartnic": smartnic,
    "lgc": lgc,
    "a2dtwp": a2dtwp,
}
PAPERS: Mapping[str, Sequence[Claim]] = {
    paper: load(Path(__file__).with_name(paper) / "claims.toml", module) for paper, module in EVIDENCE.items()
}
TITLES = {"inceptionn": "INCEPTIONN", "smartnic": "smart NIC", "lgc": "LGC", "a2dtwp": "A2DTWP"}
HEADINGS = ("where", "claim", "theirs", "ours", "verdict", "why", "more")


def claims_table(paper: str, results: Results) -> str:
    """Return a paper's table as Markdown."""
    return table(HEADINGS, [claim.cells(results) for claim in PAPERS[paper]])


def summary(results: Results) -> str:
    """Return how many claims of each paper have which verdict, as Markdown."""
    judged = {paper: Counter(claim.judged(results) for claim in claims) for paper, claims in PAPERS.items()}
    shown = [verdict for verdict in get_args(Verdict) if any(counts[verdict] for counts in judged.values())]
    rows = [
        [f"[{TITLES[paper]}](papers/{paper}.md)", *(str(counts[verdict] or "") for verdict in shown)]
        for paper, counts in judged.items()
    ]
    return table(["claims of", *shown], rows)
