"""Keeps the Work by which a model in a Join context tells the others that it has inputs.

DistributedDataParallel hands that Work to its reducer, in C++, and drops it. The reducer asks it later how many ranks
had inputs, for `divide_by_initial_world_size=False`. A Work that is implemented in Python must exist until then: C++
alone has only torch's Work without an implementation, whose `wait` never ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch.distributed.algorithms.join import Join, Joinable

from softnic.torch.work import SoftnicWork

_works: WeakKeyDictionary[Joinable, SoftnicWork] = WeakKeyDictionary()
"""The last Work of each Joinable."""


def _keeping(notify: Callable[[Joinable], Any]) -> Callable[[Joinable], Any]:
    @functools.wraps(notify)
    def notify_join_context(joinable: Joinable) -> Any:
        work = notify(joinable)
        if isinstance(work, SoftnicWork):
            _works[joinable] = work
        return work

    return notify_join_context


def keep_works() -> None:
    """Extend torch's `Join.notify_join_context`. Importing softnic.torch does it."""
    setattr(Join, "notify_join_context", staticmethod(_keeping(Join.notify_join_context)))  # noqa: B010
