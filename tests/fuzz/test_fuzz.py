"""Every input that is checked in, and every seed, through its target; and that what is documented is fuzzed.

The targets of the C run in .ci/fuzz, under their sanitizers; here only their inputs are looked at.
"""

from __future__ import annotations

import importlib
import platform
import re
import signal
import sys
from pathlib import Path

import pytest

from softnic import codecs
from tests import needs
from tests.fuzz import corpus, run, targets
from tests.fuzz.run import MOST_BYTES, result_of
from tests.fuzz.targets import ROOT, TARGETS, Target

PYTHON = [name for name, target in TARGETS.items() if not target.is_native]
SAID = """\
#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb
#500\tNEW    cov: 120 ft: 300 corp: 42/1Kb lim: 4 exec/s: 250 rss: 31Mb L: 4/4 MS: 1 ShuffleBytes-
Done 1000 runs in 4 second(s)
stat::number_of_executed_units: 1000
stat::average_exec_per_sec:     250
stat::peak_rss_mb:              31
"""


@pytest.mark.parametrize("name", PYTHON)
def test_every_input_we_keep(name: str) -> None:
    target = TARGETS[name]
    feed = target.feed()
    seeds = list(target.seeds())
    assert seeds
    for data in seeds:
        feed(data)
    for data in corpus.read(target).values():
        feed(data)


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_something_to_begin_with(name: str) -> None:
    target = TARGETS[name]
    assert len(set(target.seeds())) > 2
    inputs = corpus.read(target)
    assert inputs
    assert max(map(len, inputs.values())) <= MOST_BYTES


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Target:
    """A target whose inputs lie in a folder of the test."""
    monkeypatch.setattr(targets, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(targets, "BUILD", tmp_path / "build")
    return TARGETS["options"]


def test_inputs_are_read_as_they_were_written(target: Target) -> None:
    assert corpus.read(target) == {}
    inputs = [bytes(range(256)), b"", b"'", b'"', b"\"'\\\n", b"b'' b''", b"text"]
    named = {corpus.name_of(data): data for data in inputs} | {"too-deep": b"[[["}
    corpus.write(target, named)
    assert corpus.read(target) == named
    assert list(corpus.read(target).values()) == sorted(named.values(), key=lambda data: (len(data), data))
    text = target.corpus.read_bytes()
    assert b"too-deep b'[[['\n" in text
    corpus.write(target, dict(reversed(named.items())))
    assert target.corpus.read_bytes() == text
    target.corpus.write_bytes(text + b"print()\n")
    with pytest.raises(ValueError, match=r"print\(\) is not an input"):
        corpus.read(target)


def test_an_input_is_checked_in_under_the_name_of_its_file(target: Target, tmp_path: Path) -> None:
    corpus.write(target, {corpus.name_of(b"old"): b"old"})
    (tmp_path / "cut-short").write_bytes(b"\2")
    run.keep(target, [tmp_path / "cut-short"])
    assert corpus.read(target) == {corpus.name_of(b"old"): b"old", "cut-short": b"\2"}


def test_the_smallest_inputs_that_reach_all_are_chosen_beside_those_with_names(target: Target) -> None:
    """By lines of softnic, for a target of the Python."""
    corpus.write(target, {"mended": b"\xff" * 9})
    count = run.minimize(target, None, 4)
    assert 3 <= count <= 5
    kept = corpus.read(target)
    assert kept.pop("mended") == b"\xff" * 9
    assert len(kept) == count - 1
    assert all(name == corpus.name_of(data) for name, data in kept.items())
    assert set(kept.values()) <= {path.read_bytes() for path in target.found.iterdir()}
    assert run.minimize(target, None, 4) == count
    assert corpus.read(target) == kept | {"mended": b"\xff" * 9}


def test_every_codec_has_its_decoder_fuzzed() -> None:
    assert [name for name in TARGETS if name.startswith("decode-")] == [f"decode-{name}" for name in codecs.names()]


def test_what_is_documented_is_fuzzed() -> None:
    table = (ROOT / "docs" / "trust.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(TARGETS)


def test_a_run_is_told_as_it_was() -> None:
    target = TARGETS["frames"]
    result = result_of(target, SAID, 0, 3.21, None)
    assert (result.inputs, result.seconds, result.edges, result.kept) == (1000, 4, 120, 42)
    assert result.cpu_seconds == 3.2
    assert result.finding is None
    assert result.guided
    assert not result_of(target, SAID, 0, 3.21, None, guided=False).guided
    broken = result_of(target, SAID, 77, 0.0, None)
    assert broken.finding is not None
    assert "Done 1000 runs" in broken.said
    ended = result_of(target, "", -signal.SIGUSR1, 0.0, None)
    assert (ended.inputs, ended.finding) == (0, None)


@pytest.mark.parametrize("name", ["options", "frames"])
def test_only_the_python_can_be_unguided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def call(command: list[str]) -> tuple[str, int, float]:
        commands.append(command)
        return SAID, 0, 1.0

    monkeypatch.setattr(run, "call", call)
    target, program = TARGETS[name], Path("program") if TARGETS[name].is_native else None
    for guided in (True, False):
        result = run.fuzz(target, program, runs=5, seconds=0, seed=1, guided=guided)
        assert result.guided is (guided or target.is_native)
    assert (commands[0] == commands[1]) is target.is_native
    assert ("tests.fuzz.unguided" in commands[1]) is not target.is_native


def test_unguided_inputs_come_of_the_whole_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (sys.version_info < (3, 14) and platform.machine() == "x86_64"):
        pytest.skip("atheris is not made for this Python or this machine")
    atheris = needs.module("atheris")
    unguided = importlib.import_module("tests.fuzz.unguided")
    monkeypatch.setattr(atheris, "Mutate", lambda data, most: (data + b"!")[:most])
    mutate = unguided.Mutator([b"a", b"b" * 10, b"c" * 3000])
    made = [mutate(b"libFuzzer's", MOST_BYTES, drawn) for drawn in range(1000)]
    assert {data[:1] for data in made} == {b"a", b"b", b"c"}
    assert max(data.count(b"!") for data in made) > 3
    assert max(map(len, made)) == MOST_BYTES
    assert not any(data.startswith(b"libFuzzer") for data in made)
