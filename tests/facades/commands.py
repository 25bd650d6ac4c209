"""The parts of the `softnic` command."""

from __future__ import annotations

from softnic import commands, extras, units
from softnic.cluster.abort_record import read_abort, record_abort
from softnic.commands import COMMANDS, CommandError, extcap, load, main
from softnic.commands.capture import Side, recording
from softnic.commands.ranks import Ranks
from softnic.commands.snapshots import NicReport
from softnic.commands.waits import collective_lines

__all__ = [
    "COMMANDS",
    "CommandError",
    "NicReport",
    "Ranks",
    "Side",
    "collective_lines",
    "commands",
    "extcap",
    "extras",
    "load",
    "main",
    "read_abort",
    "record_abort",
    "recording",
    "units",
]
