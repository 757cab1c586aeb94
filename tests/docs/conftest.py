"""What runs a whole page waits for a change of that page, or for `--all-pages`."""

import subprocess

import pytest

from tests.house.sources import REPOSITORY


def changed_files(folder=REPOSITORY):
    """Files that differ from where this branch left `main`, or on `main` from the commit before.

    None where git does not know that, as in a clone of one commit.
    """

    def git(*words):
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    branch = git("merge-base", "HEAD", "main")
    base = git("rev-parse", "HEAD~1") if branch == git("rev-parse", "HEAD") else branch
    if not base:
        return None
    named = git("diff", "--name-only", *base) + git("ls-files", "-o", "--exclude-standard")
    return frozenset(named)


@pytest.fixture(scope="session")
def changed(request):
    """Files that changed; None where all pages are to run."""
    return None if request.config.getoption("--all-pages") else changed_files()


@pytest.fixture
def if_changed(changed):
    """Skips a test that runs a page unless a file that begins so changed."""

    def check(*beginnings):
        if changed is not None and not any(name.startswith(beginnings) for name in changed):
            pytest.skip("the page did not change: `make test-docs` runs it")

    return check
