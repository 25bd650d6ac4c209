"""A checkpoint transport of torchft: a member that joins receives its state from all members that have it.

    transport = SoftnicTransport(timeout=timedelta(seconds=60))
    manager = torchft.Manager(..., checkpoint_transport=transport)

`SoftnicTransport` has the methods of torchft.checkpointing.CheckpointTransport, and is registered as one where torchft
is installed. By itself it sends from the one member that torchft assigns; `softnic.torch.members` adds the others.

A state is a tree of containers and objects with tensors and numpy arrays in it (state_leaves.py). Tensors of the CPU
are read where they are, as torchft's HTTP transport does; those of a device are copied to the host when a receiver
asks. When `disallow_checkpoint` returns, the state may change.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from softnic.checkpoint import CheckpointError, Partial, Receipt, StateSource, Terms, receive
from softnic.checkpoint.progress import Report
from softnic.checkpoint.receiver import Address
from softnic.checkpoint.source import CPU_SHARE
from softnic.torch.state_leaves import from_state, to_state, writable

_MOST_METADATA = 4096


class SoftnicTransport:
    """Sends and receives the states of torchft's members through the NICs.

    Parameters
    ----------
    timeout : timedelta
        For receivers to get the rest of a state before `disallow_checkpoint` returns.
    epoch : str
        Only members with the same one exchange states: the name of the job and of the rank within its replica.
    state_dict : callable, optional
        Returns a state of the same form as the one that is received, whose tensors are then written in place.
    cpu_share : float
        Share of one core that serving may take on a member, with its part of the NIC.
    compress : bool
        Send floats of 16 and 32 bits by `auto:exact:16` and `auto:exact:32`, which keep every bit.
    classes : sequence of type
        Classes of objects in the state beside containers, numbers, texts, tensors and numpy's arrays.
    report : callable, optional
        Called with a `softnic.checkpoint.ReceiptProgress` while receiving. Default: a line a second on standard error.

    Raises
    ------
    OSError
        If there is no NIC: set SOFTNIC_NIC to the path of its control socket.
    """

    def __init__(
        self, timeout: timedelta, *, epoch: str = "torchft", state_dict: Callable[[], object] | None = None,
        cpu_share: float = CPU_SHARE, compress: bool = False, classes: Sequence[type] = (),
        report: Report | None = None,
    ) -> None:  # fmt: skip
        _register()
        self._timeout_s = timeout.total_seconds()
        self._epoch = epoch
        self._state_dict = state_dict
        self._classes = tuple(classes)
        self._report = report
        self._source = StateSource(epoch=epoch, cpu_share=cpu_share, compress=compress)
        self._others: Callable[[], list[Address]] = list
        self._current: Callable[[], tuple[int, Callable[[], object]]] | None = None
        self._offered: int | None = None
        """Step of the state that `_current` gave, until `disallow_checkpoint`."""
        self._lock = threading.Lock()
        self._partial = Partial()
        self.last: Receipt | None = None
        """What the last receipt took, from whom."""

    @property
    def address(self) -> Address:
        """Where this member's source listens."""
        return self._source.address

    @property
    def cpu_s(self) -> float:
        """CPU seconds that serving has taken so far, with its part of the NIC's."""
        return self._source.cpu_s

    def join_members(
        self, others: Callable[[], list[Address]], current: Callable[[], tuple[int, Callable[[], object]]]
    ) -> None:
        """Receive from further members, and send to all that ask.

        Parameters
        ----------
        others : callable
            Returns the addresses of the other members' sources, when a state is to be received.
        current : callable
            Returns the step of this member, and what returns its state; called when a step begins. The state is asked
            for by another thread, when a receiver asks, or never.
        """
        self._others, self._current = others, current

    def metadata(self) -> str:
        """Return this member's address, as the receiver's transport reads it.

        torchft calls this on all members when a step begins: from here to `disallow_checkpoint` the state is the same.
        """
        if self._current is not None:
            step, state = self._current()
            self._source.offer(step, lambda: to_state(state()))
            self._offered = step
        return json.dumps({"softnic": list(self._source.address)})

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: object, timeout: timedelta) -> None:  # noqa: ARG002
        """Offer a state to receivers; returns at once.

        Parameters
        ----------
        dst_ranks, timeout
            Not used: whoever belongs to the job may ask, until `disallow_checkpoint`.
        step : int
            The number of steps that the state has.
        state_dict : object
            The state.
        """
        if step != self._offered:  # else it is served already
            self._source.offer(step, lambda: to_state(state_dict))

    def disallow_checkpoint(self) -> None:
        """Wait for receivers that have begun, `timeout` at most, and end the offer. The state may change then."""
        self._source.withdraw(self._timeout_s)
        self._offered = None

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """Receive a state from the member of `metadata`, and from all others that have it.

        Parameters
        ----------
        src_rank : int
            The rank of that member, for errors.
        metadata : str
            What its `metadata` returned.
        step : int
            The number of steps that the state has.
        timeout : timedelta
            For the whole receipt.

        Returns
        -------
        object
            The state. After a receipt that failed, only the pieces that are missing are asked for.

        Raises
        ------
        CheckpointError
            If no member can send it, or it takes longer than `timeout`.
        """
        first = parse_metadata(src_rank, metadata)
        began = time.monotonic()
        others = [each for each in self._others() if each not in (first, self.address)]
        left_s = timeout.total_seconds() - (time.monotonic() - began)
        place = writable(self._state_dict() if self._state_dict is not None else None)
        with self._lock:
            terms = Terms(self._epoch, timeout_s=max(left_s, 0.001))
            self.last = receive(
                [first, *others], step, terms, allocate=place, partial=self._partial, report=self._report
            )
            self._partial = Partial()  # its arrays belong to the caller now
        return from_state(self.last.state, self._classes)

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002
        """Stop serving.

        Parameters
        ----------
        wait : bool
            Not used: connections are closed at once.
        """
        self._source.close()


def parse_metadata(rank: int, metadata: str) -> Address:
    """Return the address in another member's metadata. Raises CheckpointError."""
    try:
        if len(metadata) > _MOST_METADATA:
            raise ValueError
        host, port = json.loads(metadata)["softnic"]
        if not (isinstance(host, str) and isinstance(port, int) and 0 < port < 65536):
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(
            f"rank {rank} has another checkpoint transport: give every member a SoftnicTransport"
        ) from None
    return host, port


def _register() -> None:
    """Make the class one of torchft's transports, where torchft is installed."""
    if "torchft" in sys.modules:
        base = importlib.import_module("torchft.checkpointing.transport").CheckpointTransport
        base.register(SoftnicTransport)
