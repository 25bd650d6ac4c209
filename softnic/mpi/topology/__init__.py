"""Topologies: who is a neighbour of whom, and the collectives of neighbours."""
