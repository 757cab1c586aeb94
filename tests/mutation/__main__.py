"""`python -m tests.mutation`: draw mutants, run their nearest tests, print who survived."""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.conftest import REPOSITORY
from tests.mutation.journal import JOURNAL, Journal, key_of
from tests.mutation.mutants import draw, files
from tests.mutation.nearest import nearest_tests
from tests.mutation.trial import KILLED, SURVIVED, TIMEOUT, Trials, copy_of_tree


def arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="how many mutants at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at a time")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one mutant")
    parser.add_argument("--changed", metavar="BASE", help="only files changed since a revision")
    parser.add_argument("--path", nargs="*", default=[], help="only files that begin so")
    parser.add_argument("--also", nargs="*", default=[], help="tests to run on every mutant too")
    parser.add_argument("--journal", type=Path, default=REPOSITORY / JOURNAL)
    parser.add_argument("--least", type=float, default=0.0, help="fail below this share killed")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    return parser.parse_args()


def chosen_files(changed, beginnings):
    """Files to draw from: all, or those changed since a revision, or those that begin so."""
    paths = files(REPOSITORY)
    if changed:
        command = ["git", "diff", "--name-only", changed]
        listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
        paths = [path for path in paths if path in set(listed.stdout.split())]
    return [path for path in paths if not beginnings or path.startswith(tuple(beginnings))]


@contextmanager
def trials(count, timeout_s):
    """As many trials as run at a time, each in a copy of the tree, to take and to put back."""
    with ExitStack() as stack:
        queue = SimpleQueue()
        for _ in range(count):
            queue.put(Trials(stack.enter_context(copy_of_tree()), timeout_s))
        yield queue


def try_all(mutants, journal, given):
    """Try those mutants of which the journal knows no outcome."""

    def try_one(mutant):
        free = queue.get()
        try:
            # The texts that are tried are those of the copy: the tree may be edited meanwhile.
            tests = [*nearest_tests(free.tree, mutant.path), *given.also]
            key = key_of(free.tree, mutant, tests)
            if journal.get(key) is not None:
                return
            outcome = free.outcome(mutant, tests)
            after, text = (
                mutant.after((free.tree / mutant.path).read_text()),
                mutant.text(free.tree),
            )
        finally:
            queue.put(free)
        journal.add(key, mutant, outcome, after, tests)
        print(f"{outcome:9}{text}", flush=True)

    with trials(given.jobs, given.timeout) as queue, ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(try_one, mutants))


def report(mutants, journal, given):
    """Print survivors and shares of a sample; 1 where less than `--least` of it is killed."""
    outcomes = {}
    for mutant in mutants:
        tests = [*nearest_tests(REPOSITORY, mutant.path), *given.also]
        outcome = journal.get(key_of(REPOSITORY, mutant, tests))
        outcomes.setdefault(outcome, []).append(mutant)
    print("\nsurvivors:")
    for mutant in outcomes.get(SURVIVED, []):
        print(f"  {mutant.text(REPOSITORY)}")
    counts = {name: len(found) for name, found in outcomes.items()}
    # Who never ends is noticed as well.
    noticed = counts.get(KILLED, 0) + counts.get(TIMEOUT, 0)
    share = noticed / len(mutants) if mutants else 1.0
    listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"\n{len(mutants)} mutants: {listed or 'none'}; {share:.0%} noticed")
    return int(share < given.least)


def main():
    given = arguments()
    mutants = draw(REPOSITORY, chosen_files(given.changed, given.path), given.sample, given.seed)
    journal = Journal(given.journal)
    if given.list:
        for mutant in mutants:
            print(mutant.text(REPOSITORY))
        return 0
    try_all(mutants, journal, given)
    return report(mutants, journal, given)


if __name__ == "__main__":
    sys.exit(main())
