"""Fixtures shared by all floors: few, small, built in front of the reader."""

import gc
import os
import sys
from collections import Counter
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

# Before the first import of NumPy: workers that all compute on every core wait for one another, and
# take two to four times the processor time of one thread each.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Workers, and the commands that tests start, read compiled modules also where this variable is set:
# hundreds of processes would else compile the same files again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["tests.shapes"]

# How long an example takes says how busy the machine is, not whether a promise holds.
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("forerun", max_examples=40, **QUIET)
settings.register_profile("nightly", max_examples=400, **QUIET)
settings.load_profile("forerun")


# Each client of httpx would read the certificates of all authorities, 40 ms of processor time,
# though the servers of tests have none.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)


COSTLY = ("slow", "reference", "zoo", "browser")
"""Markers of tests that `make test-fast` leaves out."""


def pytest_addoption(parser):
    """`make test-docs` asks for it."""
    parser.addoption("--all-pages", action="store_true", help="run pages that did not change, too")


def pytest_configure(config):
    """Workers take files in the order of the collection, not those of most tests first."""
    config.option.loadscopereorder = False
    gc.disable()


def pytest_collection_finish(session):
    """What is collected and imported stays to the end: the garbage collector passes over it.

    It would else walk a million objects again and again, a fifth of the time of a collection.
    """
    gc.enable()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What reads the reference bundles or the mirror is marked `reference`.

    Workers begin with files of costly tests, so that none has one left when the others are done.
    """
    for item in items:
        if {"reference", "mirror"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("reference")
    if hasattr(config, "workerinput"):
        costly = Counter(item.path for item in items if any(map(item.get_closest_marker, COSTLY)))
        items.sort(key=lambda item: -costly[item.path])


REPOSITORY = Path(__file__).resolve().parent.parent


def _reference_root() -> Path:
    return Path(os.environ.get("FORERUN_REFERENCE", REPOSITORY.parent / "shared" / "datasets"))


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference bundles, or a skip that says why."""
    root = _reference_root()
    if not root.is_dir():
        pytest.skip(f"no reference bundles at {root}; set FORERUN_REFERENCE")
    return root


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder of upstream files, or a skip that says why."""
    root = Path(os.environ.get("FORERUN_MIRROR", _reference_root().parent / "mirror"))
    if not (root / "MANIFEST.json").is_file():
        pytest.skip(f"no mirror of upstream files at {root}; set FORERUN_MIRROR")
    return root


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function that returns a folder which the workers of this run share, and makes it once.

    It takes the folder's name and a function that fills it.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made(name, fill):
        folder = shared / f"once-{name}"
        with (shared / f"{name}.lock").open("w") as lock:
            flock(lock, LOCK_EX)
            if not folder.exists():
                part = tmp_path_factory.mktemp(name)
                fill(part)
                part.rename(folder)
        return folder

    return made


@pytest.fixture(scope="session")
def prepared_database(once):
    """An SQLite file after MLflow's migrations, which take seconds.

    From then on MLflow reads its migrations no more to know whether a copy has had all of them.
    """
    from forerun.training.tracking.runs import connect

    folder = once("mlflow", lambda folder: connect(f"sqlite:///{folder / 'prepared.db'}"))
    from mlflow.store.db import utils

    with pytest.MonkeyPatch.context() as patch:
        latest = utils._get_latest_schema_revision()
        patch.setattr(utils, "_get_latest_schema_revision", lambda: latest)
        yield folder / "prepared.db"


@pytest.fixture
def synced(monkeypatch):
    """Numbers of the files and folders that were written through to disk, in their order."""
    found, real = [], os.fsync

    def noted(descriptor):
        found.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found
