"""Renews the stored answers on purpose, or prints how today's answers differ from them.

python -m tests.golden compare [KIND ...]
python -m tests.golden renew [KIND ...]
"""

import argparse
import sys

from tests.golden.ask import all_kinds, comparison_of, renewed
from tests.golden.compare import report


def main() -> int:
    """1 where something differs and was not renewed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("compare", "renew"))
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="all kinds when none is named")
    parser.add_argument(
        "--tolerance",
        type=float,
        help="relative change of a number that counts as none; by kind when absent",
    )
    parser.add_argument("--lines", type=int, default=100, help="most differences printed")
    given = parser.parse_args()
    strange = sorted(set(given.kinds) - set(all_kinds()))
    if strange:
        parser.error(f"no kind {strange[0]!r}; there are {', '.join(all_kinds())}")
    chosen = given.kinds or all_kinds()
    ask = renewed if given.action == "renew" else comparison_of
    comparisons = [ask(kind, given.tolerance) for kind in chosen]
    print(report(comparisons, given.lines))
    return int(given.action == "compare" and any(one.differences for one in comparisons))


if __name__ == "__main__":
    sys.exit(main())
