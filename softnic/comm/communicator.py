"""The communicator: every call by mpi4py's names; capital letter = buffers, small letter = objects.

Buffers are what message_spec.py takes. Every call on buffers has a twin ending in `_comp` whose float32 data crosses
the network compressed by the NICs, with `codec` ("bounded:10"; None: what this rank's NIC has for tagged streams, which
must be the same at all ranks). After a reduction all ranks hold the same bits, compressed or not, and the same in every
run; another algorithm or number of ranks may give others.

Calls raise CommError (MPI.Exception), for this rank's own arguments its kind ArgumentError, a ValueError too. A dead
rank or NIC, or ranks that call different things, are an error on every rank within 5 s that names the rank and the
call; buffers to be written are undefined then, and the communicator has ended (world.py).
"""

from __future__ import annotations

from softnic.comm.collectives import BufferCollectives
from softnic.comm.nonblocking import NonblockingCollectives
from softnic.comm.subsets import Subsets


class Communicator(BufferCollectives, NonblockingCollectives, Subsets):
    """The ranks of a World. `Communicator(comm)` is another name for a communicator, `Communicator()` MPI.COMM_NULL."""
