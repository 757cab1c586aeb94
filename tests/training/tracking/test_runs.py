"""A run can be read back from MLflow with all its inputs and results."""

import subprocess
import sys

import pytest

from forerun.data.errors import BadArtifact
from forerun.models.artifact.sealed_folder import seal
from forerun.training.tracking.runs import (
    EXPERIMENT,
    code_state,
    connect,
    git_commit,
    tracked,
    tracking_uri,
)
from forerun.training.tracking.stores import database_file

pytestmark = pytest.mark.slow


def artifacts(run, folder=""):
    return {entry.path for entry in run.client.list_artifacts(run.id, folder)}


def sealed(folder):
    folder.mkdir()
    (folder / "predictor.json").write_text("{}\n")
    (folder / "trees.txt").write_text("tree\n")
    return seal(folder, "2000-01-01")


def test_without_settings_runs_go_to_sqlite_in_forerun_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    monkeypatch.delenv("FORERUN_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert database_file(tracking_uri()) == tmp_path / "mlflow.db"
    assert not list(tmp_path.iterdir()), "naming a store does not make one"


def test_settings_name_another_store_ours_before_mlflows(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://theirs:5000")
    monkeypatch.delenv("FORERUN_TRACKING_URI", raising=False)
    assert tracking_uri() == "http://theirs:5000"
    monkeypatch.setenv("FORERUN_TRACKING_URI", "http://ours:5000")
    assert tracking_uri() == "http://ours:5000"
    assert tracking_uri("http://given:5000") == "http://given:5000"
    assert database_file("http://given:5000") is None


def test_a_run_holds_what_went_in_and_what_came_out(store, tmp_path):
    picture = tmp_path / "parity.png"
    picture.write_bytes(b"\x89PNG")
    manifest = sealed(tmp_path / "saved")
    with tracked("nightly") as run:
        run.parameters({"trees": 300, "devices": ["t4", "v100"], "long": "x" * 10_000})
        run.dataset("neusight", "d" * 64, rows=327_919, source="sitar-lab/NeuSight@6945927d")
        run.scores("unseen_device/bmm", {"n": 3, "mape": 7.9, "spearman": None})
        run.card("# Card\n")
        run.figure(picture)
        assert run.predictor(tmp_path / "saved") == manifest

    read = connect().get_run(run.id)
    assert read.info.status == "FINISHED"
    assert read.info.run_name == "nightly"
    assert read.data.params["trees"] == "300"
    assert read.data.params["devices"] == "['t4', 'v100']"
    assert read.data.metrics == {"unseen_device/bmm/n": 3, "unseen_device/bmm/mape": 7.9}
    assert read.data.tags["mlflow.note.content"] == "# Card\n"
    assert read.data.tags["dataset.neusight"] == "d" * 64
    assert read.data.tags["predictor.version"] == manifest.version
    (entry,) = read.inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.profile) == ("neusight", '{"rows": 327919}')
    assert artifacts(run) == {"card.md", "figures", "predictor"}
    assert artifacts(run, "figures") == {"figures/parity.png"}
    assert artifacts(run, "predictor/data/saved") == {
        f"predictor/data/saved/{name}" for name in ("predictor.json", "trees.txt", "manifest.json")
    }


def test_artifacts_are_stored_next_to_the_database(store):
    with tracked("run") as run:
        run.card("text")
    assert connect().get_experiment_by_name(EXPERIMENT) is not None
    assert [p.read_text() for p in (store / "mlartifacts").rglob("card.md")] == ["text"]


def test_more_metrics_than_fit_one_request_all_arrive(store):
    with tracked("many") as run:
        run.metrics({f"m{i}": i for i in range(1203)})
        run.parameters({f"p{i}": i for i in range(150)})
    data = connect().get_run(run.id).data
    assert (len(data.metrics), len(data.params)) == (1203, 150)


def test_a_run_that_raises_is_marked_as_failed(store):
    with pytest.raises(ZeroDivisionError), tracked("broken") as run:
        _ = 1 / 0
    assert connect().get_run(run.id).info.status == "FAILED"


def test_a_predictor_with_a_forbidden_file_is_not_logged(store, tmp_path):
    sealed(tmp_path / "saved")
    (tmp_path / "saved" / "model.pkl").write_bytes(b"\x80\x04")
    with tracked("run") as run:
        with pytest.raises(BadArtifact):
            run.predictor(tmp_path / "saved")
        assert artifacts(run) == set()


def test_a_run_names_the_commit_that_is_checked_out(tmp_path):
    def git(*words):
        author = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", tmp_path, *author, *words], check=True, capture_output=True)

    assert git_commit(tmp_path) is None and code_state(tmp_path) is None, "not in git"
    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    commit = git_commit(tmp_path)
    assert commit is not None and len(commit) == 40
    (tmp_path / "file").write_text("two")
    assert git_commit(tmp_path) == f"{commit}+changes"
    changed = code_state(tmp_path)
    assert changed.startswith(f"{commit}+changes-")
    (tmp_path / "file").write_text("three")
    assert code_state(tmp_path) != changed, "other changes are another state"
    (tmp_path / "file").write_text("one")
    assert code_state(tmp_path) == commit


def test_importing_tracking_and_registry_does_not_import_mlflow():
    code = (
        "import sys, forerun.training.tracking.runs, forerun.training.release.registry;"
        "sys.exit('mlflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
