"""The congestion control algorithms, by the names that TCP_CONGESTION and configurations have for them, Linux's."""

from __future__ import annotations

from softnic.stack.tcp.bbr import Bbr
from softnic.stack.tcp.congestion import Congestion
from softnic.stack.tcp.cubic import Cubic
from softnic.stack.tcp.reno import Reno

ALGORITHMS: dict[str, type[Congestion]] = {algorithm.name: algorithm for algorithm in (Cubic, Reno, Bbr)}
