"""The log of an application, line by line."""

import json

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.app import create_app


@pytest.fixture
def logged_as(settings, loaded, capsys):
    """Runs work with a client; returns the lines of the log about an event, and the whole log."""

    def after(event, work, **given):
        app = create_app(settings.model_copy(update=given), loaded)
        with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
            capsys.readouterr()
            work(client)
        text = capsys.readouterr().err
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line["event"] == event], text

    return after
