"""A2DTWP (Zhuang et al.): published figures, and the items that reproduce them."""
