"""MPI's face: communicators and their calls, by mpi4py's names. `softnic.MPI` has the names that programs use.

Reading order: handles, constants, datatypes, operators, arguments; requests; the calls of communicators: collectives,
p2p, topology; then state, communicator, intercommunicators, and many calls at a time: progress_loop.
"""
