"""Soak: random programs with random faults between processes, as long as one likes.

python -m tests.soak MINUTES [SEED] [--processes 4 8]
python -m tests.soak --again KIND SEED PROCESSES [SECONDS]    # one round of before
"""

import sys
from argparse import ArgumentParser

from tests.soak.soak import run_again, soak


def main() -> int:
    """Run what the command line asks for; return how many rounds went wrong, at most 1."""
    parser = ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=1.0)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--processes", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--only", nargs="+", default=[], help="kinds of rounds")
    parser.add_argument("--again", nargs="+", metavar="KIND SEED PROCESSES [SECONDS]")
    args = parser.parse_args()
    if args.again:
        kind, *numbers = args.again
        tally = run_again(kind, int(numbers[0]), int(numbers[1]), *map(float, numbers[2:]))
    else:
        tally = soak(args.minutes, args.seed, args.processes, args.only)
    print(f"\n{tally}", flush=True)
    for spec, wrong in tally.wrong:
        print(f"\n# round {spec.seed}, {spec.kind}, {spec.size} processes\n{spec.command}\n" + "\n".join(wrong))
    print(f"\n{len(tally.wrong)} rounds went wrong", flush=True)
    return min(1, len(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
