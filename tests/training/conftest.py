"""One prepared MLflow database, copied for each test that writes runs."""

import shutil
from contextlib import nullcontext
from functools import cache

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


@pytest.fixture(scope="module")
def home(once):
    """FORERUN_HOME with made-up bundles of all datasets, which no test writes to."""
    from tests.training.toy_bundles import write_bundles

    folder = once("bundles", write_bundles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORERUN_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """Name of a dataset -> its bundle of made-up rows, which no test writes to."""
    from tests.contracts.tiny_upstream import tiny_bundle

    return cache(lambda name: tiny_bundle(name, tmp_path_factory.mktemp(name)))


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
