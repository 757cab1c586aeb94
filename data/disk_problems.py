"""What keeps a folder from being written: errors of the operating system, with a remedy."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EEXIST, EFBIG, ENOSPC, ENOTDIR, EROFS
from pathlib import Path
from typing import Final

from forerun.data.errors import CannotStore, DiskFull

HOME: Final = "FORERUN_HOME"
TEMPORARY: Final = "TMPDIR"
LEAST_FREE_BYTES: Final = 2**16
"""Free space below which a disk counts as full: smaller than many an operator graph."""
_NO_ROOM: Final = frozenset({ENOSPC, EDQUOT, EFBIG})
_NO_FOLDER: Final = frozenset({EEXIST, ENOTDIR})


@contextmanager
def writing_to(variable: str) -> Iterator[None]:
    """Turn errors of the operating system in the block into problems with a remedy.

    Args:
        variable: environment variable of the folder that the block writes to.

    Raises:
        DiskFull: there is no room, or no more of the user's quota.
        CannotStore: it cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        raise problem_of(error, variable) from error


def problem_of(error: OSError, variable: str) -> CannotStore:
    """The problem that an error of the operating system is, while a folder is written.

    Args:
        error: what went wrong.
        variable: environment variable of the folder.
    """
    if error.errno in _NO_ROOM:
        return DiskFull(
            f"Nothing was stored: the disk of the folder {variable} is full. Free some space "
            "there; questions are answered meanwhile."
        )
    why = error.strerror or type(error).__name__
    if error.errno in _NO_FOLDER:
        why = "there is a file where a folder should be"
    return CannotStore(
        f"Nothing was stored: the folder {variable} cannot be written ({why}). Make it writable, "
        "or let the variable name another folder; questions are answered meanwhile."
    )


def obstacle(folder: Path, variable: str) -> CannotStore | None:
    """What would keep a file from being written to a folder, which need not exist yet.

    Nothing is written to find out, so quotas and faults of the disk are not noticed.

    Args:
        folder: the folder.
        variable: its environment variable.

    Returns:
        The problem; None where none is known.
    """
    try:
        place = next(place for place in (folder, *folder.parents) if place.exists())
        disk = os.statvfs(place)
    except OSError as error:
        return problem_of(error, variable)
    if not place.is_dir():
        return problem_of(OSError(ENOTDIR, os.strerror(ENOTDIR)), variable)
    if not os.access(place, os.W_OK | os.X_OK):
        code = EROFS if disk.f_flag & os.ST_RDONLY else EACCES
        return problem_of(OSError(code, os.strerror(code)), variable)
    no_names = disk.f_files > 0 and disk.f_favail == 0
    if no_names or disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
        return problem_of(OSError(ENOSPC, os.strerror(ENOSPC)), variable)
    return None
