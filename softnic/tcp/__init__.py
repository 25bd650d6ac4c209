"""TCP (RFC 9293), without input or output: segments and the time go in, segments come out.

Reading order: host (a node's connections), connection and flow (the state of one), input and ack (what arrives),
output (what leaves), timers; recovery and rack (what was lost), congestion and its algorithms (how much may be under
way). The steps of an established connection are in C: fast_path (native/tcp/fast_path.h).
"""
