"""Seeded worlds: nodes with NICs and applications on a bad network, in one process, in virtual time.

A seed determines everything: the number of nodes, the properties of their NICs, links, clocks and applications, and
which faults happen when. A world runs until all its applications have ended and nothing is left of them; what must
always hold is checked at every step. If something does not hold, that is a `Violation`, and the same seed reproduces it
to the byte:

    python -m tests.simulation --seeds 1000                  # look for violations
    python -m tests.simulation --seed 17 --capture f.pcapng  # show one

Reading order: local_clock.py, links.py, invariants.py, trace.py, actions.py, scenario.py (what a seed makes of a
world), node.py, tcp_workload.py, collective_calls.py, collective_workload.py (what runs on nodes), faults.py,
recording.py, world.py; seeds.py, soak.py and the command, __main__.py.
"""
