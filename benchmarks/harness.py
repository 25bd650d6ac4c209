"""Command line of all benchmarks: `python -m benchmarks.NAME [options]` prints tables, or writes JSON."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from softnic.cluster.netns_lab.host import HostError
from softnic.cluster.nic_process import ClusterError
from softnic.commands import add_json, check_writable, deliver_json, exit_on_signals, os_error_text
from softnic.measure import kept
from softnic.measure.progress import shown
from softnic.measure.report import MeasurementError, MeasurementReport, Progress

Measure = Callable[[argparse.Namespace, Progress], Sequence[MeasurementReport[Any]]]
"""Measures with the options given and returns the tables."""


def main(
    name: str, about: str | None, measure: Measure, add_options: Callable[[argparse.ArgumentParser], object]
) -> int:
    """Run a benchmark with the options of the command line.

    Parameters
    ----------
    name : str
        The module under benchmarks.
    about : str
        Its description for --help: the docstring of the module.
    measure : callable
        Takes the options and a progress callback, which it gives each row as soon as it is measured
        (`softnic.measure.progress.as_measured`); returns the reports. Raises MeasurementError, ClusterError or
        HostError if a measurement cannot be made.
    add_options : callable
        Adds the options of the benchmark to the parser.

    Returns
    -------
    int
        The exit code: 0, or 1 after an error in one line.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--markdown", action="store_true", help="print the tables as the documentation has them")
    add_json(parser)
    given = parser.parse_args()
    try:
        check_writable(given.json)
        with exit_on_signals(), shown() as progress:
            reports = measure(given, progress)
    except (MeasurementError, ClusterError, HostError, OSError) as error:
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        print(f"benchmarks.{name}: {text}", file=sys.stderr)
        return 1
    made = {"softnic": kept.version(), "command": shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]])}
    documents = [{**made, **report.as_json()} for report in reports]
    if deliver_json(given.json, documents[0] if len(documents) == 1 else documents):
        for report in reports:
            if given.markdown:
                print(report.markdown(), end="")
            else:
                report.show()
    return 0


def add_rounds(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option for the number of rounds."""
    parser.add_argument(
        "--rounds", type=int, default=default, help=f"number of rounds; medians are reported ({default})"
    )


def require_namespaces() -> None:
    """Raise MeasurementError without the rights and tools for network namespaces."""
    if os.geteuid() or shutil.which("ip") is None or shutil.which("tc") is None:
        raise MeasurementError("network namespaces need root, ip and tc (apt-get install iproute2)")


def set_rank_environment() -> None:
    """Give processes that are started later one thread each, the link of the star and this checkout."""
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": python_path()}


def python_path() -> str:
    """Return the PYTHONPATH of processes that import modules of this checkout."""
    root = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([root, f"{root}/daemons", *filter(None, [os.environ.get("PYTHONPATH")])])
