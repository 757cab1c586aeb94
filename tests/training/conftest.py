"""One prepared MLflow database, copied for each test that writes runs."""

import shutil
import sqlite3
from contextlib import closing, nullcontext

import pytest

from forerun.training.evaluation import refit
from forerun.training.release import registry


@pytest.fixture(scope="session")
def nothing_bundled(tmp_path_factory):
    """An artifact that answers nothing, in place of the bundled predictors."""
    from forerun.models.artifact.sealed_folder import seal
    from forerun.models.router import Router

    folder = tmp_path_factory.mktemp("bundled") / "nothing"
    Router(()).save(folder)
    seal(folder, "2000-01-01")
    return folder


@pytest.fixture(scope="session", autouse=True)
def fits(tmp_path_factory):
    """No test stores fits in the home of the one who runs it."""
    folder = tmp_path_factory.mktemp("fits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refit, "_place", lambda key: folder / key)
        yield folder


@pytest.fixture
def store(nothing_bundled, prepared_database, tmp_path, monkeypatch):
    """FORERUN_HOME with an empty store of runs and versions."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(prepared_database, home / "mlflow.db")
    monkeypatch.setattr(registry, "bundled_artifact", lambda: nullcontext(nothing_bundled))
    monkeypatch.setenv("FORERUN_HOME", str(home))
    monkeypatch.delenv("FORERUN_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return home


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A function that fills a store, and from the second time on copies what the first one got.

    It takes the store and a function that registers versions, and returns what that returned.
    """
    first = []
    kept = tmp_path_factory.mktemp("filled") / "store"

    def fill(store, register):
        if not first:
            first.extend((store, register()))
            shutil.copytree(store, kept)
        else:
            shutil.copytree(kept, store, dirs_exist_ok=True)
            (store / "mlflow.db").unlink()
            with (
                closing(sqlite3.connect(kept / "mlflow.db")) as old,
                closing(sqlite3.connect(store / "mlflow.db")) as new,
            ):
                new.executescript("\n".join(old.iterdump()).replace(str(first[0]), str(store)))
        return first[1]

    return fill
