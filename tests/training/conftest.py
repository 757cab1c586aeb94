"""One prepared MLflow database, copied for each test that writes runs."""

import shutil

import pytest


@pytest.fixture(scope="session")
def prepared_database(tmp_path_factory):
    """An SQLite file after MLflow's migrations, which take seconds."""
    from forerun.training.tracking.runs import connect

    file = tmp_path_factory.mktemp("mlflow") / "prepared.db"
    connect(f"sqlite:///{file}")
    return file


@pytest.fixture
def store(prepared_database, tmp_path, monkeypatch):
    """FORERUN_HOME with an empty store of runs and versions."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(prepared_database, home / "mlflow.db")
    monkeypatch.setenv("FORERUN_HOME", str(home))
    monkeypatch.delenv("FORERUN_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return home
