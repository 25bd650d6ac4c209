"""`--out DIR`: where a command leaves its tables and charts as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from softnic.commands import CommandError
from softnic.extras import not_installed


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"{what}; made if it is not there")
    parser.add_argument("--no-png", action="store_true", help="write CSV only")


def open_out(args: argparse.Namespace) -> bool:
    """Makes the directory, if one was named. Returns whether charts are to be drawn. Raises CommandError now where
    that could not be done in the end, OSError for the directory."""
    pictures = args.out is not None and not args.no_png
    if pictures:
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise CommandError(f"{not_installed('matplotlib')} (or say --no-png)") from None
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    return pictures
