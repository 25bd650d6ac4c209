"""Hosts of one's own on this machine, each with a kernel's network stack to itself, and cables between them.

Tests and benchmarks are made of them: host.py has the hosts and a cable that loses nothing, cable.py one that is as bad
as it is told to be, and carrier.py is the program in the middle of that.
"""
