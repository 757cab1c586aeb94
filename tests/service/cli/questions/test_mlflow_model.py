"""A registered version answers through MLflow as `forerun batch` does with it."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, PredictIn
from forerun.training.release.registry import bundled_artifact, register
from forerun.training.tracking import runs
from tests.service.conftest import linear_row

pytestmark = pytest.mark.slow
mlflow = pytest.importorskip("mlflow", reason="needs the train extra")
QUESTIONS = [
    EXAMPLE,
    EXAMPLE_NETWORK,
    runs.EXAMPLE,
    {**runs.EXAMPLE, "device": "h100-sxm-80gb", "metrics": ["latency_ms"], "level": 50},
    {"workload": linear_row(640, None)["workload"], "device": "t4"},
    {"workload": linear_row(640, None)["workload"], "device": "nothing"},
]
FIGURES = ("metrics", "fits", "predictor", "limits", "detail", "did_you_mean")


@pytest.fixture
def uri(prepared_database, tmp_path, monkeypatch):
    """A registry in an SQLite file, which MLflow's own functions ask too."""
    uri = f"sqlite:///{shutil.copy(prepared_database, tmp_path / 'registry.db')}"
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    yield uri
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])


@pytest.fixture
def version(forerun, uri, tmp_path):
    """A registered version: its folder and its address."""
    folder = tmp_path / "version"
    with bundled_artifact() as predictors:
        shutil.copytree(predictors, folder)
    with runs.tracked("release", uri) as run:
        assert register(run, folder) == 1
    return folder, "models:/forerun/1"


def figures(answer):
    """All that an answer says, without the place of its question."""
    return {name: answer.get(name) for name in FIGURES}


def test_answers_are_those_of_batch_for_objects_texts_and_frames(
    forerun, version, tmp_path, monkeypatch
):
    folder, address = version
    model = mlflow.pyfunc.load_model(address)
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in QUESTIONS))
    monkeypatch.setenv("FORERUN_PREDICTOR_FOLDER", str(folder))
    _, out, err = forerun("batch", file)
    theirs = [figures(json.loads(line)) for line in out.splitlines()]
    assert "5 of 6 questions" in err
    assert theirs[0]["predictor"]["version"] == bundled().version
    as_text = [{**each, "workload": json.dumps(each["workload"])} for each in QUESTIONS]
    for asked in (QUESTIONS, pd.DataFrame(QUESTIONS), pd.DataFrame(as_text)):
        assert [figures(own) for own in model.predict(asked)] == theirs


def test_the_signature_has_the_fields_of_a_request_and_the_example_is_answered(version):
    model = mlflow.pyfunc.load_model(version[1])
    columns = {column.name: column.required for column in model.metadata.get_input_schema().inputs}
    fields = PredictIn.model_fields
    assert columns == {name: field.is_required() for name, field in fields.items()}
    (answer,) = model.predict(model.input_example)
    assert answer["metrics"]["latency_ms"]["value"] > 0


def test_a_version_holds_no_pickle(version, uri):
    folder = mlflow.artifacts.download_artifacts(artifact_uri=version[1])
    endings = {path.suffix for path in Path(folder).rglob("*") if path.is_file()}
    assert endings <= {"", ".json", ".gz", ".xz", ".md", ".onnx", ".txt", ".yaml", ".png"}
