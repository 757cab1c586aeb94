"""A PostgreSQL server for the tests of one worker, and databases that processes share."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.postgres import Postgres, postgres_server, programs

if TYPE_CHECKING:
    from forerun.service.stores.database.connections import Database


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("needs the server of PostgreSQL")
    with postgres_server() as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Callable[[str], "Database"]]:
    """Opens the database of an address as one more process does; it is closed at the end."""
    from forerun.service.stores.database.connections import Database

    made: list[Database] = []

    def another(url: str) -> Database:
        made.append(Database(url))
        return made[-1]

    yield another
    for each in made:
        each.close()


@pytest.fixture
def connect(postgres, opened) -> Callable[[], "Database"]:
    """Opens one new database with tables as one more process does."""
    from forerun.service.stores.database.upgrading import upgraded

    url = postgres.new_database()
    upgraded(opened(url))
    return lambda: opened(url)
