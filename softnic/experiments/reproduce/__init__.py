"""The papers' tables and figures, reproduced: each beside the published figures, with the differences of the set-up.

A package per paper has `paper.py` with the published figures, nothing else, and a module per table or figure
(`inceptionn/table3.py`, `lgc/fig14.py`, ...), whose function `make` measures and returns an `item.Item`. To add one,
write its module and name it in `items.py`.
"""
