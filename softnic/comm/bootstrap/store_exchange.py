"""Small JSON objects that ranks exchange through a store while they discover each other: one key for each.

A rank that fails writes its error in place of the object, so that ranks that wait for it learn the reason at once.

A store that outlives an attempt (torchrun's, when it restarts ranks) still has the keys of earlier attempts. `begin`
therefore agrees on a fresh prefix: rank 0 chooses it, and writes it for each rank under a key that this rank chose.
This needs the `check` method of torch's stores; without it, keys are assumed to be new.

With a secret of the job, each value is signed together with its key: what others write into a store that anybody
reaches, as torch's, is an error in place of an address.
"""

from __future__ import annotations

import errno
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from softnic.comm.bootstrap.launch import SECRET_VARIABLE
from softnic.comm.bootstrap.store import Store, StoreClient, StoreError
from softnic.comm.errors import CommError
from softnic.terminal import printable

_POLL_S = 0.01
_SIGNATURE_DIGITS = 64
"""In front of a signed value, and a space."""


class StoreExchange:
    """The keys of one attempt to connect, all below `softnic/<name>/`. The methods raise CommError."""

    def __init__(self, store: Store, name: str, secret: bytes = b"") -> None:
        self._store = store
        self._secret = secret
        self._prefix = f"softnic/{name}"
        self.epoch = ""
        """The random name of this attempt, after `begin`; empty where the store has no `check`."""

    def begin(self, rank: int, size: int, timeout_s: float) -> None:
        """Agree on a fresh prefix. All ranks call this first; rank 0 waits `timeout_s` at most."""
        check = getattr(self._store, "check", None)
        if check is None:
            return
        own = secrets.token_hex(8)
        if rank:
            self.write(f"hello/{rank}", {"as": own})
            self.epoch = self.read(f"go/{own}", 0, {"meeting": str})["meeting"]
            self._prefix = f"softnic/{self.epoch}"
            self.write(f"present/{rank}", {})
        else:
            self._publish_prefix(check, own, size, time.monotonic() + timeout_s)
            self.epoch = own
            self._prefix = f"softnic/{own}"

    def _publish_prefix(self, check: Any, prefix: str, size: int, deadline: float) -> None:
        """Answer the hello of each rank until all are present: a hello may be one of an earlier attempt."""
        answered: dict[int, str] = {}
        missing = list(range(1, size))
        while missing:
            for rank in missing:
                if check([f"{self._prefix}/hello/{rank}"]):
                    name = self.read(f"hello/{rank}", rank, {"as": str})["as"]
                    if answered.get(rank) != name:
                        answered[rank] = name
                        self.write(f"go/{name}", {"meeting": prefix})
            missing = [rank for rank in missing if not check([f"softnic/{prefix}/present/{rank}"])]
            if missing and time.monotonic() > deadline:
                raise CommError(f"rank {missing[0]} has not joined in time", rank=missing[0])
            if missing:
                time.sleep(_POLL_S)

    def write(self, key: str, value: dict[str, Any]) -> None:
        """Set a key."""
        try:
            path, text = f"{self._prefix}/{key}", json.dumps(value)
            self._store.set(path, f"{self._signature(path, text)} {text}" if self._secret else text)
        except Exception as error:  # each store has errors of its own
            raise CommError(f"the store refuses {key}: {error}") from error

    def fail(self, key: str, error: BaseException) -> None:
        """Write an error in place of the object, if the store still works."""
        with suppress(CommError):
            self.write(key, {"error": str(error)})

    def read(self, key: str, rank: int, fields: Mapping[str, type] | None = None) -> dict[str, Any]:
        """Wait for the object that `rank` writes. Errors name that rank, also where `fields` are not of these types."""
        path = f"{self._prefix}/{key}"
        try:
            # This project's store waits while the rank may still join.
            data = self._store.get(path, rank) if isinstance(self._store, StoreClient) else self._store.get(path)
            value = json.loads(self._verified(path, bytes(data).decode()))
            if not isinstance(value, dict):
                raise ValueError(f"{key} is not an object")
            if "error" in value:
                value = {"error": str(value["error"])}
            elif wrong := [name for name, kind in (fields or {}).items() if type(value.get(name)) is not kind]:
                raise ValueError(f"{key} has no valid {wrong[0]}")
        except Exception as error:
            text = f"the store has no valid entry of rank {rank}: {error}; has it started, with the same settings?"
            if isinstance(error, StoreError) and error.errno == errno.ESRCH:
                text = error.strerror or str(error)
            raise CommError(text, rank=rank) from error
        if "error" in value:
            raise CommError(f"rank {rank} reports: {printable(value['error'])}", rank=rank)
        return value

    def _signature(self, path: str, text: str) -> str:
        return hmac.digest(self._secret, f"{path} {text}".encode(), "sha256").hex()

    def _verified(self, path: str, data: str) -> str:
        """Return a value without its signature. Raises ValueError where that is not the one of this job."""
        signature, space, text = data.partition(" ")
        if len(signature) != _SIGNATURE_DIGITS or not space:
            signature, text = "", data
        expected = self._signature(path, text) if self._secret else ""
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            raise ValueError(f"it was not written with this rank's {SECRET_VARIABLE}: set the same for all ranks")
        return text
