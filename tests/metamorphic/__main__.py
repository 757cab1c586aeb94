"""All laws on the large grid, as a table.

python -m tests.metamorphic [--small] [--json FILE] [LAW ...]
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tests.metamorphic import all_laws
from tests.metamorphic.law import LARGE, SMALL, Outcome, outcome


def main() -> None:
    """Print the table, law by law."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.metamorphic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("laws", nargs="*", metavar="LAW", help="all when none is named")
    parser.add_argument("--small", action="store_true", help="the grid of the tests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")
    given = parser.parse_args()
    strange = sorted(set(given.laws) - set(all_laws()))
    if strange:
        parser.error(f"no law {strange[0]!r}; there are {', '.join(all_laws())}")
    grid = SMALL if given.small else LARGE
    found: list[Outcome] = []
    print("law | pairs | violations | share | worst")
    for name in given.laws or all_laws():
        one = outcome(name, grid)
        found.append(one)
        worst = f"{100 * one.worst:.3g} % {one.question}" if one.violations else ""
        print(f"{name} | {one.pairs:,} | {one.violations:,} | {100 * one.share:.2f} % | {worst}",
              flush=True)  # fmt: skip
    if given.json:
        rows = [asdict(one) | {"share": one.share} for one in found]
        given.json.write_text(json.dumps({"laws": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
