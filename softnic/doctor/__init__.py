"""What is wrong on this host and between hosts: the checks of `softnic doctor`.

Reading order: findings.py (what a check says), host.py (kernel, limits, CPU, clock), running.py (NICs that run here),
probes.py (the datagrams between two hosts), listener.py and client.py (the side that answers, the side that asks),
path.py (peer, firewall, versions, key, clock, MTU), speed.py (codecs, and which of them pays).
"""
