"""pyproject.toml builds an sdist and a wheel that work outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

USE = """
import numpy, pathlib, softnic, softnicd, softnic.commands, softnic._native
from softnic import codecs, socket, MPI
here = pathlib.Path({site!r})
for module in (softnic, softnicd, softnic._native):
    assert here in pathlib.Path(module.__file__).parents, module
codec = codecs.get("bounded:10")
values = numpy.linspace(-0.1, 0.1, 1000, dtype=numpy.float32)
assert abs(codec.decode(codec.encode(values), 1000) - values).max() <= 2**-10
print("works")
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(out), str(ROOT), cwd=out)
    (path,) = out.glob("softnic-*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel built from the sdist, not from the checkout."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(out), str(sdist), cwd=out)
    (path,) = out.glob("softnic-*.whl")
    return path


def test_sdist_has_every_source_and_no_generated_file(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kinds = (".c", ".h", ".sv", ".cpp")
    native = {str(path.relative_to(ROOT)) for path in (ROOT / "native").rglob("*") if path.suffix in kinds}
    native.add("native/build_native.py")
    assert native <= names, f"missing: {native - names}"
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o"))]


@pytest.mark.slow
def test_wheel_has_every_module_and_supports_later_pythons(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "softnic").rglob("*.py")}
    modules |= {str(path.relative_to(ROOT / "daemons")) for path in (ROOT / "daemons").rglob("*.py")}
    engines = {f"softnic/rtl/verilog/{path.name}" for path in (ROOT / "native" / "rtl").iterdir()}
    assert modules | engines <= names, f"missing: {(modules | engines) - names}"
    assert {"softnic/py.typed", "softnic/capture/softnic.lua", "softnic/experiments/compare/advice.json"} <= names
    assert wheel.name.split("-")[2:4] == ["cp311", "abi3"]


@pytest.mark.slow
def test_installed_elsewhere_it_works(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site), str(wheel), cwd=tmp_path)
    out = run(sys.executable, "-c", USE.format(site=str(site)), cwd=tmp_path, PYTHONPATH=str(site))
    assert out.strip() == "works"
