"""What commands say of a NIC that meets the nodes of a job, and of peers that it reaches by a relay."""

from __future__ import annotations

from softnic.ipc.control import NicStats


def meeting_lines(stats: NicStats) -> list[str]:
    """Return a line about the job, of a NIC that meets its nodes."""
    found = stats.meeting
    if found is None:
        return []
    parts = [f"{found.known} of {found.nodes} nodes known", f"{found.direct} direct", f"{found.relayed} relayed"]
    if found.waiting:
        parts.append(f"no way yet to {', '.join(found.waiting)}")
    parts.append(f"NAT {found.nat}")
    if not found.registered:
        parts.append("no meeting server answers")
    elif found.tcp:
        parts.append("meeting server by TCP")
    if found.refusal:
        parts.append(f"refused: {found.refusal}")
    return [f"job: {', '.join(parts)}"]


def relay_lines(stats: NicStats) -> list[str]:
    """Return a line for each peer that a NIC reaches by a relay."""
    relayed = [(way, f" (node {way.relay})" if way.relay else "") for way in stats.ways if way.relayed]
    return [f"{stats.info.name}  {way.peer} relayed by {way.address}{node}" for way, node in relayed]
