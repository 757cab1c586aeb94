"""What can be wrong with a store: it is full, or one of its files is damaged."""

from pathlib import Path

from forerun.data.errors import CannotStore, InputError
from forerun.service.log import log


class StoreFull(CannotStore):
    """The store holds as much as it may."""

    slug, status = "store-full", 507


class StillInUse(InputError):
    """What was to be deleted is needed by measurements that are in use."""

    slug, status = "still-in-use", 409


def log_damage(path: Path, why: Exception) -> None:
    """Log a file that is left out because it cannot be read or does not hold what it should."""
    log().error("a stored file is damaged and left out", file=str(path), why=str(why)[:500])
