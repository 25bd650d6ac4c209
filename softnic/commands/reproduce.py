"""`softnic reproduce`: the papers' tables and figures, made on this machine, beside the published figures.

The command is `benchmarks/papers/command.py`, which a checkout has and an installed package has not.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import cast

from softnic.commands import Command, CommandError
from softnic.measure.kept import checkout

NAME = "reproduce"
HELP = "reproduce the papers' tables and figures and compare them with the published ones"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _papers().add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return _papers().run(args)


def _papers() -> Command:
    """Import the command from the checkout that softnic runs from. Raises CommandError if there is none."""
    root = checkout()
    if root is None:
        raise CommandError(
            "the reproductions of the papers are not installed with softnic: clone its repository, and there "
            "pip install -e '.[reproduce]'"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return cast(Command, importlib.import_module("benchmarks.papers.command"))
