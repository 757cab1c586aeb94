"""Pages in a real browser, against one real server with the bundled predictors."""

import socket
import threading

import pytest
import uvicorn

from forerun.service.http.app import create_app
from forerun.service.settings import Settings
from tests.service.pages.harness import BROWSER, Visit, sync_api, wait_for_charts
from tests.waiting import eventually


@pytest.fixture(scope="session")
def pages_server(trained, tmp_path_factory):
    """The base address of a server that all tests of pages share."""
    settings = Settings(home=tmp_path_factory.mktemp("home"), max_upload_mib=2, port=0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    application = create_app(settings, trained)
    config = uvicorn.Config(application, host="127.0.0.1", port=port, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    eventually(lambda: running.started, within_s=60)
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def browser():
    if sync_api is None or BROWSER is None:
        pytest.skip("no Chromium, or no playwright")
    with sync_api.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page_at(pages_server, browser):
    """A function that opens a path in a window of some width and colour scheme.

    Whatever it opened is judged at the end: no error of a script, no request to another host.
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
