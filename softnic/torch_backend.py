"""Registration of the backend `softnic` with torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from softnic.torch_private import RendezvousHandler, keep_own_flight_record, wrap_env_handler

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
        keep_own_flight_record(NAME)
        wrap_env_handler(lambda handler: _filling(handler, fill))


def _filling(handler: RendezvousHandler, fill: Callable[[MutableMapping[str, str]], None]) -> RendezvousHandler:
    """Return the handler of env:// with a call of `fill` before it, if not all its variables are set."""

    def env(url: str, **options: Any) -> Iterator[Any]:
        if not os.environ.keys() >= VARIABLES:
            fill(os.environ)
        return handler(url, **options)

    return env
