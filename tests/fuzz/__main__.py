"""`python -m tests.fuzz --cases N`: generated and mutated requests to the bundled predictors.

The application runs in this process, with its real start-up. The seed is printed; with the same
seed and number a case is the same again. Requests that broke a promise are written as files, which
belong into `tests/fuzz/cases` once the defect is mended: a test asks them again.
"""

import argparse
import secrets
import sys
from pathlib import Path

from forerun.models.artifact.sealed_folder import bundled
from tests.fuzz.asked import Asked
from tests.fuzz.generated import generated_cases
from tests.fuzz.mutated import mutated_cases
from tests.fuzz.promises import promises_broken_by
from tests.fuzz.service import in_process

CASES_OF_ONE_HOME = 500
"""After so many cases the application starts anew in an empty home, so that stores stay small."""
LISTED = 8


def main() -> int:
    """Run the cases; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="cases of each kind")
    parser.add_argument("--kind", choices=("generated", "mutated"), help="one kind alone")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--first", type=int, default=0, help="number of the first mutated case")
    parser.add_argument("--save", type=Path, help="folder for requests that broke a promise")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    found = _Found(given.save)
    if given.kind != "generated":
        _mutated(found, given.seed, range(given.first, given.first + given.cases))
    if given.kind != "mutated":
        with in_process(bundled()) as client:
            generated_cases(client, given.cases, given.seed, found.note)
    return found.report()


def _mutated(found: "_Found", seed: int, numbers: range) -> None:
    loaded = bundled()
    for start in range(numbers.start, numbers.stop, CASES_OF_ONE_HOME):
        part = range(start, min(start + CASES_OF_ONE_HOME, numbers.stop))
        with in_process(loaded) as client:
            for number, asked in mutated_cases(client, seed, part):
                answer = asked.sent(client)
                found.note(asked, promises_broken_by(asked, answer), answer.status_code)
                found.took(f"{number}: {asked.name}", answer.elapsed.total_seconds())
        print(f"{part.stop} mutated cases, {len(found.wrong)} wrong", flush=True)


class _Found:
    """What came of the cases: statuses, broken promises, the slowest."""

    def __init__(self, save: Path | None) -> None:
        self.wrong: dict[str, Asked] = {}
        self._save, self._statuses, self._slow = save, dict[int, int](), list[tuple[float, str]]()

    def note(self, asked: Asked, promises: list[str], status: int) -> None:
        """Count a case, and keep it where it broke a promise."""
        self._statuses[status] = self._statuses.get(status, 0) + 1
        for promise in promises[:1]:
            self.wrong[f"{asked.name}: {promise}"] = asked
            print(f"WRONG {asked.name}\n      {promise}", flush=True)
            if self._save is not None:
                self._save.mkdir(parents=True, exist_ok=True)
                asked.save(self._save / f"{len(self.wrong):04}.json", promise)

    def took(self, name: str, seconds: float) -> None:
        """Keep the slowest cases."""
        self._slow = sorted([*self._slow, (seconds, name)], reverse=True)[:LISTED]

    def report(self) -> int:
        """Print the summary; 1 when a promise was broken."""
        print(f"statuses {dict(sorted(self._statuses.items()))}")
        for seconds, name in self._slow:
            print(f"{seconds:6.2f} s  {name}")
        print(f"{sum(self._statuses.values())} cases, {len(self.wrong)} wrong")
        return 1 if self.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
