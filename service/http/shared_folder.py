"""The folder that the processes of one service share: counters, and who asks the registry."""

import os
import shutil
import tempfile
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Variable that names the folder; prometheus_client reads it when it is imported."""
MEMORY = Path("/dev/shm")  # noqa: S108


def make() -> Path:
    """Make the folder and name it in the environment, before prometheus_client is imported.

    It is in memory where possible: a mapped file on a full disk would end the process that writes
    to it.
    """
    where = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="forerun-", dir=where))
    os.environ[VARIABLE] = str(folder)
    return folder


def remove() -> None:
    """Remove the folder."""
    shutil.rmtree(os.environ[VARIABLE], ignore_errors=True)


def in_use() -> Path | None:
    """The folder; None where one process serves alone."""
    named = os.environ.get(VARIABLE)
    return None if named is None else Path(named)
