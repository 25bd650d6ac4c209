"""What `import torch` runs where softnic is installed (the entry point `torch.backends`), so that
`init_process_group("softnic")` works in programs that do not know softnic, Ray Train's workers for one.

It has to be quick and must not import softnic.torch, which imports torch: all that is left for the first group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

NAME = "softnic"
VARIABLES = frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
"""What init_process_group reads, and torchrun sets."""


def register() -> None:
    """Makes the backend known to torch.distributed. Of no effect where it is already, or torch has no such package."""
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        _fill_in_for_launchers()


def _create(options: Any, backend_options: Any) -> Any:
    """A process group, as torch asks for it."""
    from softnic.torch import create

    return create(options, backend_options)


def _fill_in_for_launchers() -> None:
    """Has env://, the default way to find the ranks, look at what others than torchrun set (softnic/torch/launch.py),
    where its own variables are not all there."""
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers

    torchs = handlers["env"]

    def env(url: str, **options: Any) -> Iterator[Any]:
        if not os.environ.keys() >= VARIABLES:
            from softnic.torch.launch import fill

            fill(os.environ)
        found: Iterator[Any] = torchs(url, **options)
        return found

    handlers["env"] = env
