"""Bootstrap of a job: discovers and connects its ranks, and starts NICs on hosts that have none.

Reading order: launch, presence, store, store_exchange, host_address, ways, nic_launcher, discovery, mesh.
"""
