"""What an error says about a call that is stuck, or that another rank made otherwise: a finding within half a second.

The NICs of this host are asked, this process's own one first. Only the communicators of this process count, and those
of the processes that it waits for, directly or not: other jobs use the same NICs. A diagnosis that fails is no reason
for another error, so these functions raise nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import msgspec

from softnic.cluster.nic_process import running_nics
from softnic.collectives.messages import mismatched
from softnic.diagnosis.failures import mismatched_calls
from softnic.diagnosis.findings import diagnose
from softnic.diagnosis.reader import read_samples
from softnic.diagnosis.result import Kind
from softnic.diagnosis.samples import NicSample, Ports, communicators
from softnic.ipc.collectives_info import CollectivesInfo, CommunicatorInfo

STUCK_S = 0.25
"""How long NICs are asked about a call that is stuck: a few samples, to tell a slow link from a late rank."""
MISMATCHED_S = 0.2
"""How long they are asked for the calls of other ranks, which may come to theirs a little later."""
MORE = "softnic stat --why says more"
_MOST_NICS = 32
"""Asked for one error, in a host with many."""
_RECENT_S = 2.0
"""Since the failure that an error reports."""

log = logging.getLogger("softnic")


def why_stuck(nic: str, pid: int = 0) -> str:
    """Return what a call of this process waits for, as its own NIC's answer and those of others show it.

    Parameters
    ----------
    nic
        Control socket of this process's NIC.
    pid
        The process; 0: this one.

    Returns
    -------
    str
        Kind, rank, address, call and figures of the most likely cause; without one, the connections that this rank's
        NIC waits for. That this process itself is late is no cause: it waits. Empty if it is not known.
    """
    try:
        samples = of_process(read_samples(_paths(nic), STUCK_S), nic, pid := pid or os.getpid())
        itself = {(rank, ip) for sample in samples for rank, ip in _ranks(sample, nic, pid)}
        found = [
            each for each in diagnose(samples) if each.kind is not Kind.LATE_RANK or (each.rank, each.ip) not in itself
        ]
        text = found[0].describe_all() if found else _waited_for(samples, nic)
    except Exception:  # the error that asks for an explanation counts
        log.debug("no explanation of a stuck call", exc_info=True)
        return ""
    return f"{text} ({MORE})" if text else ""


def why_mismatched(nic: str) -> str:
    """Return what each rank called, if the communicator that failed last did so because these calls differ.

    Parameters
    ----------
    nic
        Control socket of this process's NIC.

    Returns
    -------
    str
        The calls of all ranks that are known (softnic/collectives/messages.py). Empty if it failed for another reason.
    """
    try:
        paths = _paths(nic)
        if not _calls(read_samples(paths, 0.0), nic):
            return ""
        calls = _calls(read_samples(paths, MISMATCHED_S), nic)
    except Exception:  # the error that asks for an explanation counts
        log.debug("no explanation of a failure", exc_info=True)
        return ""
    return mismatched(calls) if calls else ""


def _calls(samples: Sequence[NicSample], nic: str) -> Mapping[int, str]:
    """Return what each rank called in the communicator of this NIC that failed last, if the calls are the reason."""
    latest = [each for sample in samples[-1:] if (own := sample.answers.get(nic)) for each in own.failed[-1:]]
    if not latest or latest[0].age_s > _RECENT_S:
        return {}
    ports = {pair for pairs in latest[0].ports for pair in (pairs, pairs[::-1])}
    related = [
        NicSample({path: _only_failed(answer, ports) for path, answer in sample.answers.items()}) for sample in samples
    ]
    return mismatched_calls(related)


def _only_failed(answer: CollectivesInfo, ports: set[Ports]) -> CollectivesInfo:
    """Return an answer with only the ends of the communicator over these streams."""
    return msgspec.structs.replace(answer, failed=[each for each in answer.failed if ports.intersection(each.ports)])


def of_process(samples: Sequence[NicSample], nic: str, pid: int) -> list[NicSample]:
    """Return samples of only the communicators of a process, and of those it shares communicators with, and so on.

    A process that the NIC knows by another number, as from another PID namespace, is any one of its NIC.
    """
    groups = [view.processes for sample in samples for view in communicators(sample)]
    found = {(nic, pid)}
    if not any(found & group for group in groups):
        found = {process for group in groups for process in group if process[0] == nic}
    while True:
        more = {process for group in groups if group & found for process in group} - found
        if not more:
            break
        found |= more

    def is_kept(path: str, info: CommunicatorInfo) -> bool:
        return (path, info.pid) in found

    return [
        NicSample(
            {
                path: msgspec.structs.replace(
                    answer, communicators=[info for info in answer.communicators if is_kept(path, info)], failed=[]
                )
                for path, answer in sample.answers.items()
            },
            sample.reply_s,
        )
        for sample in samples
    ]


def _ranks(sample: NicSample, nic: str, pid: int) -> list[tuple[int, str]]:
    """Return the ranks of a process, with its NIC's address."""
    answer = sample.answers.get(nic)
    return [] if answer is None else [(info.rank, answer.ip) for info in answer.communicators if info.pid == pid]


def _paths(nic: str) -> list[str]:
    """Return the control sockets to ask: this process's NIC, and the others of this host."""
    own = os.path.realpath(nic)
    return [nic, *(str(path) for path in running_nics() if os.path.realpath(path) != own)][:_MOST_NICS]


def _waited_for(samples: Sequence[NicSample], nic: str) -> str:
    """Describe what this rank's own NIC waits for, where no cause stands out; empty: nothing."""
    answers = [sample.answers[nic] for sample in samples if nic in sample.answers]
    for info in answers[-1].communicators if answers else ():
        if not info.operations:
            continue
        peers = [
            f"rank {link.rank} at {link.remote[0]}:{link.remote[1]}"
            for link in info.links
            if link.expected or link.receiving or link.unacknowledged
        ]
        if peers:
            operation = info.operations[0]
            return f"{operation.call} has waited for {operation.age_s:.1f} s, now for {', '.join(peers)}"
    return ""
