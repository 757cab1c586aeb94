"""The parent of several workers keeps what it has where loading anew fails."""

import gc

import pytest
from fastapi import FastAPI

from forerun.service.http.processes import _Application


@pytest.fixture(autouse=True)
def _collected_as_before():
    yield
    gc.unfreeze()


def test_an_application_that_cannot_be_loaded_anew_stays():
    made = [FastAPI(), FastAPI()]
    parent = _Application(made.pop, {"workers": 2})
    first = parent.wsgi()
    parent.reload()
    second = parent.wsgi()
    assert second is not first
    parent.reload()
    assert parent.wsgi() is second
    assert gc.isenabled()
