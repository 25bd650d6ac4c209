"""A finding: what is at fault, as figures and as a person reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What makes a step slow or stuck. The value is its name in `softnic stat --why`."""

    LATE_RANK = "late rank"
    STOPPED_PROCESS = "stopped process"
    LOSSY_LINK = "lossy link"
    SLOW_LINK = "slow link"
    BUSY_NIC = "busy NIC"
    MISMATCHED_CALL = "mismatched call"
    FAILED_RANK = "failed rank"


ADVICE = {
    Kind.LATE_RANK: "look at what this rank does before the call: its data loader, its batch, another process",
    Kind.STOPPED_PROCESS: "continue the process (kill -CONT), or find out what stopped it",
    Kind.LOSSY_LINK: "look at cable, switch port and MTU of this link, and compare with other links",
    Kind.SLOW_LINK: "look at the rate that this link negotiated and at other traffic on it, or compress",
    Kind.BUSY_NIC: "give softnicd a CPU of its own: look for programs on its CPU and for CPU limits of its cgroup",
    Kind.MISMATCHED_CALL: "compare the program's path on this rank: all ranks must make the same calls in one order",
    Kind.FAILED_RANK: "read the output of this rank: its error came first",
}


@dataclass(frozen=True)
class WaitFinding:
    """One cause. `share` is its part of all votes, 0 to 1."""

    kind: Kind
    share: float
    rank: int
    """-1: not a single rank."""
    ip: str
    """Address of the rank's node; empty: not known."""
    call: str
    where: str
    """The rank, or the link as `rank 0 to rank 1`."""
    evidence: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """What to do next."""
        return ADVICE[self.kind]

    @property
    def place(self) -> tuple[int, str]:
        """The rank and its node's address."""
        return self.rank, self.ip

    def describe(self) -> str:
        """Return it in one line."""
        where = f"{self.where} ({self.ip})" if self.ip else self.where
        return f"{self.kind.value}: {where}" + (f" in {self.call}" if self.call else "")

    def describe_all(self) -> str:
        """Return it with the evidence, for an error."""
        return f"{self.describe()}: {'; '.join(self.evidence)}" if self.evidence else self.describe()
