"""`from mpi4py import MPI` returns softnic.MPI itself, so that its objects have one class under both names."""

from __future__ import annotations

import sys

from softnic import MPI

sys.modules[__name__] = MPI
