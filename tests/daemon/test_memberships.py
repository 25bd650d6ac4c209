"""What members of elastic jobs tell their NIC."""

from __future__ import annotations

import errno

import msgspec
import pytest

from softnic.ipc.membership import MembershipInfo, NoteMembership
from tests.daemon.nics import Nic

NOTE = MembershipInfo("job", "12", 1, 3, ["a", "b", "c"], "healing", ["a", "c"], 64_000_000, 100_000_000)


def test_the_last_note_of_each_member_is_shown_until_it_leaves(nics: list[Nic]) -> None:
    other = msgspec.structs.replace(NOTE, rank=0, phase="training", sources=[], done=0, total=0)
    with nics[0].client() as looking, nics[0].client() as second:
        with nics[0].client() as first:
            first.call(NoteMembership(msgspec.structs.replace(NOTE, epoch="11")))
            first.call(NoteMembership(NOTE))
            second.call(NoteMembership(other))
            assert looking.stats().memberships == [other, NOTE]
        assert looking.stats().memberships == [other]
        second.call(NoteMembership(None))
        assert looking.stats().memberships == []


@pytest.mark.parametrize(
    "note",
    [
        msgspec.structs.replace(NOTE, members=["a"] * 65),
        msgspec.structs.replace(NOTE, sources=["a"] * 65),
        msgspec.structs.replace(NOTE, job="j" * 129),
        msgspec.structs.replace(NOTE, members=["m" * 129]),
    ],
)
def test_a_note_is_bounded(nics: list[Nic], note: MembershipInfo) -> None:
    with nics[0].client() as client:
        with pytest.raises(OSError, match="a note of a membership") as caught:
            client.call(NoteMembership(note))
        assert caught.value.errno == errno.EINVAL
        assert client.stats().memberships == []
