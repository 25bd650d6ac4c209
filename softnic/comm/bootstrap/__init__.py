"""How the ranks of a job find each other and connect, and start NICs on hosts that have none.

Reading order: launch, presence, store, store_exchange, host_address, nic_launcher, discovery, mesh.
"""
