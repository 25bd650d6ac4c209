"""What torchft lacks or does otherwise than softnic needs it, each with a reason; and the releases that are tested.

1. `ProcessGroupWrapper` forgets its group when that is aborted, and later calls fail with an AssertionError without a
   reason: `ProcessGroupSoftnic` keeps the ended group, whose calls fail with the error that ended it.
2. `ProcessGroupWrapper` lacks some calls of torch.distributed, such as reduce, gather, scatter and recv_anysource:
   `FURTHER_CALLS` are passed to the group as they are.
3. `Backend.register_backend`, which `register` uses, accepts no second process group of one name in a process, and
   `unregister` does not free the name: use another name for each object.
"""

from __future__ import annotations

import re
from importlib import metadata

OLDEST = (0, 2)
"""Earlier releases configure process groups by other arguments."""

FURTHER_CALLS = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather_coalesced",
    "alltoall",
    "gather",
    "recv_anysource",
    "reduce",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "scatter",
    "_allgather_base",
    "_reduce_scatter_base",
)
"""Calls of a process group that ProcessGroupWrapper has not."""


def check_release() -> None:
    """Raise ImportError without torchft, or with a release before `OLDEST`."""
    try:
        version = metadata.version("torchft")
    except metadata.PackageNotFoundError as error:
        raise ImportError("softnic.torchft needs torchft: pip install torchft") from error
    if tuple(int(each) for each in re.findall(r"\d+", version)[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(f"softnic works with torchft {oldest} or later, and this is torchft {version}")
