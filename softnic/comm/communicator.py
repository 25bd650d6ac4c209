"""The communicator: every call by mpi4py's names. Capital letter: buffers; small letter: objects.

Buffers are described in message_spec.py. Every call on buffers has a twin ending in `_comp` whose float32 data crosses
the network compressed by the NICs, with `codec` ("bounded:10"; None: the one of this rank's NIC for tagged streams,
which must be the same at all ranks). After a reduction all ranks have the same bits, compressed or not, and the same in
every run; another algorithm or number of ranks may give others.

Calls raise CommError (MPI.Exception); for this rank's own arguments ArgumentError, which is a ValueError too, and after
which the communicator is as usable as before. A dead rank or NIC, and ranks that make different calls, are an error on
every rank within 5 s that names the rank and the call. Buffers to be written are undefined then, and the communicator
has ended (state.py).
"""

from __future__ import annotations

from softnic.comm.bootstrap.discovery import exchange_addresses
from softnic.comm.bootstrap.launch import DEFAULT_TIMEOUT_S, NOWHERE, Launch
from softnic.comm.bootstrap.store import Store
from softnic.comm.collectives import BufferCollectives
from softnic.comm.errors import LaunchError
from softnic.comm.state import CommunicatorState
from softnic.comm.subsets import Subsets
from softnic.comm.transport import Transport


class Communicator(BufferCollectives, Subsets):
    """A communicator. `Communicator(comm)` is another name for `comm`, `Communicator()` is MPI.COMM_NULL.

    Parameters of the calls:

    sendbuf, recvbuf, buf
        Buffers as mpi4py has them: an object with the buffer protocol, or `[buffer, count, type]`. `sendbuf` may be
        MPI.IN_PLACE where mpi4py permits it.
    recvcounts
        Elements of each rank's block.
    sendobj, obj
        Objects, sent by pickle.
    op
        MPI.SUM, PROD, MAX, MIN or AVG; on objects, also a function of two objects.
    root, source, dest
        Ranks. `source` may be MPI.ANY_SOURCE.
    tag
        Number of a message, which a receive matches; MPI.ANY_TAG matches all.
    status
        Status to fill in, or None.
    codec
        Such as "bounded:10"; None: the codec of this rank's NIC for tagged streams, the same on all ranks.
    algorithm
        ring, direct, tree, hierarchical or wa; None: the best one for the size and the number of ranks.
    """


def init_communicator(
    store: Store,
    rank: int,
    size: int,
    *,
    name: str = "world",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    transport: Transport | None = None,
) -> Communicator:
    """Connect the processes of a job, which find each other through a store, and return their communicator.

    All ranks call this. They use the NIC that SOFTNIC_NIC names or, if no rank has one, NICs that are started for them.

    Parameters
    ----------
    store
        A key-value store that all ranks reach, as torch.distributed.Store.
    rank, size
        The rank of this process, and the number of ranks.
    name
        Tells this communicator from others that are made through the same store.
    timeout_s
        Time limit for each step of the exchange of addresses.
    transport
        What to make connections with. None: the NIC.

    Raises
    ------
    LaunchError
        For a rank outside 0..size-1.
    CommError
        If a rank does not join within `timeout_s` or fails while it joins; the error names that rank.
    """
    if not 0 <= rank < size:
        raise LaunchError(f"rank {rank} of {size}: a rank is 0 or more and less than the size")
    launch = Launch(rank, (NOWHERE,) * size, "store", timeout_s, found="the store given")
    state = CommunicatorState(launch, find=lambda launch: exchange_addresses(store, name, launch, transport))
    communicator = Communicator(state)
    communicator.Init()
    return communicator
