"""INCEPTIONN (Li et al., MICRO 2018): published figures, and the items that reproduce them."""
