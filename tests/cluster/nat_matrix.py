"""Runs a pair of commands at two sites for each of the 49 pairs of kinds of NAT, and shows how they connected.

python -m tests.cluster.nat_matrix [--server COMMAND] [--at-once 2] [--timeout 30] LEFT RIGHT

LEFT and RIGHT run on hosts of two sites, and the server's command on a public host meanwhile. The last line that each
side writes to stdout is `direct` or `relayed`, and its exit code 0; all else, and no end within the timeout, counts as
no connection. In all commands {server} becomes the server's address; in those of sides {pair} becomes a name that only
these two have, and {side} becomes `left` or `right`. A command with spaces is one argument, in quotes.

The exit code is 0 if exactly those pairs connected directly that can in theory.

Needs root. Nothing is left of the sites afterwards.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from softnic.cluster.nat_lab.kinds import PAIRED, theory
from softnic.cluster.nat_lab.lab import NatLab, missing

Pair = tuple[str, str]
DIRECT, RELAYED, NEITHER = "direct", "relayed", "-"
SIDES = ("left", "right")
AT_ONCE, TIMEOUT_S = 2, 30.0


class NatMatrix:
    """A lab with a site of each kind on both sides.

    with NatMatrix() as matrix:
        matrix.lab.server.start(...)
        outcomes = matrix.run([...], [...])
    print(table(outcomes))
    """

    def __init__(self) -> None:
        self.lab = NatLab({f"{side} {kind}": kind for side in SIDES for kind in PAIRED})

    def run(
        self, left: Sequence[str], right: Sequence[str], *, at_once: int = AT_ONCE, timeout_s: float = TIMEOUT_S
    ) -> dict[Pair, str]:
        """Run a command on each side of all pairs, as many pairs `at_once`, and return how each pair connected. A host
        runs one command at a time."""
        outcomes: dict[Pair, str] = {}
        for shift in range(len(PAIRED)):  # pairs of a round have no site in common
            pairs = list(zip(PAIRED, PAIRED[shift:] + PAIRED[:shift], strict=True))
            for first in range(0, len(pairs), at_once):
                outcomes |= self.run_pairs(pairs[first : first + at_once], (left, right), timeout_s)
        return {(a, b): outcomes[a, b] for a in PAIRED for b in PAIRED}

    def run_pairs(
        self, pairs: Sequence[Pair], commands: tuple[Sequence[str], Sequence[str]], timeout_s: float
    ) -> dict[Pair, str]:
        """Run the commands of both sides of some pairs, which have no site in common, all at once."""
        started = {
            pair: [
                self.lab.host(f"{side} {kind}").start(
                    *(self._filled(word, pair, side) for word in command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                for side, kind, command in zip(SIDES, pair, commands, strict=True)
            ]
            for pair in pairs
        }
        until = time.monotonic() + timeout_s
        return {pair: outcome([_result(side, until) for side in sides]) for pair, sides in started.items()}

    def _filled(self, word: str, pair: Pair, side: str) -> str:
        """Return a word of a command with the names in braces replaced."""
        name = "_".join(kind.replace(" ", "-") for kind in pair)
        for key, text in {"server": self.lab.server.address, "pair": name, "side": side}.items():
            word = word.replace(f"{{{key}}}", text)
        return word

    def __enter__(self) -> NatMatrix:
        return self

    def __exit__(self, *_error: object) -> None:
        self.lab.close()


def _result(process: subprocess.Popen[Any], until: float) -> str:
    """Return the last line of a process that ends well in time, or nothing.

    One that does not end is killed, with those that it has started.
    """
    try:
        said, _ = process.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return ""
    lines = said.split("\n") if process.returncode == 0 else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def outcome(sides: Sequence[str]) -> str:
    """Return how a pair has connected, from what its sides say."""
    if not set(sides) <= {DIRECT, RELAYED}:
        return NEITHER
    return DIRECT if set(sides) == {DIRECT} else RELAYED


def table(outcomes: Mapping[Pair, str]) -> str:
    """Return a table of the outcomes, kinds by kinds. An outcome that theory contradicts has an exclamation mark."""
    rows = [["", *PAIRED]]
    for a in PAIRED:
        row = [a]
        for b in PAIRED:
            right = (outcomes[a, b] == DIRECT) == theory(a, b)
            row.append(outcomes[a, b] + ("" if right else " !"))
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.nat_matrix", description=__doc__)
    parser.add_argument("left", type=shlex.split)
    parser.add_argument("right", type=shlex.split)
    parser.add_argument("--server", type=shlex.split, default=[])
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    given = parser.parse_args(arguments)
    if reason := missing():
        parser.exit(1, f"{reason}\n")
    with NatMatrix() as matrix:
        if given.server:
            address = matrix.lab.server.address
            matrix.lab.server.start(*(word.replace("{server}", address) for word in given.server))
        outcomes = matrix.run(given.left, given.right, at_once=max(1, given.at_once), timeout_s=given.timeout)
    print(table(outcomes))
    return 0 if all((outcomes[pair] == DIRECT) == theory(*pair) for pair in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
