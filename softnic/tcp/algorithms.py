"""The congestion control algorithms, by the names that TCP_CONGESTION and configurations have for them, Linux's."""

from __future__ import annotations

from softnic.tcp.bbr import Bbr
from softnic.tcp.congestion import Congestion
from softnic.tcp.cubic import Cubic
from softnic.tcp.reno import Reno

ALGORITHMS: dict[str, type[Congestion]] = {algorithm.name: algorithm for algorithm in (Cubic, Reno, Bbr)}
