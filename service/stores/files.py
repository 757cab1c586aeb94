"""Files that are either whole or not there, also after a power cut."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file; when this returns, text and name are on disk.

    Raises:
        OSError: no room or no right; what stood there before still does.
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
    # The name is an entry of the folder, which has a cache of its own.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
