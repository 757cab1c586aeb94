"""Fixtures of the collectors' tests."""

import pytest


@pytest.fixture(scope="session")
def programs_home(tmp_path_factory):
    """Where the C programs are compiled once for all tests."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def compiled(programs_home, monkeypatch):
    """The user's folder is one of this test run's own."""
    monkeypatch.setenv("FORERUN_HOME", str(programs_home))
