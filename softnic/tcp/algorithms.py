"""The congestion control algorithms, by the names that TCP_CONGESTION and configurations have for them: Linux's, and
"auto", which chooses one of them."""

from __future__ import annotations

from softnic.tcp.auto import Auto
from softnic.tcp.bbr import Bbr
from softnic.tcp.congestion import Congestion
from softnic.tcp.cubic import Cubic
from softnic.tcp.reno import Reno

ALGORITHMS: dict[str, type[Congestion]] = {algorithm.name: algorithm for algorithm in (Auto, Cubic, Reno, Bbr)}
_NAMES = {algorithm.number: algorithm.name for algorithm in (Cubic, Reno, Bbr)}


def name_in_use(congestion: Congestion) -> str:
    """Returns the name of an algorithm, with that of the one that "auto" has chosen."""
    used = _NAMES[congestion.algorithm]
    return f"{congestion.name}: {used}" if congestion.by_path else used
