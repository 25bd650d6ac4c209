"""No block of code in a document is unchecked: it is run, or its commands are parsed, or a comment says why not.

Whole pages are run by tests of their own, and so are complete programs. The lines of Python in guides are run here,
page by page, after the lines that a reader has before them (BEFORE). Commands of softnic are parsed by their parsers. A
block that cannot be run here has `<!-- not run: REASON -->` in the line above it.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from softnic import commands as softnic
from softnicd.config import load as load_configuration
from softnicd.config import parser as daemon_parser
from tests import needs
from tests.documented import Block, blocks, is_run, run_program

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
RUN_WHOLE = {"docs/tutorials", "docs/deployment.md"}
"""By tests/test_tutorials.py and tests/peers/test_deployment.py, except for what is marked."""
NOT_CODE = {"text", "console", "c", "diff"}
"""Output, formulas and a session of two terminals; C and patches are in pages that are run whole."""

COMM = """
import numpy as np
import softnic
from softnic import MPI
comm = MPI.COMM_WORLD
gradient = np.random.default_rng(comm.rank).normal(0, 0.01, 10_000 * comm.size).astype(np.float32)
"""
TORCH = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
"""
GROUP = """
import softnic.torch
dist.init_process_group("softnic")
model = DistributedDataParallel(network)
model(torch.ones(4, 64)).sum().backward()
"""
BEFORE: dict[str, str | list[str] | None] = {
    "README.md": None,  # tests/test_readme.py
    "docs/CONTRIBUTING.md": None,  # tests/cluster/test_nat_lab.py
    "docs/algorithms.md": COMM,
    "docs/capture.md": """
import os, numpy as np
os.symlink(os.environ["SOFTNIC_NIC"], f"node{os.environ['SOFTNIC_RANK']}.sock")
if os.environ["SOFTNIC_RANK"] == "1":
    raise SystemExit
while not os.path.islink("node1.sock"):
    pass
for name in ("sent.npy", "got.npy"):
    np.save(name, np.ones(3, np.float32))
""",
    "docs/codecs.md": COMM + TORCH + GROUP,
    "docs/elastic.md": None,  # tests/torchft/test_example.py: needs a lighthouse
    "docs/checkpoint.md": None,  # tests/checkpoint and tests/torch/test_checkpoint.py: needs several members
    "docs/gpu.md": None,  # needs a GPU
    "docs/gradients.md": COMM + TORCH + "dist.init_process_group('softnic')\n",
    "docs/kernel.md": None,  # tests/tapnic/test_kernels.py
    "docs/memory.md": COMM,
    "docs/model.md": """
import numpy as np
vectors = [np.full(1000, rank, np.float32) for rank in range(8)]
""",
    "docs/mpi.md": COMM,
    "docs/one-machine.md": "",
    "docs/simulation.md": f"import sys; sys.path.insert(0, {str(ROOT)!r})",
    "docs/sockets.md": """
import asyncio, http.client, os, threading, time
import numpy as np
from softnic import socket
gradient = np.ones(1000, np.float32)
if os.environ["SOFTNIC_RANK"] == "1":
    servers = [socket.create_server(("10.77.0.2", port)) for port in (5000, 8000)]
    open("listening", "w").close()
    for server, connections in zip(servers, (1, 2)):
        for _ in range(connections):
            with server.accept()[0] as peer:
                while peer.recv(65536):
                    pass
    raise SystemExit
while not os.path.exists("listening"):
    time.sleep(0.05)
""",
    "docs/torch.md": [
        TORCH,
        "model = DistributedDataParallel(network)",
        "model = DistributedDataParallel(torch.nn.Linear(64, 64))",
        """
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.fc3 = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
    def forward(self, inputs):
        return self.fc3(self.conv1(inputs))
model = DistributedDataParallel(Network())
""",
        """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = torch.nn.Linear(64, 64)
""",
    ],
    "docs/training.md": COMM + """
class Layer:
    def __init__(self): self.gradient = softnic.empty(1000, np.float32)
    def backward(self): self.gradient[:] = 1
    def update(self): assert (self.gradient == comm.size).all()
layers = [Layer(), Layer()]
""",
}  # fmt: skip
"""What a page's lines of Python need before them, or before each block; None: they are programs, tested elsewhere."""
COMPLETE = re.compile(r"# \w+\.py\n")
"""The first line of a complete program of a guide: tests/test_guide.py, tests/gradients, tests/tapnic."""
PROGRAM = """
import ast, asyncio, inspect
waits = eval(compile({source!r}, {page!r}, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
if inspect.iscoroutine(waits):
    asyncio.run(waits)
"""


def found(language: str) -> Iterator[tuple[str, Block]]:
    """Yield the blocks of a language that no test of a whole page runs, with the name of their page."""
    for name, page in zip(NAMES, PAGES, strict=True):
        for block in blocks(page):
            run = name.startswith(tuple(RUN_WHOLE)) and is_run(block)
            if block.language == language and not run:
                yield name, block


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_is_fenced_and_has_a_language_that_is_known(page: Path) -> None:
    text = page.read_text()
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"(?:^|\n\n)    \S.*", outside) == [], "indented blocks have no language"
    assert text.count("\n```") == 2 * len(blocks(page))
    known = {"python", "sh", "toml", *NOT_CODE}
    assert {block.language for block in blocks(page)} <= known


def test_files_of_configuration_load(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    seen = 0
    for name, block in found("toml"):
        file.write_text(block.text)
        assert load_configuration(daemon_parser().parse_args(["--config", str(file)])), name
        seen += 1
    assert seen > 0


def python_lines(name: str) -> list[str]:
    """Return the blocks of Python of a page that belong to no complete program and are not marked."""
    return [
        block.text
        for page, block in found("python")
        if page == name and is_run(block) and not COMPLETE.match(block.text)
    ]


def test_every_page_with_python_is_run() -> None:
    for name, block in found("python"):
        compile(block.text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert {name for name, _ in found("python")} == set(BEFORE)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, before in BEFORE.items() if before is not None])
def test_the_python_of_a_page(name: str, tmp_path: Path) -> None:
    given = BEFORE[name] or ""
    before = [given] if isinstance(given, str) else given
    source = "\n".join(itertools.chain(*itertools.zip_longest(before, python_lines(name), fillvalue="")))
    for module in ("torch", "scapy"):
        if re.search(rf"^(?:import|from) {module}\b", source, re.MULTILINE):
            needs.module(module)
    run_program(tmp_path, "lines.py", PROGRAM.format(source=source, page=name), "-n", "2")


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a block of sh, without comments; a line with a backslash goes on in the next."""
    for line in text.replace("\\\n", " ").splitlines():
        if plain := re.sub(r"\s+#\s.*", "", line).strip():
            yield plain


def commands_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without placeholders and variables that are set for it."""
    words = [word for word in shlex.split(line) if word != "..."]
    for is_end, command in itertools.groupby(words, {"&&", "|"}.__contains__):
        if not is_end:
            yield list(itertools.dropwhile(re.compile(r"[A-Z_]+=").match, command))


def words_of_python(words: list[str]) -> list[str]:
    """Return a command that names no file of an environment: `.venv/bin/python -m pip` is `pip`."""
    first = words[0].rpartition("/")[2]
    if first in {"python", "python3"} and words[1] == "-m":
        return words[2:]
    return [first, *words[1:]]


def is_checked(words: list[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Check a command by what it calls. False: nothing here knows the program."""
    match words_of_python(words):
        case ["softnic", command, *arguments]:
            monkeypatch.setattr(softnic.load(command), "run", lambda _given: 0)
            assert softnic.main([command, *arguments]) == 0, words
            if "--" in arguments and command in {"run", "exec"}:
                inner = arguments[arguments.index("--") + 1 :]
                assert inner[0] != "softnic" or is_checked(inner, monkeypatch)
        case ["softnicd", *arguments]:
            assert isinstance(daemon_parser().parse_args(arguments), argparse.Namespace)
        case ["pip", "install", *arguments]:
            extras = re.findall(r"\[(\w+)\]", " ".join(arguments))
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert set(extras) <= set(project["optional-dependencies"]), words
        case ["venv" | "build" | "tests.fuzz" | "tests.simulation" | "tests.faults.soak" | "benchmarks.strangers", *_]:
            pass  # tests/test_docs.py finds modules
        case [module, *_] if module.startswith("softnic."):
            assert find_spec(module) is not None, words
        case _:
            return False
    return True


@pytest.mark.parametrize("name", sorted({name for name, _ in found("sh")}))
def test_commands_are_checked_or_a_comment_says_why_not(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_elsewhere = {line for text in texts_run_whole() for line in lines_of(text)}
    for page, block in found("sh"):
        if page != name or block.mark.startswith("command: "):
            continue  # .ci/run runs the README's
        for line in set(lines_of(block.text)) - run_elsewhere:
            try:
                known = [is_checked(words, monkeypatch) for words in commands_in(line)]
            except SystemExit:
                raise AssertionError(f"{line}: {capsys.readouterr().err}") from None
            assert all(known) or not is_run(block), line


def texts_run_whole() -> Iterator[str]:
    """Yield the blocks of sh of pages that are run as a whole."""
    for name, page in zip(NAMES, PAGES, strict=True):
        if name.startswith(tuple(RUN_WHOLE)):
            yield from (block.text for block in blocks(page) if block.language == "sh" and is_run(block))
