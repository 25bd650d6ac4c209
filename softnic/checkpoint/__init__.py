"""Transfer of a training state between members of a job: from several sources at once, over the NICs, bit for bit.

    source = StateSource(epoch="job 7")                             # in each member that has the state
    source.offer(step, state_of({"weight": weight}))           # until withdraw()

    state = receive([("10.77.0.1", 4711), ("10.77.0.2", 4711)], step, Terms("job 7"))     # in the one that lacks it

Reading order: manifest (what a state is), protocol (the bytes on the wire), plan (which source sends which piece),
pacing (the CPU of a source), progress, source, receiver. The first four are without I/O.
"""

from softnic.checkpoint.manifest import Leaf, TrainingState, state_of
from softnic.checkpoint.progress import ReceiptPhase, ReceiptProgress
from softnic.checkpoint.protocol import CheckpointError
from softnic.checkpoint.receiver import Partial, Receipt, Terms, receive
from softnic.checkpoint.source import StateSource

__all__ = [
    "CheckpointError",
    "Leaf",
    "Partial",
    "Receipt",
    "ReceiptPhase",
    "ReceiptProgress",
    "StateSource",
    "Terms",
    "TrainingState",
    "receive",
    "state_of",
]
