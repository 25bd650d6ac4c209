"""Programs written for mpi4py run on softnic.MPI, unchanged.

    softnic run -n 4 --mpi4py -- python program.py      # one node for each rank, on this machine
    mpirun -n 4 python -m softnic.mpi4py program.py     # any launcher that softnic.MPI knows
    import softnic.mpi4py; softnic.mpi4py.install()     # before the first `from mpi4py import MPI`

All three put the folder `onpath` first on the module search path. It has a package `mpi4py` whose module `MPI` is
softnic.MPI. The other modules of that package, such as `mpi4py.futures`, `mpi4py.util` and `mpi4py.run`, are those of
the installed mpi4py, if there is one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["environment", "install"]

ON_PATH = str(Path(__file__).with_name("onpath"))
"""The folder with the package `mpi4py`."""


def install() -> None:
    """Have `import mpi4py` find softnic's package, in this process and in those that it starts.

    Raises
    ------
    RuntimeError
        If this process has already imported the installed mpi4py.
    """
    imported = sys.modules.get("mpi4py")
    if imported is not None and not str(imported.__file__).startswith(ON_PATH):
        raise RuntimeError(
            f"{imported.__file__} is already imported: call softnic.mpi4py.install() before `import mpi4py`"
        )
    if ON_PATH not in sys.path:
        sys.path.insert(0, ON_PATH)
    os.environ.update(environment(os.environ))


def environment(current: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that have Python processes find softnic's package `mpi4py`.

    Parameters
    ----------
    current
        The environment without them.
    """
    others = [place for place in current.get("PYTHONPATH", "").split(os.pathsep) if place and place != ON_PATH]
    return {"PYTHONPATH": os.pathsep.join([ON_PATH, *others])}
