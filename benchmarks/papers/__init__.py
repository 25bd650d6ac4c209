"""The papers' tables and figures, reproduced: each beside the published figures, with the differences of the set-up.

A package per paper has `paper.py` with the published figures, nothing else, and a module per table or figure
(`inceptionn/table3.py`, `lgc/fig14.py`, ...), whose function `make` measures and returns an `item.Item`. To add one,
write its module and name it in `items.py`. What a paper claims is `claims.toml`, in words with the limits of verdicts,
and `evidence.py` finds the figures in the results. Trainings of several workers in one process are `workers.py`.
"""
