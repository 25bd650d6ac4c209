"""Figures of the documentation, each from a kept result with its command, machine and commit.

`python -m benchmarks.figures`. published.py lists the figures and what their rows say, kept.py measures and keeps them
and finds those whose code has changed since.
"""
