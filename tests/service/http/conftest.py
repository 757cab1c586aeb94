"""The log of an application, line by line."""

import json

import pytest

from tests.service.conftest import client_of


@pytest.fixture
def logged_as(settings, loaded, capsys):
    """Runs work with a client; returns the lines of the log about an event, and the whole log."""

    def after(event, work, **given):
        with client_of(settings, loaded, "http://127.0.0.1", **given) as client:
            capsys.readouterr()
            work(client)
        text = capsys.readouterr().err
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line["event"] == event], text

    return after
