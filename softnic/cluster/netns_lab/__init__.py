"""Virtual hosts on this machine, each a network namespace, and cables between them, for tests and benchmarks.

host.py has the hosts and a perfect cable, cable.py a cable with faults, and carrier.py the process that emulates these.
"""
