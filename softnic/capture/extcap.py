"""The protocol between Wireshark and a program that captures for it (extcap), and the end of such a capture.

Wireshark runs the program four times: for the list of its interfaces, for the link types and the options of one, and to
capture from it into a FIFO. Answers are lines of sentences, `interface {value=NAME}{display=TEXT}`
(Wireshark Developer's Guide, "Extcap: Developer Reference").
"""

from __future__ import annotations

import re
import select
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from softnic.capture.pcapng import LINKTYPE_ETHERNET, MAX_SNAPLEN
from softnic.capture.recorder import Recorder

ALL = "softnic-all"
"""The interface of all NICs together."""
SIDES = {"both": "host and wire", "host": "host only (what TCP sees)", "wire": "wire only (frames, floats encoded)"}
"""Choices of the option --side, with their texts in Wireshark's dialog."""
_TICK_S = 0.2


@dataclass(frozen=True)
class LiveNic:
    """A NIC that answers."""

    path: str
    """Its control socket."""
    name: str
    ip: str
    pid: int


@dataclass(frozen=True)
class ExtcapInterface:
    """An interface in Wireshark's list."""

    name: str
    """As given to `tshark -i`."""
    display: str
    paths: tuple[str, ...]
    """Control sockets of the NICs whose packets it shows."""


def interfaces_of(nics: Sequence[LiveNic]) -> list[ExtcapInterface]:
    """Return an interface for each NIC, and one for all if there are several.

    A NIC whose name is not unique, as with two clusters, has its process id in the name.
    """
    names = Counter(_word(nic.name) for nic in nics)
    found = []
    for nic in nics:
        unique = names[_word(nic.name)] == 1
        name = f"softnic-{_word(nic.name)}" + ("" if unique else f"-{nic.pid}")
        rank = re.fullmatch(r"node(\d+)", nic.name)
        who = f"rank {rank[1]}" if rank else _word(nic.name)
        found.append(
            ExtcapInterface(name, f"softnic: {who} ({nic.ip}{'' if unique else f', pid {nic.pid}'})", (nic.path,))
        )
    if len(nics) > 1:
        found.append(ExtcapInterface(ALL, f"softnic: all {len(nics)} NICs", tuple(nic.path for nic in nics)))
    return found


def interface_list(interfaces: Iterable[ExtcapInterface], version: str) -> str:
    """Return the answer to --extcap-interfaces."""
    lines = [f"extcap {{version={version}}}{{display=softnic NICs}}"]
    lines += [f"interface {{value={one.name}}}{{display={one.display}}}" for one in interfaces]
    return "\n".join(lines)


def link_types() -> str:
    """Return the answer to --extcap-dlts."""
    return f"dlt {{number={LINKTYPE_ETHERNET}}}{{name=EN10MB}}{{display=Ethernet}}"


def options() -> str:
    """Return the answer to --extcap-config: --side and --snaplen."""
    side = "arg {number=0}{call=--side}{display=Sides}{tooltip=Which sides of the NIC to capture}{type=selector}"
    snaplen = "arg {number=1}{call=--snaplen}{display=Bytes of each packet}{tooltip=0: all}{type=unsigned}"
    values = (
        f"value {{arg=0}}{{value={value}}}{{display={text}}}{{default={'true' if value == 'both' else 'false'}}}"
        for value, text in SIDES.items()
    )
    return "\n".join([side, *values, f"{snaplen}{{range=0,{MAX_SNAPLEN}}}{{default=0}}"])


def wait_for_end(recorder: Recorder, output: BinaryIO, stop: threading.Event) -> None:
    """Return when `stop` is set, the recording ends by itself, or the reader of `output` (a FIFO) closes it.

    The last is noticed without a packet to write.
    """
    reader = select.poll()
    reader.register(output, 0)  # POLLERR, which comes unasked: nobody has the FIFO open for reading
    while not stop.wait(_TICK_S):
        if recorder.wait(0) or reader.poll(0):
            return


def _word(name: str) -> str:
    """Return a NIC's name without what has a meaning in sentences and in command lines."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII) or "nic"
