"""Registration of the backend `softnic` with torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

NAME = "softnic"
VARIABLES = frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
"""Variables that init_process_group reads and torchrun sets."""


def register_backend(create: Callable[[Any, Any], Any], fill: Callable[[MutableMapping[str, str]], None]) -> None:
    """Register the backend. No effect if it is registered or torch was built without torch.distributed.

    Parameters
    ----------
    create
        Creates a process group from torch's options.
    fill
        Adds missing ones of `VARIABLES` to the environment.
    """
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
        _extend_env_handler(fill)


def _extend_env_handler(fill: Callable[[MutableMapping[str, str]], None]) -> None:
    """Let env://, the default init_method, call `fill` if its variables are not all set."""
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers

    torch_handler = handlers["env"]

    def env(url: str, **options: Any) -> Iterator[Any]:
        if not os.environ.keys() >= VARIABLES:
            fill(os.environ)
        found: Iterator[Any] = torch_handler(url, **options)
        return found

    handlers["env"] = env
