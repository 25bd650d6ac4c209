"""`python -m softnic.mpi4py program.py`: run a program that imports mpi4py on softnic.MPI.

The arguments are those of `python`, so that `-m module` and `-c command` work as well.
"""

from __future__ import annotations

import os
import sys

from softnic.mpi4py import environment


def main() -> None:
    """Replace this process by a Python interpreter that runs the program."""
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {**os.environ, **environment(os.environ)})


if __name__ == "__main__":
    main()
