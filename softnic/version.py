"""The version of this installation."""

from __future__ import annotations


def version() -> str:
    """Return the version of softnic; "unknown": it runs from its source tree and is not installed."""
    from importlib import metadata  # it and what it imports take a tenth of a NIC's start

    try:
        return metadata.version("softnic")
    except metadata.PackageNotFoundError:
        return "unknown"
