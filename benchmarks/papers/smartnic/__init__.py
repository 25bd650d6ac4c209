"""AI smart NIC (Ma et al., arXiv 2204.10943): the items that reproduce its figures."""
