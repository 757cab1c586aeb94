"""What can be wrong with the database."""

from forerun.data.errors import CannotStore, InputError


class BadDatabaseUrl(InputError):
    """FORERUN_DATABASE_URL is no address of a PostgreSQL database."""

    slug = "bad-database-url"

    def __init__(self) -> None:
        super().__init__(
            "FORERUN_DATABASE_URL is no address of a PostgreSQL database; it has the form "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        )


class DatabaseAway(CannotStore):
    """The database does not answer now."""

    slug, status = "database-away", 503
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__(
            "Nothing was read or stored: the database of FORERUN_DATABASE_URL does not answer; the "
            "log says why. Ask again when it does; what is in memory is answered meanwhile."
        )


class DatabaseRefused(CannotStore):
    """The database answers, and refused what it was to do."""

    slug, status = "database-refused", 503
    retry_after_s = 10

    def __init__(self, state: str) -> None:
        super().__init__(
            "Nothing was read or stored: the database of FORERUN_DATABASE_URL refused "
            f"(SQLSTATE {state}); the log says why."
        )


class OtherSchema(CannotStore):
    """The tables of the database are not those of this version of forerun."""

    slug, status = "database-schema", 503
    retry_after_s = 10

    def __init__(self, found: str | None, needed: str) -> None:
        if found is None:
            said = "has no tables of forerun yet: run `forerun database upgrade`"
        elif found < needed:
            said = f"has tables of version {found}, and this forerun needs version {needed}: run "
            said += "`forerun database upgrade`"
        else:
            said = f"has tables of version {found}, made by a newer forerun than this one, which "
            said += f"knows version {needed}: install the newer one"
        super().__init__(f"The database of FORERUN_DATABASE_URL {said}.")
