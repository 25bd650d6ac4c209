"""`--nic PATH`: the NICs that a command reads."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from softnic.cluster.nic_process import running_nics
from softnic.commands import CommandError

NO_NIC = "no NIC runs here: name one with --nic PATH or SOFTNIC_NIC, or start some with softnic run"


def add_nic(parser: argparse.ArgumentParser) -> None:
    """Adds --nic, for `named_nics` and `chosen_nics`."""
    text = "a NIC's control socket; may be repeated (SOFTNIC_NIC, or all that are found)"
    parser.add_argument("--nic", metavar="PATH", action="append", help=text)


def named_nics(given: Sequence[str] | None) -> list[str]:
    """Returns the control sockets given, or the one in SOFTNIC_NIC."""
    return list(given or filter(None, [os.environ.get("SOFTNIC_NIC")]))


def chosen_nics(given: Sequence[str] | None) -> list[str]:
    """Returns the named control sockets, or those of all clusters of this user. Raises CommandError without any."""
    paths = named_nics(given) or [str(path) for path in running_nics()]
    if not paths:
        raise CommandError(NO_NIC)
    return paths
