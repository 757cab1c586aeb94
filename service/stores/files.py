"""Atomic, durable writes: a file is complete or absent, also after a power failure."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically; on return its content and name are on disk.

    Raises:
        OSError: the file cannot be written; the previous file remains.
    """
    draft = tempfile.NamedTemporaryFile(  # noqa: SIM115
        "w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8"
    )
    try:
        with draft:
            draft.write(text)
            draft.flush()
            os.fsync(draft.fileno())
        Path(draft.name).replace(path)
    except BaseException:
        Path(draft.name).unlink(missing_ok=True)
        raise
    # The file's name is an entry of the folder, which must be flushed separately.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
