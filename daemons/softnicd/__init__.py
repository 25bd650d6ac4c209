"""The daemon: one NIC for the programs of a node. It feeds, drains and waits; what is done with bytes is softnic's.

Reading order: config; what it looks after beside bytes: journal, programs, watch; what programs have of it: regions,
registered, groups, streams, table; how they ask for that: server, requests; and the pump: selector, wire, daemon, or
tapped where the host is a kernel.
"""
