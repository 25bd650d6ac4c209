"""Replicas of torchft in threads of this process: a lighthouse, and a Manager over ProcessGroupSoftnic for each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torchft import Manager
from torchft.coordination import LighthouseServer

from softnic.torchft import ProcessGroupSoftnic

T = TypeVar("T")
LIMIT = timedelta(seconds=30)
LIMIT_S = 120.0


class Replica:
    """A model, and the manager that it is trained with."""

    def __init__(self, number: int, lighthouse: str, model: torch.nn.Module, group: Any) -> None:
        stores: Any = dist  # torch's stubs leave its stores out
        self.number = number
        self.model = model
        self.group = group or ProcessGroupSoftnic(LIMIT)
        self._store = stores.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=self.group,
            min_replica_size=1,
            use_async_quorum=False,
            init_sync=False,  # all begin with the same weights
            load_state_dict=model.load_state_dict,
            state_dict=model.state_dict,
            replica_id=f"replica{number}",
            rank=0,
            world_size=1,
            store_addr="127.0.0.1",
            store_port=self._store.port,
            lighthouse_addr=lighthouse,
            timeout=LIMIT,
            quorum_timeout=LIMIT,
        )

    def close(self) -> None:
        self.manager.shutdown(wait=False)
        self.group.shutdown()


class Replicas:
    """A lighthouse whose quorums have at least this number of replicas, which run in threads."""

    def __init__(self, least: int) -> None:
        self._server: Any = LighthouseServer(
            bind="0.0.0.0:0", min_replicas=least, join_timeout_ms=200, heartbeat_timeout_ms=1500
        )
        self._threads = ThreadPoolExecutor(8)

    def start(
        self, number: int, model: Callable[[], torch.nn.Module], body: Callable[[Replica], T], group: Any = None
    ) -> Future[T]:
        """Run a function on a new replica, which then ends. `group` is its process group, if not softnic's."""

        def run() -> T:
            port = self._server.address().rpartition(":")[2]
            replica = Replica(number, f"http://127.0.0.1:{port}", model(), group)
            try:
                return body(replica)
            finally:
                replica.close()

        return self._threads.submit(run)

    def __enter__(self) -> Replicas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._threads.shutdown(wait=False)
