"""The protocols of a node, sans-IO: bytes and `now` in, bytes and events out.

Reading order: ethernet, arp, ipv4, icmp; segment, headers, frames; tcp; liveness, counters; host, where they meet.
"""
