"""The process's side of its NIC: control messages to other ranks, and requests to the NIC.

Reading order: errors; then the NIC: heartbeat, waiting, offload_queue, scratch, nic_memory, zerocopy_channel; then the
other ranks: messages, transport, inbox, outbox, peer, progress, arrivals, matching, message_engine; then how ranks
meet: bootstrap, connections. `softnic.mpi` makes communicators of all this.
"""
