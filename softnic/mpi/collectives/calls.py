"""How the calls of a collective are made from its declaration: blocking, nonblocking and persistent.

A declaration is a function that checks the arguments of a call in progress. All calls post a work request to the NIC;
the blocking one waits for it, and a persistent one posts another at each Start.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec

from softnic.comm.connections import CommConnections
from softnic.comm.offload_queue import PostedRequest
from softnic.mpi.arguments import buffers, checks, collective_args
from softnic.mpi.arguments.buffers import RECEIVE, SEND
from softnic.mpi.base import Base
from softnic.mpi.collectives import execution
from softnic.mpi.collectives.codec_choice import NAME, either_of
from softnic.mpi.collectives.object_exchange import gather_integers
from softnic.mpi.collectives.parts import BlockArgs, CollectiveArgs, CompressionOptions
from softnic.mpi.info import INFO_NULL
from softnic.mpi.p2p.persistent import Prequest
from softnic.mpi.requests.request import Request

P = ParamSpec("P")


class CallContext(NamedTuple):
    """A call in progress."""

    call: str
    comm: Base
    connections: CommConnections

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks, and this one."""
        return self.comm.size, self.comm.rank

    @property
    def exact(self) -> CompressionOptions:
        """The options of an exact call."""
        return CompressionOptions(paths=self.connections.paths.plan)

    def options(self, codec: Any, algorithm: Any = None) -> CompressionOptions:
        """Return the checked keywords of a compressed call."""
        return replace(self.comm._options(self.connections, codec, algorithm), paths=self.connections.paths.plan)

    def allreduce(self, send: Any, receive: Any, op: Any, options: CompressionOptions) -> CollectiveArgs | BlockArgs:
        """Return the arguments of an all-reduce. The ranks find out about their paths by large ones."""
        paths = self.connections.paths
        if options.algorithm is None:
            paths.begin(blocking=not self.call.startswith("I") and not self.call.endswith("_init"))
            options = replace(options, paths=paths.plan)
        args = collective_args.allreduce(*self.ranks, send, receive, op, options)
        if options.algorithm is None and isinstance(args, CollectiveArgs):
            paths.count(args.source.nbytes)
        return args

    def reduction_options(
        self, codec: Any, algorithm: Any, sendbuf: Any, recvbuf: Any, blocks: int = 1
    ) -> CompressionOptions:
        """Return those of a reduction, whose codec may depend on its data: the ranks agree on it, and wait for it."""
        either = either_of(codec)
        if either is not None:
            in_place = buffers.is_in_place(sendbuf)
            data = buffers.flat(recvbuf if in_place else sendbuf, what="the input", blocks=blocks)
            asks = self.comm.size > 1 and either.decides(data)
            codec = either.agree(self.connections, f"{self.call} with {NAME}", data) if asks else either.dense
        return self.options(codec, algorithm)

    def counts(self, sendbuf: Any, recvbuf: Any, recvcounts: Any) -> Any:
        """Return the `recvcounts` of a Reduce_scatter.

        None stands for the length of each rank's receive buffer, as in mpi4py, if these add up to the input. Otherwise
        it stays None, for near-equal blocks.
        """
        if recvcounts is not None or buffers.is_in_place(sendbuf):
            return recvcounts
        source = buffers.message(sendbuf, what=SEND)
        own = buffers.message(recvbuf, writable=True, what=RECEIVE)
        if checks.same_memory(source.array, own.array):
            return None
        lengths = gather_integers(self.connections, f"{self.call} without recvcounts", own.count)
        return lengths if sum(lengths) == source.count else None


def collective_calls(
    name: str, declaration: Callable[Concatenate[CallContext, P], CollectiveArgs | BlockArgs]
) -> tuple[Callable[Concatenate[Any, P], None], Callable[Concatenate[Any, P], Request]]:
    """Return the blocking call `name` of an operation, and the nonblocking one."""
    nonblocking_name = f"I{name.lower()}"

    @wraps(declaration)
    def blocking(self: Base, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with self._state.call(name) as connections:
            context = CallContext(name, self, connections)
            execution.run(connections, name, declaration(context, *args, **kwargs))

    @wraps(declaration)
    def nonblocking(self: Base, /, *args: P.args, **kwargs: P.kwargs) -> Request:
        return Request(_post(self, nonblocking_name, declaration, *args, **kwargs))

    nonblocking.__doc__ = f"Start {name}, and return its Request.\n\n    {declaration.__doc__}"
    _, *parameters = inspect.signature(declaration).parameters.values()
    _name(blocking, name, parameters, "None")
    _name(nonblocking, nonblocking_name, parameters, "Request")
    return blocking, nonblocking


def persistent_call(
    name: str, declaration: Callable[Concatenate[CallContext, P], CollectiveArgs | BlockArgs]
) -> Callable[..., Prequest]:
    """Return the call that makes a persistent request of an operation, `name` with `_init` behind it."""
    own_name = f"{name}_init"
    declared = inspect.signature(declaration)
    _, *parameters = declared.parameters.values()
    info = inspect.Parameter("info", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=INFO_NULL, annotation="Info")
    signature = inspect.Signature([*parameters, info])

    def persistent(self: Base, /, *args: Any, **kwargs: Any) -> Prequest:
        given = signature.bind(*args, **kwargs).arguments
        given.pop("info", None)
        return Prequest.of(lambda: _post(self, own_name, declaration, **given))

    persistent.__doc__ = (
        f"Return a persistent request of {name}: each Start begins the call. `info` is ignored.\n\n"
        f"    {declaration.__doc__}"
    )
    _name(persistent, own_name, [*parameters, info], "Prequest")
    return persistent


def _post(
    self: Base, call: str, declaration: Callable[..., CollectiveArgs | BlockArgs], *args: Any, **kwargs: Any
) -> PostedRequest:
    """Begin a call."""
    with self._state.call(call) as connections:
        posted = declaration(CallContext(call, self, connections), *args, **kwargs)
        return execution.post(connections, call, posted)


def _name(call: Callable[..., Any], name: str, parameters: list[inspect.Parameter], result: str) -> None:
    """Give a call the name and the signature that users see."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__name__, call.__qualname__, call.__module__ = name, f"Communicator.{name}", __name__
    signature = inspect.Signature([own, *parameters], return_annotation=result)
    setattr(call, "__signature__", signature)  # noqa: B010
