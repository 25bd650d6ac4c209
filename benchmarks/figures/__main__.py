"""Figures of the documentation: which were measured when, and how far their code has changed since; measures them.

python -m benchmarks.figures [NAME ...], from the root of the checkout; some need root.

Without names, it lists the figures. A figure that is measured is kept in docs/results at once, and the pages are
rebuilt from what is kept. Measure on a machine that does nothing else, after a commit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.figures.kept import Figure, FigureError, changed, commit_of, has_history, measure
from benchmarks.figures.published import PUBLISHED, rebuild
from softnic.measure.pages import table


def _listed(figure: Figure) -> list[str]:
    try:
        document = figure.document()
    except FigureError:
        return [figure.name, "never", "", "", "", figure.command]
    state = ""
    if has_history():
        try:
            change = changed(figure)
            state = f"{change.share:.0%} of {change.of} lines in {change.commits} commits"
            state += ": stale" if change.stale else ""
        except FigureError:
            state = "the commit is unknown: stale"
    load = str(document.get("load", ""))
    return [figure.name, document.get("date", ""), load, commit_of(document), state, figure.command]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = {figure.name: figure for figures in PUBLISHED.values() for figure in figures}
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to measure, or `all`")
    parser.add_argument("--report", action="store_true", help="rebuild the pages from what is kept, nothing else")
    given = parser.parse_args()
    names: Sequence[str] = list(known) if given.names == ["all"] else given.names
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no figure is called {unknown[0]}: {', '.join(known)}")
    if not names and not given.report:
        print(table(["figure", "measured", "load", "commit", "changed since", "command"], map(_listed, known.values())))
        return 0
    failed = 0
    for name in names:
        try:
            measure(known[name])
        except FigureError as error:
            failed += 1
            print(f"benchmarks.figures: {error}", file=sys.stderr)
            continue
        for row in known[name].rows():
            print(*row, sep=" | ", flush=True)
    try:
        rebuild()
    except FigureError as error:
        failed += 1
        print(f"benchmarks.figures: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
