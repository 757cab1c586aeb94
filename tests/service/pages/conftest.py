"""Pages in a real browser, against one real server with the bundled predictors."""

import pytest

from tests.service.pages.harness import ARGUMENTS, BROWSER, Visit, sync_api, wait_for_charts
from tests.service.real_server import real_server


@pytest.fixture(scope="session")
def pages_server(tmp_path_factory):
    """The base address of a server that all tests of pages share."""
    home = tmp_path_factory.mktemp("home")
    with real_server(home, environment={"FORERUN_MAX_UPLOAD_MIB": "2"}) as server:
        yield server.url


@pytest.fixture(scope="session")
def browser():
    if sync_api is None or BROWSER is None:
        pytest.skip("no Chromium, or no playwright")
    with sync_api.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page_at(pages_server, browser):
    """A function that opens a path in a window of some width and colour scheme.

    Whatever it opened is checked at the end: no error of a script, no request to another host.
    """
    visits = []

    def opened(path="/", width=1280, scheme="light", scripts=True):
        visit = Visit(browser, pages_server, width, scheme, scripts)
        visits.append(visit)
        visit.page.goto(pages_server + path)
        if scripts:
            wait_for_charts(visit.page)
        return visit.page

    yield opened
    for visit in visits:
        visit.close()
