"""LGC (Abrahamyan et al., 2021): published figures, and the items that reproduce them."""
