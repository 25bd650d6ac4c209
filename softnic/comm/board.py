"""What ranks write for each other into a store while they look for each other: small JSON objects, one key each.

Where a rank fails, it writes its error instead, so that who waits for it learns why at once.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from softnic.comm.errors import CommError
from softnic.comm.store import Store


class Board:
    """The keys of one meeting. All below `softnic/<name>/`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"softnic/{name}"

    def write(self, key: str, value: dict[str, Any]) -> None:
        """Raises CommError."""
        try:
            self._store.set(f"{self._prefix}/{key}", json.dumps(value))
        except Exception as error:  # each store has errors of its own
            raise CommError(f"the store does not take {key}: {error}") from error

    def fail(self, key: str, error: BaseException) -> None:
        """Tells why there will be nothing at a key; as well as one can."""
        with suppress(CommError):
            self.write(key, {"error": str(error)})

    def read(self, key: str, rank: int) -> dict[str, Any]:
        """What `rank` writes at a key, once it has. Raises CommError with that rank."""
        try:
            value = json.loads(bytes(self._store.get(f"{self._prefix}/{key}")))
            if not isinstance(value, dict):
                raise ValueError(f"{key} is no object")
        except Exception as error:
            raise CommError(f"the store does not tell where rank {rank} is: {error}", rank=rank) from error
        if "error" in value:
            raise CommError(f"rank {rank} says: {value['error']}", rank=rank)
        return value
