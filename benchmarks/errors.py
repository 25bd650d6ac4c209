"""How wrong reductions are: every algorithm with every codec, from 2 to 64 ranks, against exact sums.

python -m benchmarks.errors [--codec bounded:8 ...] [--ranks 4 ...] [--data hdc] [--markdown] [--json FILE]

The schedules and codecs of real calls, in one process without a network; and all ranks must end with the same bits.
"""

from __future__ import annotations

import argparse
import sys

from softnic.bench.errors import Plan, markdown, run
from softnic.commands import add_json, deliver_json


def main() -> None:
    plan = Plan()
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--codec", action="append", help=f"or exact; may be repeated ({', '.join(plan.codecs)})")
    flags.add_argument("--algorithm", action="append", help=f"may be repeated ({', '.join(plan.algorithms)})")
    flags.add_argument(
        "--ranks", type=int, action="append", help=f"may be repeated ({', '.join(map(str, plan.ranks))})"
    )
    flags.add_argument("--data", default=plan.data, help=f"as of `softnic bench` ({plan.data})")
    flags.add_argument("--count", type=int, default=plan.count, help=f"floats a rank ({plan.count})")
    flags.add_argument("--markdown", action="store_true", help="print the table as docs/algorithms.md has it")
    add_json(flags)
    given = flags.parse_args()
    plan = Plan(
        tuple(given.codec or plan.codecs),
        tuple(given.algorithm or plan.algorithms),
        tuple(given.ranks or plan.ranks),
        given.data,
        given.count,
    )
    report = run(plan, lambda what: print(what, file=sys.stderr))
    if not deliver_json(given.json, report.as_json()):
        return
    if given.markdown:
        print(markdown(report), end="")
    else:
        report.show()


if __name__ == "__main__":
    main()
