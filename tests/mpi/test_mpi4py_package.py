"""`import mpi4py` finds softnic's package, and behind it the modules of an installed mpi4py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

IMPORT = (
    "import mpi4py, mpi4py.MPI; from mpi4py import MPI; import softnic.MPI; assert MPI is mpi4py.MPI is softnic.MPI\n"
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with a package that is named and shaped like the installed mpi4py."""
    package = tmp_path / "site" / "mpi4py"
    (package / "include").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text("raise ImportError('the MPI library is not there')")
    (package / "futures.py").write_text("from . import MPI, rc\nfrom .MPI import Comm\n")
    (package.parent / "mpi4py-4.0.9.dist-info").mkdir()
    (package.parent / "mpi4py-4.0.9.dist-info" / "METADATA").write_text("Name: mpi4py\nVersion: 4.0.9\n")
    return package


def python(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in (path, str(Path.cwd())) if place)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def output(*arguments: str, path: str = "") -> str:
    done = python(*arguments, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_module_is_softnic_mpi_however_it_is_asked_for() -> None:
    output("-m", "softnic.mpi4py", "-c", IMPORT)
    output("-c", f"import softnic.mpi4py; softnic.mpi4py.install(); softnic.mpi4py.install()\n{IMPORT}")


def test_processes_that_a_program_starts_find_it_too() -> None:
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {IMPORT!r}], check=True)"
    output("-c", f"import softnic.mpi4py; softnic.mpi4py.install(); {start}")


def test_other_modules_are_those_of_the_installed_package(installed: Path) -> None:
    program = f"{IMPORT}import mpi4py.futures; assert mpi4py.futures.MPI is MPI and mpi4py.futures.rc is mpi4py.rc\n"
    shown = output(
        "-m",
        "softnic.mpi4py",
        "-c",
        f"{program}print(mpi4py.__version__, mpi4py.get_include())",
        path=str(installed.parent),
    )
    assert shown.split() == ["4.0.9", str(installed / "include")]


def test_a_package_without_metadata_is_used_as_an_installed_one(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is not built')")
    (package / "futures.py").write_text("from .MPI import Comm\n")
    program = f"{IMPORT}import mpi4py.futures; print(mpi4py.__version__, mpi4py.futures.__file__)"
    shown = output("-m", "softnic.mpi4py", "-c", program, path=str(package.parent))
    assert shown.split() == ["4.1.2", str(package / "futures.py")]


def test_without_an_installed_package_there_is_the_module_mpi_alone() -> None:
    only_softnic = "import importlib.util, mpi4py; mpi4py.__path__ = mpi4py.__path__[:1]"
    program = f"{only_softnic}; print(importlib.util.find_spec('mpi4py.futures'))"
    assert output("-m", "softnic.mpi4py", "-c", program) == "None\n"


def test_it_cannot_replace_a_package_that_is_imported(installed: Path) -> None:
    done = python("-c", "import mpi4py, softnic.mpi4py; softnic.mpi4py.install()", path=str(installed.parent))
    assert "call softnic.mpi4py.install() before `import mpi4py`" in done.stderr


OPTIONS = """
import mpi4py, pickle
mpi4py.rc.threads = False
mpi4py.rc(irecv_bufsz=1 << 20, errors="fatal")
assert (mpi4py.rc.threads, mpi4py.rc.irecv_bufsz, mpi4py.rc.recv_mprobe) == (False, 1 << 20, True)
for wrong in (lambda: mpi4py.rc(irecv_bufsz=1, treads=False), lambda: setattr(mpi4py.rc, "treads", False)):
    try:
        wrong()
    except TypeError as error:
        assert "treads" in str(error)
    else:
        raise AssertionError
assert mpi4py.rc.irecv_bufsz == 1 << 20
import mpi4py.rc
from mpi4py import rc
assert rc is mpi4py.rc
"""


def test_options_of_rc() -> None:
    output("-m", "softnic.mpi4py", "-c", OPTIONS)


PROFILERS = """
import mpi4py, warnings
try:
    mpi4py.profile("nothing", path="/nowhere:/neither")
except ValueError as error:
    assert "nothing" in str(error)
else:
    raise AssertionError
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    mpi4py.profile("hosts", path=["/etc"])
assert "is not loaded" in str(said[0].message)
"""


def test_profilers_of_c_libraries_are_not_loaded() -> None:
    output("-m", "softnic.mpi4py", "-c", PROFILERS)


BEGINNING = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
assert not MPI.Is_initialized() and not MPI.Is_finalized()
MPI.Init()
assert MPI.Is_initialized() and not MPI.Is_finalized()
MPI.Finalize()
assert MPI.Is_initialized() and MPI.Is_finalized()
"""


def test_a_program_may_initialize_itself() -> None:
    output("-m", "softnic.mpi4py", "-c", BEGINNING)


ERRORS = """
import mpi4py, os
assert mpi4py.rc.errors == "exception"
os.environ["MPI4PY_RC_ERRORS"] = "FATAL"
os.environ["MPI4PY_RC_THREADS"] = "no"
from mpi4py import MPI
assert (mpi4py.rc.errors, mpi4py.rc.threads) == ("fatal", False)
assert MPI.COMM_WORLD.Get_errhandler() == MPI.ERRORS_ARE_FATAL == MPI.COMM_SELF.Get_errhandler()
"""


def test_the_environment_is_stronger_than_options() -> None:
    output("-m", "softnic.mpi4py", "-c", ERRORS)


def test_options_that_mean_nothing_are_warned_of() -> None:
    program = "import mpi4py; mpi4py.rc(thread_level='some', irecv_bufsz=-1); from mpi4py import MPI"
    done = python("-m", "softnic.mpi4py", "-c", program)
    assert "mpi4py.rc.thread_level: unexpected value 'some'" in done.stderr
    assert "mpi4py.rc.irecv_bufsz: unexpected value -1" in done.stderr
    assert done.returncode == 0
