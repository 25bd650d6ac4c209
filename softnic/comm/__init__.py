"""Communicators: ranks, messages and collectives over a NIC's sockets.

Reading order: errors, launch, schedule (pure), operations, buffers; then transport, wire, progress, rendezvous,
matching, collective (how bytes move); then world, base, p2p, collectives, objects, communicator (the calls).
`softnic.MPI` is the face of all this.
"""
