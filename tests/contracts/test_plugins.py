"""Another package adds a dataset, a reader, a predictor, protocols and a collector.

It does so as CONTRIBUTING says, without a change here. `tests/house/test_contributing.py` adds what
has to be written into forerun itself.
"""

import json
import sys
from pathlib import Path

import pytest
import typer
from fastapi.testclient import TestClient

from forerun.data.bundle import Bundle
from forerun.data.datasets import dataset
from forerun.data.errors import BadArtifact, BrokenPlugin, UnknownDataset, UnreadableModel
from forerun.data.measurement import read_measurements
from forerun.data.plugins import GROUPS, plugins
from forerun.data.upstream.downloads import RawFiles
from forerun.features.readers import read_graph
from forerun.models.artifact.sealed_folder import load_sealed
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import PREDICTORS, catalog, predictor_class
from forerun.service.cli import app
from forerun.service.cli.collect.group import app as collect_app
from forerun.service.http.app import create_app
from forerun.service.settings import Settings
from forerun.training.evaluation.evaluate import evaluate
from forerun.training.protocols import protocols_of_dataset
from tests.contracts.collector_contract import CollectorContract

DECLARED = {
    "forerun.datasets": "ToyDataset",
    "forerun.readers": "ToyReader",
    "forerun.predictors": "TOY",
    "forerun.protocols": "ToyProtocols",
    "forerun.collectors": "ToyCollector",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs `toy_package`, which declares these entry points: group -> object."""

    def installed(declared):
        site = tmp_path / "site"
        site.mkdir()
        source = Path(__file__).with_name("toy_package.py")
        (site / "toy_package.py").write_text(source.read_text())
        info = site / "toy_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
        lines = [f"[{group}]\ntoy = toy_package:{name}\n" for group, name in declared.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, "toy_package", raising=False)

    return installed


@pytest.fixture
def toy_data(install, tmp_path):
    """The folder of bundles that holds that of the toy's dataset."""
    install(DECLARED)
    tables = dataset("toy").tidy(RawFiles(tmp_path, ()))
    dataset("toy").validate(tables)
    Bundle.write(tmp_path / "data" / "toy", "toy", tables, as_csv=dataset("toy").csv_tables)
    return tmp_path / "data"


@pytest.fixture
def artifact(toy_data, tmp_path):
    """The toy's predictor as `forerun train toy` evaluates, fits and seals it."""
    words = ["train", "toy", "--data", str(toy_data), "--output", str(tmp_path / "artifact")]
    app([*words, "--alone", "--no-track"], standalone_mode=False)
    return tmp_path / "artifact"


def test_a_dataset_is_found_by_its_name(install):
    with pytest.raises(UnknownDataset):
        dataset("toy")
    install(DECLARED)
    assert dataset("toy").title == "Toy rows"


def test_protocols_are_found_by_their_dataset_and_know_their_predictor(install):
    install(DECLARED)
    assert protocols_of_dataset("toy").predictor().name == "toy"


def test_a_file_that_no_own_reader_takes_is_read(install):
    with pytest.raises(UnreadableModel):
        read_graph(b"TOY 4")
    install(DECLARED)
    graph = read_graph(b"TOY 4")
    assert [operator.kind for operator in graph.operators] == ["relu"]


def test_a_predictor_is_evaluated_and_fitted_by_its_recipe(artifact):
    (scores,) = json.loads((artifact / "scores.json").read_text())
    assert [task["task"] for task in scores["tasks"]] == ["large/products"]
    assert scores["tasks"][0]["predictor"] == "toy"
    assert TrainingRecord.read(artifact).rows == {"toy": 8}
    card = (artifact / "card.md").read_text()
    assert "latency of toys, by `toy`" in card
    assert "nobody (CC0-1.0)" in card


def test_a_predictor_is_evaluated_by_name(artifact, toy_data):
    found = evaluate(
        "toy",
        current=load_sealed(artifact),
        record=TrainingRecord.read(artifact),
        data_dir=toy_data / "toy",
        predictors=["toy"],
    )
    assert found["tasks"][0]["n"] == 2


def test_a_fitted_predictor_answers_over_http(artifact, tmp_path):
    operator = {"kind": "linear", "name": "fc", "input_shapes": [[4, 16]]}
    operator |= {"output_shapes": [[4, 16]], "parameter_elements": 256, "attributes": {}}
    workload = {"kind": "kernel", "operator": operator}
    application = create_app(Settings(home=tmp_path / "home"), load_sealed(artifact))
    with TestClient(application) as client:
        answer = client.post("/v1/predict", json={"workload": workload, "device": "l4"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metrics"]["latency_ms"]["value"] == pytest.approx(1.88, rel=0.01)


def test_the_router_asks_it_where_its_entry_says(install):
    install(DECLARED)
    names = list(catalog())
    assert names.index("toy") + 1 == names.index("operator_boost")
    assert [name for name in names if name != "toy"] == list(PREDICTORS)


def test_an_artifact_of_such_a_predictor_loads(install, tmp_path):
    with pytest.raises(BadArtifact, match="toy"):
        predictor_class("toy")
    install(DECLARED)
    cls = predictor_class("toy")
    cls({"latency_ms": 2.0}).save(tmp_path / "artifact")
    assert load_part(tmp_path / "artifact").means == {"latency_ms": 2.0}


def test_a_class_without_a_recipe_is_a_predictor_that_no_release_trains(install):
    install({"forerun.predictors": "ToyPredictor"})
    assert predictor_class("toy").name == "toy"
    assert catalog()["toy"].trained_on == ()


def test_a_collector_is_listed_and_run_as_a_command(install, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    assert "toy" not in typer.main.get_command(collect_app).list_commands(None)
    install(DECLARED)
    app(["collect", "--help"], standalone_mode=False)
    assert "half a millisecond a row" in capsys.readouterr().out
    table = tmp_path / "rows.csv"
    app(["collect", "toy", "--output", str(table)], standalone_mode=False)
    assert read_measurements(table)["latency_ms"].tolist() == [0.5, 1.0]


class TestCollectorOfAPackage(CollectorContract):
    @pytest.fixture(autouse=True)
    def _installed(self, install):
        install(DECLARED)
        (self.cls,) = plugins("forerun.collectors")

    def make(self):
        return self.cls()


def test_a_name_of_forerun_s_own_is_never_replaced(install):
    install({"forerun.predictors": "TOY"})
    assert all(predictor_class(name).name == name for name in PREDICTORS)


@pytest.mark.parametrize("group", ["forerun.datasets", "forerun.predictors"])
@pytest.mark.parametrize("name", ["Missing", "NEITHER_CLASS_NOR_ENTRY"])
def test_what_cannot_be_loaded_is_named_in_one_line(install, group, name):
    install({group: name})
    with pytest.raises(BrokenPlugin, match=f"toy_package:{name}") as raised:
        dataset("toy") if group == "forerun.datasets" else predictor_class("toy")
    assert "\n" not in str(raised.value)


def test_without_such_packages_there_are_none():
    assert all(plugins(group) == () for group in GROUPS)
