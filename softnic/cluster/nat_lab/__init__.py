"""Hosts behind NATs on this machine, around a public network with servers, for tests.

kinds.py names the NATs and says which pairs of hosts can connect directly; rules.py makes them of nftables. site.py has
hosts and their routers, core.py the public network, cable.py and carrier.py links with faults, and lab.py all of it.
"""
