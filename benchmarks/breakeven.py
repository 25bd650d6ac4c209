"""Link rate against gain, and what `auto` makes of it.

python -m benchmarks.breakeven [--rate 1gbit ...] [--codec bounded:10] [--simd scalar] [--markdown] [--json FILE]

Two daemons, one stream, emulated links from 10 Mbit/s to none at all; exact, compressed and auto by turns, quotients of
the same round. About three minutes. `--simd scalar` makes the codec slow, and so the break-even come early.
"""

from __future__ import annotations

import argparse
import os
import sys

from softnic.bench.breakeven import Plan, markdown, run
from softnic.commands import add_json, deliver_json


def main() -> None:
    plan = Plan()
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--codec", default=plan.codec, help=f"({plan.codec})")
    flags.add_argument("--rate", action="append", help=f"of a link; may be repeated ({', '.join(plan.rates)})")
    flags.add_argument("--seconds", type=float, default=plan.seconds, help=f"of an exact stream ({plan.seconds:g})")
    flags.add_argument("--rounds", type=int, default=plan.rounds, help=f"medians of so many ({plan.rounds})")
    flags.add_argument("--simd", help="the codecs' implementation in the daemons: scalar, avx2, ...")
    flags.add_argument("--markdown", action="store_true", help="print the table as docs/performance-ledger.md has it")
    add_json(flags)
    given = flags.parse_args()
    if given.simd:
        os.environ["SOFTNIC_SIMD"] = given.simd
    plan = Plan(given.codec, tuple(given.rate or plan.rates), given.seconds, given.rounds)
    report = run(plan, lambda what: print(what, file=sys.stderr))
    if not deliver_json(given.json, report.as_json()):
        return
    if given.markdown:
        print(markdown(report))
    else:
        report.show()


if __name__ == "__main__":
    main()
