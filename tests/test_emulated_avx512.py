"""The AVX-512 kernels on machines without AVX-512: the tests of tests/codecs, over intrinsics in portable C.

tests/codecs runs once for each implementation that the machine has. Here it runs for `avx512` with a library of its
own, in which the intrinsics are SIMDe's (Debian: libsimde-dev). This tests the source;
the instructions that compilers generate are tested only on a machine that has them, or on an emulated one. Such a
machine has run all of tests/codecs with them: there, the comparison with the scalar reference shows that the emulation
still works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softnic import codecs
from tests import needs

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("native", "softnic", "daemons", "tests", "pyproject.toml", "README.md", "LICENSE")
EMULATED = "tests/codecs/emulated_avx512.h"


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree whose library has AVX-512 kernels on every machine."""
    tree = tmp_path_factory.mktemp("emulated")
    if run("cc", "-fsyntax-only", str(ROOT / EMULATED), cwd=tree).returncode:
        needs.skip("not installed: SIMDe for this compiler (apt-get install libsimde-dev)")
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(source, tree / name)
    # At -O3 compilers take a minute for one kernel whose intrinsics are inlined loops.
    project = tree / "pyproject.toml"
    project.write_text(project.read_text().replace('"-O3"', '"-O1"'))
    setup = "from setuptools import setup; setup()"
    flags = f"""-DSN_EMULATED_AVX512='"{tree / EMULATED}"'"""
    build = run(sys.executable, "-W", "ignore", "-c", setup, "-q", "build_ext", "--inplace", cwd=tree, CFLAGS=flags)
    assert build.returncode == 0, build.stdout + build.stderr
    return tree


@pytest.mark.slow
def test_the_kernels_agree_with_the_format_and_the_reference(built: Path) -> None:
    tested = "tests/codecs/test_simd.py" if "avx512" in codecs.simd_available() else "tests/codecs"
    pytest_arguments = ["-q", "-p", "no:cacheprovider", "-k", "avx512", tested]
    path = os.pathsep.join([str(built), str(built / "daemons")])
    environment = {"PYTHONPATH": path, "SOFTNIC_KERNELS": "avx512", "SOFTNIC_HYPOTHESIS": "brief"}
    done = run(sys.executable, "-m", "pytest", *pytest_arguments, cwd=built, **environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert " passed" in done.stdout
