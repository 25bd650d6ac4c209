"""Fixtures and hooks of all tests, which must not depend on the speed of the machine."""

import atexit
import gc
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import needs

settings.register_profile("softnic", deadline=None, max_examples=50)
settings.register_profile("brief", deadline=None, max_examples=15)
"""For runs of tests over again, with sanitizers or an emulated processor, that are many times as slow."""
settings.load_profile(os.environ.get("SOFTNIC_HYPOTHESIS", "softnic"))

many = MANY_DESCRIPTORS = 400
softly, most = resource.getrlimit(resource.RLIMIT_NOFILE)
if softly < (wanted := min(most, 4096)):  # nine ranks in one process have more than the 1,024 of most systems
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell started the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup did; programs that tests start would inherit it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
for name in ("COLUMNS", "LINES"):  # readline sets them in a process whose children are the workers of xdist
    os.environ.pop(name, None)
if len(tempfile.gettempdir()) > 20:  # the path of a Unix socket in `tmp_path` must fit into 107 bytes
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/tmp")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each process that imports numpy starts threads that spin a while
if "TORCH_FR_DUMP_TEMP_FILE" not in os.environ:  # process groups that fail write their last calls there
    calls = tempfile.mkdtemp(prefix="calls-")
    atexit.register(shutil.rmtree, calls, ignore_errors=True)
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{calls}/rank_"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """With `-n`, workers begin far from each other and take from each other's end: what tests of a file share (NICs, a
    training) is then made by one worker, not by each."""
    if config.getoption("numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest test first, so that no worker is still running it when the others have finished."""
    items.sort(key=lambda item: "test_emulated_avx512" not in item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.check(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close descriptors that tests have left in cycles, before a process has as many as it may have."""
    global many
    if _descriptors() > many:
        gc.collect()
        many = max(MANY_DESCRIPTORS, _descriptors() + MANY_DESCRIPTORS // 4)  # those that stay are not looked for again


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    """Use one torch thread, for tests with small computations whose ranks are threads."""
    torch = needs.module("torch")

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def one_blas_thread() -> Iterator[None]:
    """Use one BLAS thread per rank; with more, ranks would wait for each other's."""
    with needs.module("threadpoolctl").threadpool_limits(limits=1):
        yield
