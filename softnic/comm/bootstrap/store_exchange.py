"""What ranks write for each other into a store while they look for each other: small JSON objects, one key each.

Where a rank fails, it writes its error instead, so that who waits for it learns why at once.

A store that outlives an attempt (torchrun's does, when it starts ranks again) still has what earlier ranks wrote. So a
meeting gets a name that nobody has used: rank 0 chooses it, and tells it to each rank under a key that this rank chose
(`begin`). This takes a store that says whether a key is set, as torch's do; of any other, keys are taken to be new.
"""

from __future__ import annotations

import errno
import json
import secrets
import time
from contextlib import suppress
from typing import Any

from softnic.comm.bootstrap.store import Client, Store, StoreError
from softnic.comm.errors import CommError

_LOOK_S = 0.01


class StoreExchange:
    """The keys of one meeting. All below `softnic/<name>/`. Everything here raises CommError."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"softnic/{name}"

    def begin(self, rank: int, size: int, timeout_s: float) -> None:
        """All ranks call this first. Rank 0 waits `timeout_s` at most, others as long as their store lets them."""
        check = getattr(self._store, "check", None)
        if check is None:
            return
        if rank:
            own = secrets.token_hex(8)
            self.write(f"hello/{rank}", {"as": own})
            self._prefix = f"softnic/{self.read(f'go/{own}', 0)['meeting']}"
            self.write(f"present/{rank}", {})
        else:
            meeting = secrets.token_hex(8)
            self._gather(check, f"softnic/{meeting}", meeting, size, time.monotonic() + timeout_s)
            self._prefix = f"softnic/{meeting}"

    def _gather(self, check: Any, prefix: str, meeting: str, size: int, deadline: float) -> None:
        """Tells every rank the meeting's name, until it says that it is there: what stands under its hello may be an
        earlier one's."""
        greeted: dict[int, str] = {}
        missing = list(range(1, size))
        while missing:
            for rank in missing:
                if check([f"{self._prefix}/hello/{rank}"]):
                    name = self.read(f"hello/{rank}", rank)["as"]
                    if greeted.get(rank) != name:
                        greeted[rank] = name
                        self.write(f"go/{name}", {"meeting": meeting})
            missing = [rank for rank in missing if not check([f"{prefix}/present/{rank}"])]
            if missing and time.monotonic() > deadline:
                raise CommError(f"rank {missing[0]} has not come in time", rank=missing[0])
            if missing:
                time.sleep(_LOOK_S)

    def write(self, key: str, value: dict[str, Any]) -> None:
        try:
            self._store.set(f"{self._prefix}/{key}", json.dumps(value))
        except Exception as error:  # each store has errors of its own
            raise CommError(f"the store does not take {key}: {error}") from error

    def fail(self, key: str, error: BaseException) -> None:
        """Tells why there will be nothing at a key; as well as one can."""
        with suppress(CommError):
            self.write(key, {"error": str(error)})

    def read(self, key: str, rank: int) -> dict[str, Any]:
        """What `rank` writes at a key, once it has. The error has that rank."""
        try:
            value = json.loads(bytes(self._get(f"{self._prefix}/{key}", rank)))
            if not isinstance(value, dict):
                raise ValueError(f"{key} is no object")
        except Exception as error:
            if isinstance(error, StoreError) and error.errno == errno.ESRCH:
                raise CommError(error.strerror or str(error), rank=rank) from error
            raise CommError(
                f"the store does not tell where rank {rank} is: {error}; has it started, with the same settings?",
                rank=rank,
            ) from error
        if "error" in value:
            raise CommError(f"rank {rank} says: {value['error']}", rank=rank)
        return value

    def _get(self, key: str, rank: int) -> bytes:
        """A store of our own waits as long as the rank may still join."""
        if isinstance(self._store, Client):
            return self._store.get(key, rank)
        return self._store.get(key)
