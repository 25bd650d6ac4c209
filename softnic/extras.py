"""Optional packages: the command that installs one that is not there.

softnic is in no package index, so the command names the packages themselves, not an extra of softnic. It is right for
every way in which softnic was installed.
"""

from __future__ import annotations

import shlex
import sys

PACKAGES = {
    "blosc2": "blosc2>=2.5",
    "cramjam": "cramjam>=2.8",
    "matplotlib": "matplotlib>=3.8",
    "pysz": "pysz>=1",
    "ray": "ray[train]>=2.40",
    "sklearn": "scikit-learn>=1.4",
    "torch": "torch>=2.4",
    "zfpy": "zfpy>=1",
    "zstandard": "zstandard>=0.22",
}
"""Optional modules, and their requirements as in pyproject.toml."""


def not_installed(*modules: str) -> str:
    """One line for modules of `PACKAGES` that cannot be imported, with the command that installs them."""
    what = "modules" if len(modules) > 1 else "module"
    verb = "are" if len(modules) > 1 else "is"
    return f"the {what} {', '.join(modules)} {verb} not installed: {install_command(*modules)}"


def install_command(*modules: str) -> str:
    """What installs these modules for the interpreter that runs this."""
    return shlex.join([sys.executable, "-m", "pip", "install", *(PACKAGES[module] for module in modules)])
