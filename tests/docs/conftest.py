"""What runs a whole page waits for a change of that page where `--changed` is given."""

import pytest

from tests.changes import changed_files


@pytest.fixture(scope="session")
def changed(request):
    """Files that changed; None where all pages are to run."""
    return changed_files() if request.config.getoption("--changed") else None


@pytest.fixture
def if_changed(changed):
    """Skips a test that runs a page unless a file that begins so changed."""

    def check(*beginnings):
        if changed is not None and not any(name.startswith(beginnings) for name in changed):
            pytest.skip("the page did not change: `make test-docs` runs it")

    return check
