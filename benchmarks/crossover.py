"""From what size on which algorithm is quickest, over real NICs.

python -m benchmarks.crossover [-n 4] [--size 65536 ...] [--algorithm tree ...] [--rate none] [--markdown] [--json FILE]

All-reduces of 256 bytes to 16 MiB a rank, exact and compressed, all algorithms by turns. A few minutes.
"""

from __future__ import annotations

import argparse
import sys

from softnic.bench.allreduce import LINK
from softnic.bench.crossover import Plan, markdown, run
from softnic.bench.rank import ORDINARY, REGISTERED
from softnic.commands import add_json, deliver_json


def main() -> None:
    plan = Plan()
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("-n", "--nodes", type=int, default=plan.nodes, help=f"ranks ({plan.nodes})")
    flags.add_argument("--size", type=int, action="append", help="bytes a rank; may be repeated (256, 1024, ... 16 Mi)")
    flags.add_argument("--algorithm", action="append", help=f"may be repeated ({', '.join(plan.algorithms)})")
    flags.add_argument("--codec", default=plan.codec, help=f"({plan.codec})")
    flags.add_argument("--memory", choices=[ORDINARY, REGISTERED], default=plan.memory, help=f"({plan.memory})")
    flags.add_argument("--rounds", type=int, default=plan.rounds, help=f"medians of so many ({plan.rounds})")
    flags.add_argument("--rate", default=LINK["rate"], help=f"of the links, or none ({LINK['rate']})")
    flags.add_argument("--markdown", action="store_true", help="print the table as docs/algorithms.md has it")
    add_json(flags)
    given = flags.parse_args()
    plan = Plan(
        tuple(given.size or plan.sizes),
        tuple(given.algorithm or plan.algorithms),
        given.codec,
        given.nodes,
        given.rounds,
        given.memory,
        {} if given.rate == "none" else {**LINK, "rate": given.rate},
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
