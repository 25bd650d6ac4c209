"""How objects become bytes: `MPI.pickle`, which programs may set to another serializer.

MPI.pickle.__init__(dill.dumps, dill.loads)     # on every rank, before the first call with an object
"""

from __future__ import annotations

import os
import pickle as standard
from collections.abc import Callable, Iterable
from typing import Any

from softnic.comm.errors import application_code
from softnic.mpi.memory import buffer as memory

_THRESHOLD_BYTES = 1 << 18


class Pickle:
    """A serializer of objects.

    Parameters
    ----------
    obj
        Any object that `dumps` takes.
    data
        Bytes that `dumps` or `dumps_oob` has made.
    buffers
        Buffers that `dumps_oob` has left outside.
    dumps
        Function of an object and a protocol, or of an object alone if `protocol` is None. None: pickle's.
    loads
        Function of a buffer. None: pickle's.
    protocol
        Second argument of `dumps`. None: the highest one of pickle, or the environment's MPI4PY_PICKLE_PROTOCOL.
    threshold
        Size in bytes from which dumps_oob leaves a buffer outside. None: 256 KiB, or MPI4PY_PICKLE_THRESHOLD.
    """

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[..., Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None:
        self._dumps = standard.dumps if dumps is None else dumps
        self._loads = standard.loads if loads is None else loads
        self.PROTOCOL = protocol
        self.THRESHOLD = threshold

    @property
    def PROTOCOL(self) -> int | None:
        """Second argument of `dumps`; None if it has one only."""
        return self._protocol

    @PROTOCOL.setter
    def PROTOCOL(self, protocol: int | None) -> None:
        if protocol is None and self._dumps is standard.dumps:
            protocol = int(os.environ.get("MPI4PY_PICKLE_PROTOCOL", standard.HIGHEST_PROTOCOL))
        self._protocol = protocol

    @property
    def THRESHOLD(self) -> int:
        """Size in bytes from which dumps_oob leaves a buffer outside."""
        return self._threshold

    @THRESHOLD.setter
    def THRESHOLD(self, threshold: int | None) -> None:
        if threshold is None:
            threshold = int(os.environ.get("MPI4PY_PICKLE_THRESHOLD", _THRESHOLD_BYTES))
        self._threshold = threshold

    def dumps(self, obj: Any) -> bytes:
        """Return the bytes of an object."""
        with application_code():
            return self._dumps(obj) if self._protocol is None else self._dumps(obj, self._protocol)

    def loads(self, data: Any) -> Any:
        """Return the object of a buffer that `dumps` has made."""
        with application_code():
            return self._loads(data)

    def dumps_oob(self, obj: Any) -> tuple[bytes, list[Any]]:
        """Return the bytes of an object without its large buffers, and these buffers."""
        buffers: list[Any] = []

        def keep(buffer: standard.PickleBuffer) -> bool:
            flat = buffer.raw()
            if flat.nbytes < self._threshold:
                return True
            buffers.append(memory.frombuffer(flat))
            return False

        protocol = standard.HIGHEST_PROTOCOL if self._protocol is None else self._protocol
        return self._dumps(obj, max(protocol, 5), buffer_callback=keep), buffers

    def loads_oob(self, data: Any, buffers: Iterable[Any]) -> Any:
        """Return the object of what `dumps_oob` has made."""
        return self._loads(data, buffers=buffers)


pickle = Pickle()
"""What the calls with objects use."""
