"""Captures: pcapng files, the taps that fill them, and what can be told from them afterwards.

Reading order: pcapng (the blocks), reader (files to columns), frames (host segments as frames), taps (a running
node to blocks), merge (many nodes to one file), packets, flows, streams, report (columns to answers), scapy_layer.
"""
