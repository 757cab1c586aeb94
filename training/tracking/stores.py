"""Inspect MLflow stores without importing mlflow, which takes seconds."""

import json
import os
from pathlib import Path
from typing import Final

MODEL: Final = "forerun"
"""Name of the registered model."""
_SQLITE: Final = "sqlite:///"
_ABSENT: Final = "RESOURCE_DOES_NOT_EXIST"


def database_file(uri: str) -> Path | None:
    """The file behind an SQLite URI; None for any other store."""
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def stamp(uri: str, timeout_s: float) -> str | None:
    """A text that changes when a version or an alias of the model changes; None if unknown.

    For an SQLite file it changes with every write; for a server only with the aliases.

    Args:
        uri: as in `forerun.training.tracking.runs.tracking_uri`.
        timeout_s: how long to wait for a server, seconds.
    """
    file = database_file(uri)
    if file is not None:
        return _of_file(file)
    return _of_server(uri, timeout_s) if uri.startswith(("http://", "https://")) else None


def _of_file(file: Path) -> str | None:
    try:
        file_status = file.stat()
        log = Path(f"{file}-wal")  # what is committed is in this file first, in SQLite's mode WAL
        parts = (file_status, log.stat()) if log.exists() else (file_status,)
    except OSError:
        return None
    return json.dumps([[status.st_ino, status.st_size, status.st_mtime_ns] for status in parts])


def _of_server(uri: str, timeout_s: float) -> str | None:
    """The aliases that the REST API reports; None if this client gets no answer.

    https://mlflow.org/docs/latest/rest-api.html, `registered-models/get`.
    """
    import requests

    names = ("USERNAME", "PASSWORD", "TOKEN")
    user, password, token = (os.environ.get(f"MLFLOW_TRACKING_{name}") for name in names)
    try:
        answer = requests.get(
            f"{uri.rstrip('/')}/api/2.0/mlflow/registered-models/get",
            params={"name": MODEL},
            auth=(user, password) if user and password else None,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=timeout_s,
        )
        found = answer.json()
        if found.get("error_code") == _ABSENT:
            return _ABSENT
        model = found["registered_model"]
        aliases = {alias["alias"]: str(alias["version"]) for alias in model.get("aliases", ())}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None
    return json.dumps([model.get("creation_timestamp"), aliases], sort_keys=True)
