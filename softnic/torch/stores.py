"""The stores by which ranks of an epoch meet: prefixes of one connection to a TCPStore of torch."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_dist: Any = dist
"""torch's stubs leave its stores out."""


class EpochStores:
    """Opens the store of each epoch.

    A new connection for each would take longer than all the rest of an epoch's start: some of torch's take 5 s.
    """

    def __init__(self) -> None:
        self._address = ""
        self._store: Any = None

    def open(self, address: str, timeout: timedelta, *, is_there: bool = False) -> Any:
        """Return the store at HOST:PORT/PREFIX.

        Parameters
        ----------
        address
            Of the store.
        timeout
            Of this call, and of later ones of the store.
        is_there
            It has been there a moment ago, so if nobody listens, its process has died; else it may begin soon.

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
            if is_there and _is_refused(host.strip("[]"), int(port), timeout):
                raise dist.DistNetworkError(f"nobody listens at {place} any more")
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


def _is_refused(host: str, port: int, timeout: timedelta) -> bool:
    try:
        with socket.create_connection((host, port), timeout.total_seconds()):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:  # TCPStore says what is wrong
        return False
