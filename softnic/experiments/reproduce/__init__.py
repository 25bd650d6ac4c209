"""The papers' tables and figures, made again: each beside what the paper gives, with what differs in the set-up.

`paper.py` holds the published figures and nothing else does; an item (`table3.py`, `fig14.py`, ...) measures, and
returns a `report.Item`: tables, what differs, what does not hold, and how to draw it. Only measurements are ours.
"""
