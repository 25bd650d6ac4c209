"""A Python target, not instrumented: `python -m tests.fuzz.unguided TARGET`, with libFuzzer's arguments behind it.

Many times the inputs of a guided run in the same time, but none is learnt from: each is a mutation of what lies in the
corpus, so guided runs come first. All else is as in those: the mutations, the limits, and what is said at the end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

from tests.fuzz.targets import TARGETS

_DEPTH = 5
"""Mutations of an input of the corpus, one upon the other, on average; as libFuzzer does."""
_LONGER = 16
"""Bytes by which an input may grow beside its own length: what is far beyond the end is rarely read."""


class Mutator:
    """Each input of the corpus has the same chance: libFuzzer, which chooses by coverage, would take the last alone."""

    def __init__(self, corpus: list[bytes]) -> None:
        self._corpus = corpus
        self._last, self._most = b"", 0

    def __call__(self, _: bytes, most: int, drawn: int) -> bytes:
        chosen, again = divmod(drawn, _DEPTH)
        if not again or not self._most:
            self._last = self._corpus[chosen % len(self._corpus)]
            self._most = 2 * len(self._last) + _LONGER
        self._last = atheris.Mutate(self._last, min(self._most, most))
        return self._last


def main() -> None:
    feed = TARGETS[sys.argv.pop(1)].feed()
    places = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    corpus = [path.read_bytes() for place in places for path in sorted(place.iterdir())]
    atheris.Setup([*sys.argv, "-keep_seed=1"], feed, custom_mutator=Mutator(corpus))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
