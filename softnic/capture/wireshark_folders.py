"""Puts softnic into Wireshark's personal folders: an extcap program, and a link to the dissector.

Where these are depends on Wireshark's version, so it is asked. Since 4.2 the folder of personal extcap programs is
beside that of plugins; before, it was in the configuration folder.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DISSECTOR = Path(__file__).with_name("softnic.lua")
_PROGRAM = "softnic"
_MARK = "# Written by softnic extcap --install."
_ASK_S = 30.0


@dataclass(frozen=True)
class WiresharkFolders:
    """The personal folders of one user."""

    extcap: tuple[Path, ...]
    """All that a version may read, where the version is unknown."""
    plugins: Path
    """Of Lua plugins."""


def wireshark_folders() -> WiresharkFolders:
    """Return the folders according to tshark or Wireshark, or those of all its versions if neither is installed."""
    for program in filter(None, map(shutil.which, ("tshark", "wireshark"))):
        with suppress(OSError, subprocess.SubprocessError):
            command = [program, "-G", "folders"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ASK_S)
            if folders := reported_folders(done.stdout):
                return folders
    own = Path("~/.local/lib/wireshark").expanduser()
    configuration = os.environ.get("WIRESHARK_CONFIG_DIR")
    if not configuration:
        configuration = f"{os.environ.get('XDG_CONFIG_HOME') or Path('~/.config').expanduser()}/wireshark"
    return WiresharkFolders((own / "extcap", Path(configuration, "extcap")), own / "plugins")


def reported_folders(text: str) -> WiresharkFolders | None:
    """Return the folders that the output of `tshark -G folders` names; None if it lacks them."""
    named = dict(re.findall(r"^([^:\n]+):[ \t]+(\S.*)$", text, re.MULTILINE))
    plugins = named.get("Personal Lua Plugins") or named.get("Personal Plugins")
    extcap = named.get("Personal Extcap path")
    if extcap is None and "Personal configuration" in named:
        extcap = f"{named['Personal configuration']}/extcap"
    return WiresharkFolders((Path(extcap),), Path(plugins)) if plugins and extcap else None


def install(folders: WiresharkFolders) -> list[Path]:
    """Write the extcap programs and link the dissector; replaces those of an earlier call. Returns their paths.

    Raises
    ------
    OSError
        EEXIST if a file of that name is not from here; then nothing is changed.
    """
    programs = [folder / _PROGRAM for folder in folders.extcap]
    link = folders.plugins / DISSECTOR.name
    for path, ours in [*((one, _is_our_program) for one in programs), (link, _is_our_link)]:
        if os.path.lexists(path) and not ours(path):
            raise OSError(errno.EEXIST, "softnic did not write this file: move it away and try again", str(path))
    text = f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(sys.executable)} -P -m softnic extcap "$@"\n'
    for program in programs:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.unlink(missing_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(DISSECTOR)
    return [*programs, link]


def uninstall(folders: WiresharkFolders) -> list[Path]:
    """Remove what `install` wrote, and nothing else. Returns the paths removed. Raises OSError."""
    removed = list(_installed(folders))
    for path in removed:
        path.unlink()
    return removed


def _installed(folders: WiresharkFolders) -> Iterator[Path]:
    yield from (folder / _PROGRAM for folder in folders.extcap if _is_our_program(folder / _PROGRAM))
    if _is_our_link(folders.plugins / DISSECTOR.name):
        yield folders.plugins / DISSECTOR.name


def _is_our_program(path: Path) -> bool:
    return path.is_file() and _MARK.encode() in path.read_bytes()[:1000].splitlines()


def _is_our_link(path: Path) -> bool:
    """Return whether a path is a link to a dissector of softnic, perhaps of an installation that is gone."""
    return path.is_symlink() and path.readlink().parts[-3:] == DISSECTOR.parts[-3:]
