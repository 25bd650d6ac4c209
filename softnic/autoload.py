"""What `import torch` runs where softnic is installed (the entry point `torch.backends`), so that
`init_process_group("softnic")` works in programs that do not know softnic, Ray Train's workers for one.

It has to be quick and must not import softnic.torch, which imports torch: all that is left for the first group.
"""

from __future__ import annotations

from typing import Any

NAME = "softnic"


def register() -> None:
    """Makes the backend known to torch.distributed. Of no effect where it is already, or torch has no such package."""
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> Any:
    """A process group, as torch asks for it."""
    from softnic.torch import create

    return create(options, backend_options)
