"""Registers the backend `softnic` when torch is imported, through the entry point `torch.backends`.

`init_process_group("softnic")` thus works in applications that do not import softnic, such as Ray Train's workers. This
module must be quick and must not import softnic.torch, which imports torch; the first process group does that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

NAME = "softnic"
VARIABLES = frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
"""Variables that init_process_group reads and torchrun sets."""


def register() -> None:
    """Register the backend with torch.distributed. No effect if it is registered or torch was built without it."""
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        _fill_in_for_launchers()


def _create(options: Any, backend_options: Any) -> Any:
    """Create a process group for torch."""
    from softnic.torch import create

    return create(options, backend_options)


def _fill_in_for_launchers() -> None:
    """Let env://, the default init_method, read the variables of other launchers than torchrun
    (softnic/torch/launch.py) if its own are not all set."""
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers

    torch_handler = handlers["env"]

    def env(url: str, **options: Any) -> Iterator[Any]:
        if not os.environ.keys() >= VARIABLES:
            from softnic.torch.launch import fill

            fill(os.environ)
        found: Iterator[Any] = torch_handler(url, **options)
        return found

    handlers["env"] = env
