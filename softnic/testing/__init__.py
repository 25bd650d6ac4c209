"""Whole worlds from a seed: machines with NICs and programs on a bad network, in one process, in virtual time.

A seed says everything: how many machines there are, what their NICs, links, clocks and programs are like, and what goes
wrong when. A world is run until all its programs have ended and nothing is left of them, and what must always hold is
looked at all the way. Where it does not, that is a `Violation`; the same seed brings it about again, to the byte:

    python -m softnic.testing --seeds 1000            # looks for one
    python -m softnic.testing --seed 17 --capture f.pcapng   # shows it

Reading order: clock.py, way.py (what a machine has of time and network); scripts.py, plan.py (what a seed makes of a
world); talk.py, programs.py, teams.py (who runs on machines, and compares what comes with what was said); machine.py,
check.py, world.py; recording.py, soak.py and the command, __main__.py.
"""

from softnic.testing.check import Violation
from softnic.testing.plan import Plan, draw
from softnic.testing.world import World

__all__ = ["Plan", "Violation", "World", "draw"]
