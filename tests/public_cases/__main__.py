"""Asks all public cases and prints how the answers compare with the published values.

python -m tests.public_cases [--json FILE] [--rows] [--group GROUP ...]
"""

import argparse
import json
from pathlib import Path

from tests.public_cases.ask import Asked, ask
from tests.public_cases.rows import cases
from tests.public_cases.tally import report, tally


def main() -> None:
    """Print the tally, and store it where asked."""
    groups = sorted({case.group for case in cases()})
    parser = argparse.ArgumentParser(
        prog="python -m tests.public_cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the tally")
    parser.add_argument("--rows", action="store_true", help="print every row too")
    parser.add_argument("--group", nargs="+", choices=groups, help="these groups alone")
    given = parser.parse_args()
    asked = ask([case for case in cases() if given.group is None or case.group in given.group])
    counts = tally(asked)
    if given.json:
        given.json.write_text(json.dumps(counts, indent=1) + "\n")
    if given.rows:
        print("\n".join(_line(one) for one in asked), end="\n\n")
    print(report(counts))


def _line(one: Asked) -> str:
    if one.value is None:
        return f"{one.case.id}\trefused\t{one.refusal}"
    figures = (one.case.value, one.value, one.low, one.high)
    written = "\t".join("-" if f is None else f"{f:.4g}" for f in figures)
    state = {True: "inside", False: "outside", None: "no interval"}[one.inside]
    return f"{one.case.id}\t{written}\t{one.grade}\t{state}\t{one.value / one.case.value:.2f}"


if __name__ == "__main__":
    main()
