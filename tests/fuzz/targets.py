"""What can be fuzzed: one file a target, but for the codecs' decoders, which share one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from softnic.codecs import names

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"
BUILD = ROOT / "build" / "fuzz"


@dataclass(frozen=True, slots=True)
class Target:
    """`name` is that of its file, `what` the first sentence of it."""

    name: str
    what: str
    source: Path
    codec: int | None = None
    """Of a decoder: the number of the codec."""

    @property
    def is_native(self) -> bool:
        return self.source.suffix == ".c"

    @property
    def corpus(self) -> Path:
        """The file of inputs that are checked in, which tests/fuzz/corpus.py reads."""
        return CORPUS / f"{self.name}.txt"

    @property
    def found(self) -> Path:
        """The folder of what runs on this machine found, with the seeds and what is checked in."""
        return BUILD / "corpus" / self.name

    def feed(self) -> Callable[[bytes], None]:
        """Of a Python target: takes one input. Raises for what must not happen."""
        return cast("Callable[[bytes], None]", self._module().feed)

    def seeds(self) -> Iterable[bytes]:
        """Inputs that get far, made by the code itself."""
        if self.is_native:
            from tests.fuzz import seeds

            return seeds.of(self)
        return cast("Callable[[], Iterable[bytes]]", self._module().seeds)()

    def _module(self) -> ModuleType:
        return importlib.import_module(f"tests.fuzz.python.{self.source.stem}")


def _first_sentence(source: Path) -> str:
    text = re.search(r'(?:/\*|""")\s*(.*?)(?:\*/|""")', source.read_text(), re.DOTALL)
    assert text is not None, f"{source} does not say what it is"
    return " ".join(text[1].split()).split(". ")[0].rstrip(".")


def _all() -> dict[str, Target]:
    found = {}
    for source in sorted((HERE / "native").glob("*.c")):
        what = _first_sentence(source)
        if source.stem == "decode":
            for number, codec in enumerate(names()):
                name = f"decode-{codec}"
                found[name] = Target(name, what.replace("one codec (FUZZ_CODEC)", codec), source, number)
        else:
            found[source.stem] = Target(source.stem, what, source)
    for source in sorted((HERE / "python").glob("[!_]*.py")):
        found[source.stem] = Target(source.stem, _first_sentence(source), source)
    return found


TARGETS = _all()
"""By name, those of the C first."""
