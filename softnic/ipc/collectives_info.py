"""What a NIC knows of the collectives in progress: the reply to QueryCollectives (control.py).

Times are in seconds, sizes in bytes. Counters run since their stream or process began: the difference of two replies,
divided by that of their `time`, is a rate. `softnic stat --why` compares the replies of all NICs of a run
(softnic/diagnosis).
"""

from __future__ import annotations

import msgspec

MAX_COMMUNICATORS = 64
MAX_OPERATIONS = 32
MAX_LINKS = 320
"""Most of these in one reply: those of operations in progress first."""


class OperationInfo(msgspec.Struct, frozen=True):
    """An operation in progress on one rank."""

    number: int
    """Counts the communicator's collectives from 1; below 0: a message."""
    call: str
    """As a person writes it: `Iallreduce(1000 x float32, op=SUM)`."""
    age_s: float
    """Since the rank posted it."""
    left: int
    """Steps that are not done: blocks to send or receive, and ranks that have not announced the same call."""
    total: int


class RankLinkInfo(msgspec.Struct, frozen=True):
    """What one rank exchanges with another, over all streams between them."""

    rank: int
    local: tuple[str, int]
    """Address and port of the stream of blocks, here and at the other rank."""
    remote: tuple[str, int]
    expected: int = 0
    """Number of the first operation in progress here that the other rank has not announced; 0: none."""
    receiving: int = 0
    """Number of the operation whose block is received next; 0: none."""
    receive_left: int = 0
    """Bytes of that block that have not come."""
    sending: int = 0
    """Number of the operation whose block is sent next; 0: all is handed over to the stream."""
    send_left: int = 0
    """Bytes of that block that are not handed over."""
    held_by: int = -1
    """Rank whose block has to come before that block is sent; this rank itself: its process still copies it; -1: it can
    be sent."""
    unacknowledged: int = 0
    """Bytes that were handed over to streams and that the other NIC has not acknowledged."""
    bytes_sent: int = 0
    bytes_received: int = 0
    frames_sent: int = 0
    retransmits: int = 0
    srtt_s: float = 0.0
    min_rtt_s: float = 0.0
    """Least round trip of the last minutes; 0: not measured."""
    cwnd: int = 0
    silent_s: float = 0.0
    """Since anything came from the other NIC on these streams."""


class CommunicatorInfo(msgspec.Struct, frozen=True):
    """One rank of a communicator, as its own NIC sees it."""

    rank: int
    size: int
    pid: int = 0
    """Process of the rank; 0: not known."""
    state: str = ""
    """Of the process, as in proc(5): R runs, S sleeps, T is stopped."""
    cpu_s: float = 0.0
    """CPU time of the process."""
    posted: int = 0
    """Number of the last collective."""
    idle_s: float = 0.0
    """Since the rank posted anything."""
    operations: list[OperationInfo] = []
    """In progress, oldest first."""
    links: list[RankLinkInfo] = []
    lane: int = 0
    """Above 0: a further lane, whose operations are its parts of collectives, with numbers of their own."""
    paths: str = ""
    """How the ranks have cut large all-reduces for links that differ: the ranks of each site, and each rank's share of
    the buffer. Empty: their links are alike."""


class FailedCommunicatorInfo(msgspec.Struct, frozen=True):
    """The end of a communicator by an error."""

    rank: int
    size: int
    at_fault: int
    """-1: not a single rank."""
    text: str
    age_s: float
    operations: list[OperationInfo] = []
    """In progress when it failed, oldest first, and what the rank called afterwards."""
    ports: list[tuple[tuple[str, int], tuple[str, int]]] = []
    """Of its streams of blocks, as `local` and `remote` of RankLinkInfo."""
    mismatched: bool = False
    """This NIC noticed that another rank made another call."""


class CollectivesInfo(msgspec.Struct, frozen=True, tag=True):
    """What a NIC knows of its ranks' collectives, and of itself."""

    time: float
    name: str
    ip: str
    pid: int
    cpu_s: float = 0.0
    """CPU time of the NIC."""
    waited_s: float = 0.0
    """Time in which the NIC's thread could have run and waited for a CPU."""
    rate_bps: float | None = None
    """Rate of the emulated link; None: not limited."""
    link_queue: int = 0
    """Bytes in the queue of the emulated link."""
    communicators: list[CommunicatorInfo] = []
    failed: list[FailedCommunicatorInfo] = []
    """The latest, oldest first."""


class QueryCollectives(msgspec.Struct, frozen=True, tag=True):
    """Asks what the collectives in progress wait for. Reply: CollectivesInfo."""
