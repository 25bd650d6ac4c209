"""`--out DIR`: the directory for a command's tables and charts."""

from __future__ import annotations

import argparse
from pathlib import Path

from softnic.commands import CommandError
from softnic.extras import not_installed


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"{what}; created if missing")
    parser.add_argument("--no-png", action="store_true", help="write CSV only")


def open_out(args: argparse.Namespace) -> bool:
    """Creates the directory, if one is given. Returns whether to draw charts.

    Raises CommandError if charts cannot be drawn, before any work is done, and OSError for the directory.
    """
    charts = args.out is not None and not args.no_png
    if charts:
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise CommandError(f"{not_installed('matplotlib')} (or pass --no-png)") from None
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    return charts
