"""The application in this process, with its real start-up, in an empty home."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.http.app import create_app
from forerun.service.settings import Settings

CLASSES = """
devices: [l4]
classes:
  - {name: chat, annotations: {forerun.dev/llm: llama-3.1-8b}}
"""


@contextmanager
def in_process(loaded: LoadedPredictor) -> Iterator[TestClient]:
    """A client of the application; a fault inside is an answer of status 500, as over a socket."""
    with tempfile.TemporaryDirectory() as home:
        classes = Path(home) / "classes.yaml"
        classes.write_text(CLASSES)
        app = create_app(Settings(home=Path(home), workload_classes=classes), loaded)
        with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
            yield client
