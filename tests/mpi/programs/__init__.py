"""Random programs of mixed collectives over real NICs, each made of its seed alone.

python -m tests.mpi.programs --count 1000 --seed 0

program.py makes a program of a seed; rank.py is a rank that runs one after the other and checks results against numpy
(check.py); runner.py keeps clusters and ranks alive for many programs, and compares what the ranks say they hold.
"""
