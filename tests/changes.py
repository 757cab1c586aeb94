"""What changed, and which tests it may concern: floors import only from floors below."""

import re
import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path

from tests.house.sources import FLOORS, REPOSITORY

TEXTS = {".github", "CHANGELOG.md", "README.md", "deploy", "docs", "notebooks", "scripts"}
"""What no test of a floor below `training` reads."""


def changed_files(folder: Path = REPOSITORY) -> frozenset[str] | None:
    """Files that differ from where this branch left `main`, or on `main` from the commit before.

    None where git does not know that, as in a clone of one commit.
    """

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    branch = git("merge-base", "HEAD", "main")
    base = git("rev-parse", "HEAD~1") if branch == git("rev-parse", "HEAD") else branch
    if not base:
        return None
    named = git("diff", "--name-only", *base) + git("ls-files", "-o", "--exclude-standard")
    return frozenset(named)


def lowest_floor(changed: Collection[str]) -> int:
    """Place in `FLOORS` of the lowest floor that changed, with its tests.

    It is 0 where something changed that belongs to no floor, such as a version of a library.
    """
    rooms = {name.removeprefix("tests/").partition("/")[0] for name in changed}
    floors = {"training" if room in TEXTS else room for room in rooms}
    return min((FLOORS.index(own) if own in FLOORS else 0 for own in floors), default=len(FLOORS))


@cache
def floor_of(test: Path) -> int:
    """Place in `FLOORS` of the highest floor that a file of tests reads: its own or one it names.

    Tests that mirror no floor are about the whole.
    """
    own = test.relative_to(REPOSITORY / "tests").parts[0]
    if own not in FLOORS:
        return len(FLOORS) - 1
    named = re.findall(rf"\b(?:forerun|tests)\.({'|'.join(FLOORS)})\b", test.read_text("utf-8"))
    return max(map(FLOORS.index, (own, *named)))
