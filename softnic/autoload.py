"""Registers the backend `softnic` when torch is imported, through the entry point `torch.backends`.

`init_process_group("softnic")` thus works in applications that do not import softnic, such as Ray Train's workers. This
module must be quick and must not import softnic.torch, which imports torch; the first process group does that.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from softnic.torch_backend import register_backend


def register() -> None:
    """Register the backend with torch.distributed."""
    register_backend(_create, _fill)


def _create(options: Any, backend_options: Any) -> Any:
    from softnic.torch import create

    return create(options, backend_options)


def _fill(environment: MutableMapping[str, str]) -> None:
    from softnic.torch.launch import fill

    fill(environment)
