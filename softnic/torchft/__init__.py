"""torchft over softnic: a process group that survives the loss of ranks.

    from softnic.torchft import ProcessGroupSoftnic
    manager = torchft.Manager(pg=ProcessGroupSoftnic(), ...)

Reading order: releases, membership, process_group, outer, workarounds.
"""

from __future__ import annotations

from softnic.torchft.releases import check_release

check_release()

from softnic.torch.checkpoint import SoftnicTransport
from softnic.torch.members import serve_from_all
from softnic.torchft.outer import DiLoCo
from softnic.torchft.process_group import ProcessGroupSoftnic
from softnic.torchft.workarounds import DistributedDataParallel

__all__ = ["DiLoCo", "DistributedDataParallel", "ProcessGroupSoftnic", "SoftnicTransport", "serve_from_all"]
