"""The stores by which ranks of an epoch meet: prefixes of one connection to a TCPStore of torch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

_dist: Any = dist
"""torch's stubs leave its stores out."""


class EpochStores:
    """Opens the store of each epoch.

    A new connection for each would take longer than all the rest of an epoch's start: some of torch's take 5 s,
    above all where another connection has ended before it said anything. So nothing else may try whether the store's
    port is open.
    """

    def __init__(self) -> None:
        self._address = ""
        self._store: Any = None

    def open(self, address: str, timeout: timedelta) -> Any:
        """Return the store at HOST:PORT/PREFIX.

        Raises
        ------
        DistNetworkError
            If it does not answer within the timeout.
        ValueError
            If the address has another form.
        """
        place, slash, prefix = address.partition("/")
        host, colon, port = place.rpartition(":")
        if not (slash and colon and port.isdecimal()):
            raise ValueError(f"{address!r} is not HOST:PORT/PREFIX")
        if self._store is None or self._address != place or not self._answers(self._store, timeout):
            self._store = _dist.TCPStore(
                host.strip("[]"), int(port), is_master=False, wait_for_workers=False, timeout=timeout
            )
            self._address = place
        self._store.set_timeout(timeout)
        return _dist.PrefixStore(prefix, self._store)

    @staticmethod
    def _answers(store: Any, timeout: timedelta) -> bool:
        store.set_timeout(timeout)
        try:
            store.check(["softnic"])
        except (RuntimeError, OSError):  # another store may have its port by now
            return False
        return True
