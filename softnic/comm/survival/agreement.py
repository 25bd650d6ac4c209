"""The ranks of a communicator agree on who is left, though any of them may be lost meanwhile. Sans-IO.

The lowest rank that a rank reaches is its coordinator. To it goes the rank's vote. When the coordinator has the votes
of all ranks that it reaches, it proposes a decision to them; when those have accepted that are enough, the decision is
final, and everybody who learns of it passes it on to all before it returns. If the coordinator is lost, votes go to the
next rank, together with the proposal that was accepted last, which the next coordinator then proposes again.

This is Paxos with ranks as ballots (Lamport, "Paxos Made Simple", 2001): a rank that has given up a coordinator never
listens to it again, so ballots only rise; each coordinator proposes once; and any two sets of ranks that are enough
have a rank in common.

Enough are more than half of the ranks that are not proven dead. A process that has ended refuses connections, which
proves its death; a silent one may live behind a cut link and count itself among the survivors. Of two equal halves, the
one with the lowest rank goes on. So three ranks of four may die one after the other, and the last one goes on; but of
four ranks that a cut link divides in one and three, the one gets an error. Two groups could go on only if the link to
a rank were cut and the others that had agreed with it died before the next agreement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from msgspec import structs

from softnic.comm.survival.votes import Accept, Commit, Decision, Enter, Frame, Propose, Refuse, Vote


class RankReach(Enum):
    """What a rank knows of another one."""

    UNKNOWN = "unknown"
    REACHED = "reached"
    SILENT = "silent"
    """It is not reached, or no longer. It may live."""
    DEAD = "dead"
    """Its process has ended."""


@dataclass(frozen=True)
class Agreed:
    """The end of an agreement: a decision, or why there is none."""

    decision: Decision | None
    refused: str = ""


class Agreement:
    """One rank's part. The caller reports what happens by `reached`, `lost` and `receive`, and sends what
    `pending` yields, until `end` is set; then it sends that rest, too.

    Parameters
    ----------
    rank, size
        Of the communicator.
    vote
        What this rank brings.
    epoch
        Random name that this rank proposes for the next communicator.
    """

    def __init__(self, rank: int, size: int, vote: Vote, epoch: str) -> None:
        self._rank = rank
        self._vote = vote
        self._epoch = epoch
        self.reach = dict.fromkeys(range(size), RankReach.UNKNOWN)
        self.reach[rank] = RankReach.REACHED
        self._votes: dict[int, Vote] = {rank: vote}
        self._voted_for = rank
        self._proposed: Decision | None = None
        """By this rank, as the coordinator."""
        self._accepted_by: set[int] = set()
        self._out: list[tuple[int, Frame]] = []
        self.end: Agreed | None = None

    @property
    def coordinator(self) -> int:
        """The lowest rank that is not lost."""
        return min(self._present())

    @property
    def waits_for(self) -> list[int]:
        """The ranks whose frames are missing."""
        if self.coordinator != self._rank:
            return [self.coordinator]
        has = self._votes if self._proposed is None else self._accepted_by
        return [other for other in self._present() if other not in has]

    def pending(self) -> Iterator[tuple[int, Frame]]:
        """Yield the frames to send, each with its receiver, and forget them."""
        out, self._out = self._out, []
        yield from out

    def begin(self) -> None:
        """Look whether this rank is alone."""
        self._advance()

    def reached(self, rank: int) -> None:
        """Note that frames can be sent to a rank. One that was lost stays so."""
        if self.reach[rank] is RankReach.UNKNOWN:
            self.reach[rank] = RankReach.REACHED
            self._advance()

    def lost(self, rank: int, *, dead: bool) -> None:
        """Note that a rank is not reached; `dead`: because its process has ended."""
        if self.reach[rank] is not RankReach.DEAD:
            self.reach[rank] = RankReach.DEAD if dead else RankReach.SILENT
        self._advance()

    def receive(self, sender: int, frame: Frame) -> None:
        """Handle a frame. Raises ValueError for one that no rank sends."""
        if self.end is not None:
            return
        match frame:
            case Commit():
                self._commit(frame.decision)
            case _ if self.reach[sender] in (RankReach.SILENT, RankReach.DEAD):
                return  # this rank may have accepted what others propose since it gave up the sender
            case Refuse():
                if sender == self.coordinator:
                    self.end = Agreed(None, frame.text)
            case Vote():
                self._votes[sender] = frame
            case Propose():
                if sender != self.coordinator:
                    return  # a higher one, whose turn has not come: it does not reach a rank that this one reaches
                self._vote = structs.replace(self._vote, ballot=sender, accepted=frame.decision)
                self._out.append((sender, Accept()))
            case Accept():
                self._accepted_by.add(sender)
            case Enter():
                raise ValueError("an Enter in the middle")
        self._advance()

    def _present(self) -> list[int]:
        return [rank for rank, reach in self.reach.items() if reach in (RankReach.UNKNOWN, RankReach.REACHED)]

    def _advance(self) -> None:
        if self.end is not None:
            return
        coordinator = self.coordinator
        if coordinator != self._rank:
            if self._voted_for != coordinator and self.reach[coordinator] is RankReach.REACHED:
                self._voted_for = coordinator
                self._out.append((coordinator, self._vote))
            return
        self._voted_for = self._rank
        self._votes[self._rank] = self._vote
        present = self._present()
        if self._proposed is None and all(other in self._votes for other in present):
            self._propose(present)
        if self._proposed is not None and self.end is None:
            has = {rank for rank in present if rank in self._accepted_by}
            if len(has) == len(present) and self._are_enough(has):
                self._commit(self._proposed)
            elif not self._are_enough(present):
                self._refuse(self._too_few(present))

    def _are_enough(self, ranks: Sequence[int] | set[int]) -> bool:
        living = [rank for rank, reach in self.reach.items() if reach is not RankReach.DEAD]
        return 2 * len(ranks) > len(living) or (2 * len(ranks) == len(living) and min(living) in ranks)

    def _too_few(self, present: Sequence[int]) -> str:
        silent = [rank for rank, reach in self.reach.items() if reach is RankReach.SILENT]
        names = ", ".join(map(str, silent))
        return (
            f"rank {self._rank} reaches {len(present) - 1} other ranks, and not rank {names}: where ranks are silent, "
            "only more than half of them go on, or the half with the lowest rank"
        )

    def _propose(self, present: Sequence[int]) -> None:
        """Propose what was accepted already, or else what the votes say."""
        votes = [self._votes[rank] for rank in present]
        if len({vote.call for vote in votes}) > 1:
            calls = ", ".join(f"rank {rank} calls {vote.call}" for rank, vote in zip(present, votes, strict=True))
            self._refuse(f"the ranks make different calls: {calls}")
            return
        if not self._are_enough(present):
            self._refuse(self._too_few(present))
            return
        before = max(votes, key=lambda vote: vote.ballot)
        self._proposed = before.accepted if before.accepted is not None else self._decision(present, votes)
        self._vote = structs.replace(self._vote, ballot=self._rank, accepted=self._proposed)
        self._accepted_by.add(self._rank)
        self._out += [(rank, Propose(self._proposed)) for rank in present if rank != self._rank]

    def _decision(self, present: Sequence[int], votes: Sequence[Vote]) -> Decision:
        flag, acknowledged = votes[0].flag, set(votes[0].acknowledged)
        for vote in votes[1:]:
            flag &= vote.flag
            acknowledged &= set(vote.acknowledged)
        failed = [rank for rank in self.reach if rank not in present]
        addresses = [vote.address for vote in votes]
        return Decision(list(present), failed, flag, sorted(acknowledged), addresses, self._epoch)

    def _commit(self, decision: Decision) -> None:
        self._tell(Commit(decision))
        self.end = Agreed(decision)
        if self._rank not in decision.members:
            first = decision.members[0] if decision.members else "?"
            self.end = Agreed(None, f"the others go on without rank {self._rank}, which rank {first} did not reach")

    def _refuse(self, text: str) -> None:
        """Give up, and have those give up that take this rank for the coordinator."""
        self._tell(Refuse(text))
        self.end = Agreed(None, text)

    def _tell(self, frame: Frame) -> None:
        self._out += [(rank, frame) for rank, reach in self.reach.items()
                      if reach is RankReach.REACHED and rank != self._rank]  # fmt: skip
