"""Pinned virtual times, and the tables of docs/model.md that publish them.

`python -m tests.model.virtual_times` simulates every case again, writes virtual_times.json and the tables of
docs/model.md. A commit that changes a time says why.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from softnic import units
from softnic.model import check
from softnic.model.check import CheckCase

PINS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "model.md"

Nanoseconds = dict[str, int]
"""Simulated time of each case, by its key."""


def key(case: CheckCase) -> str:
    """A case's name in virtual_times.json."""
    return f"{case.strategy}, {case.nodes} nodes, {case.name}"


def all_cases() -> list[CheckCase]:
    """The cases of `softnic model check` and `softnic model exchange`."""
    return [*check.cases(), *check.exchanges()]


def simulated(case: CheckCase) -> int:
    """Simulate a case.

    Returns
    -------
    int
        Virtual time in nanoseconds: the same on every machine.
    """
    return round(1e9 * check.simulate(case))


def pinned() -> Nanoseconds:
    """Read virtual_times.json."""
    times: Nanoseconds = json.loads(PINS.read_text())
    return times


def tables(times: Nanoseconds) -> dict[str, str]:
    """Format the tables of docs/model.md, by the name of their marks."""
    return {"check": _check_table(times), "exchange": _exchange_table(times)}


def _check_table(times: Nanoseconds) -> str:
    """One line for each strategy and network, one column for each number of nodes."""
    cases = check.cases()
    nodes = sorted({case.nodes for case in cases})
    rows = [
        ["strategy", "layers, links, codec", f"{nodes[0]} nodes", *map(str, nodes[1:])],
        ["---"] * (2 + len(nodes)),
    ]
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for case in cases:
        links = units.text_rate(case.rate_bps)
        what = ", ".join(filter(None, (case.name, links, case.used_codec)))
        groups.setdefault((case.strategy, what), {})[case.nodes] = _cell(case, times)
    rows += [[*names, *(cells.get(count, "") for count in nodes)] for names, cells in groups.items()]
    return _markdown(rows)


def _cell(case: CheckCase, times: Nanoseconds) -> str:
    predicted_s, simulated_s = check.predict(case), times[key(case)] / 1e9
    error = predicted_s / simulated_s - 1
    return f"{1e3 * predicted_s:.2f}, {1e3 * simulated_s:.2f} ({error:+.2%})".replace("%", " %")


def _exchange_table(times: Nanoseconds) -> str:
    """One line for each number of nodes, one column for each strategy."""
    cases = check.exchanges()
    strategies = list(dict.fromkeys(case.strategy for case in cases))
    rows = [["nodes", f"{strategies[0]}: simulated ms (error)", *strategies[1:]], ["---"] * (1 + len(strategies))]
    for count in sorted({case.nodes for case in cases}):
        row = {case.strategy: case for case in cases if case.nodes == count}
        rows.append([str(count), *(_cell(row[each], times).split(", ")[1] for each in strategies)])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        joined = "|".join(cells) if set(cells) == {"---"} else " | ".join(cells)
        return f"|{joined}|" if set(cells) == {"---"} else f"| {joined} |".replace("|  |", "| |")

    return "\n".join(map(line, rows))


def published(text: str) -> Iterator[tuple[str, str]]:
    """Find the tables of a page between `<!-- virtual times: NAME -->` and `<!-- end -->`."""
    yield from re.findall(r"<!-- virtual times: (\w+) -->\n\n(.*?)\n\n<!-- end -->", text, re.DOTALL)


def publish(times: Nanoseconds) -> None:
    """Write virtual_times.json and the tables of docs/model.md."""
    PINS.write_text(json.dumps(times, indent=1) + "\n")
    text = PAGE.read_text()
    made = tables(times)
    for name in made:
        between = rf"(?<=<!-- virtual times: {name} -->\n\n).*?(?=\n\n<!-- end -->)"
        text = re.sub(between, made[name], text, count=1, flags=re.DOTALL)
    PAGE.write_text(text)


def main() -> None:
    cases = all_cases()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        found = pool.map(simulated, cases)
        publish({key(case): time for case, time in zip(cases, found, strict=True)})


if __name__ == "__main__":
    main()
