"""Samples as files: what the NICs of one host answered, to be compared with those of other hosts.

A control socket is local and its owner's alone, so each host writes what its own NICs answer
(`softnic stat --why --samples FILE`, on all hosts at about the same time), and the files are read together. Samples
belong together by the hosts' clocks; where these disagree, or the files do not overlap, by their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from softnic.comm.diagnosis.samples import NicSample, Owned
from softnic.ipc.collectives_info import CollectivesInfo

SCHEMA = 1
_TOGETHER_S = 0.06
"""Samples of two hosts this far apart are of one time: a little more than the interval between two of one host."""
_LEAST = 2
"""Samples of all hosts; with fewer they are taken by their order."""


class SampleRecord(msgspec.Struct, frozen=True):
    """One sample. Keys are control sockets."""

    taken_at: float
    """By the host's clock, in seconds since 1970."""
    answers: dict[str, CollectivesInfo]
    reply_s: dict[str, float] = {}


class SampleFile(msgspec.Struct, frozen=True):
    """The samples of one host, oldest first."""

    schema: int
    host: str
    samples: list[SampleRecord]


def encoded(host: str, samples: Sequence[NicSample]) -> bytes:
    """Return the file of a host."""
    records = [SampleRecord(each.taken_at, dict(each.answers), dict(each.reply_s)) for each in samples]
    return msgspec.json.encode(SampleFile(SCHEMA, host, records))


def decoded(data: bytes) -> SampleFile:
    """Return the file of a host. Raises ValueError for anything else."""
    found = msgspec.json.decode(data, type=SampleFile)  # its error is a ValueError
    if found.schema != SCHEMA:
        raise ValueError(f"samples of version {found.schema}, not {SCHEMA}")
    return found


def merged(files: Sequence[SampleFile]) -> tuple[list[NicSample], bool]:
    """Return the samples of all hosts together, and whether they are of the same times."""
    if not files:
        return [], True
    first, *others = (file.samples for file in files)
    rows: list[list[SampleRecord]] = []
    for sample in first:
        nearest = [min(those, key=lambda each: abs(each.taken_at - sample.taken_at), default=None) for those in others]
        found = [each for each in nearest if each is not None and abs(each.taken_at - sample.taken_at) <= _TOGETHER_S]
        if len(found) == len(others):
            rows.append([sample, *found])
    together = len(rows) >= _LEAST
    if not together:
        rows = [list(row) for row in zip(*(file.samples for file in files), strict=False)]
    return [_joined(files, row) for row in rows], together


def _joined(files: Sequence[SampleFile], row: Sequence[SampleRecord]) -> NicSample:
    """Return one sample of all hosts. Control sockets of different hosts may have the same path."""
    answers: dict[str, CollectivesInfo] = {}
    reply_s: dict[str, float] = {}
    for number, (file, sample) in enumerate(zip(files, row, strict=True)):
        answers |= _prefixed(f"{file.host}#{number}", sample.answers)
        reply_s |= _prefixed(f"{file.host}#{number}", sample.reply_s)
    return NicSample(answers, reply_s, row[0].taken_at)


def _prefixed(prefix: str, by_path: Mapping[str, Owned]) -> dict[str, Owned]:
    return {f"{prefix}:{path}": value for path, value in by_path.items()}
