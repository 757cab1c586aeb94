"""Seconds that some work takes, and the application next to an endpoint that does nothing."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.http.app import create_app
from forerun.service.settings import Settings


def seconds(work: Callable[[], Any]) -> float:
    """Seconds of one run of some work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def clients(predictors: LoadedPredictor) -> Iterator[tuple[TestClient, TestClient]]:
    """Clients of the application, and of an endpoint that returns a constant."""
    bare = FastAPI()
    bare.post("/")(lambda: {})
    with tempfile.TemporaryDirectory() as home:
        app = create_app(Settings(home=Path(home)), predictors)
        with TestClient(app) as client, TestClient(bare) as other:
            yield client, other
