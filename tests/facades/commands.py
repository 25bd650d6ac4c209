"""The parts of the `softnic` command."""

from __future__ import annotations

from softnic import commands, extras, units
from softnic.commands import COMMANDS, CommandError, main
from softnic.commands.capture import Side, recording
from softnic.commands.ranks import Ranks
from softnic.experiments.demo import RunReport, print_report

__all__ = [
    "COMMANDS",
    "CommandError",
    "Ranks",
    "RunReport",
    "Side",
    "commands",
    "extras",
    "main",
    "print_report",
    "recording",
    "units",
]
