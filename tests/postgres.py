"""A PostgreSQL server of the tests' own, in a temporary folder (Debian: `postgresql`)."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

PASSWORD = "a-password-of-tests"
ACCOUNT = "postgres"
"""The account that runs the server where the tests run as root, which PostgreSQL refuses."""


def programs() -> Path | None:
    """The folder of the newest server that is installed; None where there is none."""
    installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    found = sorted(installed, key=lambda program: int(program.parts[4]))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    return None if program is None else Path(program).resolve().parent


needs_postgres = pytest.mark.skipif(
    programs() is None or find_spec("psycopg") is None,
    reason="needs the server of PostgreSQL (Debian: postgresql) and the postgres extra",
)


class Postgres:
    """A server with an empty database, which can be stopped and started again.

    Args:
        folder: an empty folder, which the server's account may enter.
    """

    def __init__(self, folder: Path) -> None:
        self._data, self._log = folder / "data", folder / "log"
        self._port = _free_port()
        self._databases = 0
        given = folder / "password"
        given.write_text(PASSWORD)
        if os.geteuid() == 0:
            for each in (folder, given):
                shutil.chown(each, ACCOUNT, ACCOUNT)
        self._run(
            "initdb", "-D", self._data, "-U", "forerun", "-A", "scram-sha-256",
            "--pwfile", given, "-E", "UTF8", "--no-sync",
        )  # fmt: skip
        self.start()

    @property
    def url(self) -> str:
        """The address of the database that every server has."""
        return self._url("postgres")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-p {self._port} -h 127.0.0.1 -k '' -c max_connections=60"
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-w", "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        """Stop the server: `fast` breaks all connections, `immediate` is a crash; repeatable."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self._data, "-m", how, "-w", "stop")

    def new_database(self) -> str:
        """The address of a new empty database."""
        import psycopg

        self._databases += 1
        name = f"forerun_{self._databases}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://forerun:{PASSWORD}@127.0.0.1:{self._port}/{database}"

    def _run(self, program: str, *arguments: object) -> None:
        folder = programs()
        assert folder is not None
        command = [str(folder / program), *map(str, arguments)]
        account = None if os.geteuid() != 0 else pwd.getpwnam(ACCOUNT)
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,  # which the server would keep open
            stderr=subprocess.DEVNULL,
            cwd=self._data.parent,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            check=False,
        )
        log = self._log.read_text() if self._log.exists() else ""
        assert done.returncode == 0, f"{program} failed: {log}"


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A running server, which is stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="forerun-postgres-"))
    folder.chmod(0o755)
    try:
        server = Postgres(folder)
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
