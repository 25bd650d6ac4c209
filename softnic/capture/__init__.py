"""Captures: pcapng files, what records them at running nodes, and their analysis.

Reading order: pcapng (blocks), capture_file, classic_pcap and reader (a file to columns), frames (host segments as
frames), sink, hook, captured_link (a running node to blocks), merge and recorder (many nodes to one file), packets,
flows, streams (columns to flows and floats), report and tables (results for programs and users), scapy_layer.
"""
