"""Samples as files: what the NICs of one host answered, to be compared with those of other hosts.

A control socket is local and its owner's alone, so each host writes what its own NICs answer
(`softnic stat --why --samples FILE`, on all hosts at about the same time), and the files are read together. Samples
belong together by the hosts' clocks; where these disagree, or the files do not overlap, by their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from softnic.diagnosis.samples import NicSample, Owned
from softnic.ipc.collectives_info import CollectivesInfo

SCHEMA = 1
MAX_FILE_BYTES = 64 << 20
"""Limit of a file: those of a host with eight NICs of large communicators have some MiB."""
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
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        found = msgspec.json.decode(data, type=SampleFile)  # its error is a ValueError
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if found.schema != SCHEMA:
        raise ValueError(f"samples of version {found.schema}, not {SCHEMA}")
    return found


class _Host:
    """The samples of a host, in the order of time."""

    def __init__(self, samples: Sequence[SampleRecord]) -> None:
        self._samples = sorted(samples, key=_time)
        self._times = list(map(_time, self._samples))

    def nearest(self, time: float) -> SampleRecord | None:
        """Return the sample that was taken at about this time; None: there is none."""
        at = bisect_left(self._times, time)
        around = self._samples[max(0, at - 1) : at + 1]
        found = min(around, key=lambda each: abs(each.taken_at - time), default=None)
        return found if found is not None and abs(found.taken_at - time) <= _TOGETHER_S else None


def _time(sample: SampleRecord) -> float:
    return sample.taken_at


def merged(files: Sequence[SampleFile]) -> tuple[list[NicSample], bool]:
    """Return the samples of all hosts together, and whether they are of the same times."""
    if not files:
        return [], True
    first, *others = (file.samples for file in files)
    hosts = [_Host(those) for those in others]
    rows: list[list[SampleRecord]] = []
    for sample in first:
        found = [each for host in hosts if (each := host.nearest(sample.taken_at)) is not None]
        if len(found) == len(hosts):
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
