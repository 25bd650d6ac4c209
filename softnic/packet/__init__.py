"""Packet formats: Ethernet, ARP, IPv4, ICMP, TCP headers, segments and batches of frames. Parse and build, no state."""
