"""What can be wrong with a store: it is full, or one of its files is damaged."""

from forerun.data.errors import InputError
from forerun.service.log import log


class StoreFull(InputError):
    """The store is full."""

    slug, status = "store-full", 507


def log_damage(name: str, why: Exception) -> None:
    """Log a file that is left out because it does not hold what it should."""
    log().error("a stored file is damaged and left out", file=name, why=str(why)[:500])
