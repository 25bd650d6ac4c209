"""Captures: pcapng files, the taps that fill them, and what can be told from them afterwards.

Reading order: pcapng (the blocks), reader (a file to columns), frames (host segments as frames), taps (a running node
to blocks), merge and recorder (many nodes to one file), packets, flows, streams (columns to flows and floats), report
and tables (answers, for programs and people), scapy_layer.
"""
