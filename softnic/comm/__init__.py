"""Communicators: ranks, messages and collectives over a NIC's sockets.

Reading order: errors, launch, schedule (pure), operations, buffers, tasks; then how bytes move: transport, wire,
channel, progress, rendezvous, matching, combining, collective; then the calls: world, base, p2p, collectives, objects,
communicator. `softnic.MPI` is the face of all this.
"""
