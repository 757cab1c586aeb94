"""Another package adds a dataset, a reader, a predictor and protocols by declaring them."""

import sys

import pytest

from forerun.data.datasets import dataset
from forerun.data.errors import BadArtifact, BrokenPlugin, UnknownDataset, UnreadableModel
from forerun.data.plugins import GROUPS, plugins
from forerun.features.readers import read_graph
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.catalog import PREDICTORS, predictor_class
from forerun.training.protocols import protocols_of_dataset

SOURCE = """
from typing import ClassVar
from forerun.data.datasets.dataset import Dataset
from forerun.data.graph import Operator, OperatorGraph
from forerun.models.baselines.constant import Constant
from forerun.training.protocols.protocol import DatasetProtocols


class ToyDataset(Dataset):
    name = "toy"
    title = "Toy rows"
    tidy = documents = tables = splits = flags = None


ToyDataset.__abstractmethods__ = frozenset()


class ToyReader:
    name = "toy"

    def accepts(self, path, head):
        return head.startswith(b"TOY ")

    def read(self, source, *, batch_size=1, sequence_length=None):
        n = int(source.split()[1])
        return OperatorGraph((Operator("relu", "relu", ((n, n),), ((n, n),)),), source="toy")


class ToyPredictor(Constant):
    name: ClassVar[str] = "toy"


class ToyProtocols(DatasetProtocols):
    dataset = "toy"


ToyProtocols.__abstractmethods__ = frozenset()
NO_CLASS = 3
"""
DECLARED = {
    "forerun.datasets": "ToyDataset",
    "forerun.readers": "ToyReader",
    "forerun.predictors": "ToyPredictor",
    "forerun.protocols": "ToyProtocols",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package that declares these entry points: group -> class."""

    def installed(declared):
        (tmp_path / "toy_package.py").write_text(SOURCE)
        info = tmp_path / "toy_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
        lines = [f"[{group}]\ntoy = toy_package:{name}\n" for group, name in declared.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "toy_package", raising=False)

    return installed


def test_a_dataset_is_found_by_its_name(install):
    with pytest.raises(UnknownDataset):
        dataset("toy")
    install(DECLARED)
    assert dataset("toy").title == "Toy rows"


def test_protocols_are_found_by_their_dataset(install):
    install(DECLARED)
    assert protocols_of_dataset("toy").dataset == "toy"


def test_a_file_that_no_own_reader_takes_is_read(install):
    with pytest.raises(UnreadableModel):
        read_graph(b"TOY 4")
    install(DECLARED)
    graph = read_graph(b"TOY 4")
    assert [operator.kind for operator in graph.operators] == ["relu"]


def test_an_artifact_of_such_a_predictor_loads(install, tmp_path):
    with pytest.raises(BadArtifact, match="toy"):
        predictor_class("toy")
    install(DECLARED)
    cls = predictor_class("toy")
    cls({"latency_ms": 2.0}).save(tmp_path / "artifact")
    assert load_part(tmp_path / "artifact").means == {"latency_ms": 2.0}


def test_a_name_of_forerun_s_own_is_never_replaced(install):
    install({"forerun.predictors": "ToyPredictor"})
    assert all(predictor_class(name).name == name for name in PREDICTORS)


@pytest.mark.parametrize("name", ["Missing", "NO_CLASS"])
def test_a_class_that_cannot_be_loaded_is_named_in_one_line(install, name):
    install({"forerun.datasets": name})
    with pytest.raises(BrokenPlugin, match=f"toy_package:{name}") as raised:
        dataset("toy")
    assert "\n" not in str(raised.value)


def test_without_such_packages_there_are_none():
    assert all(plugins(group) == () for group in GROUPS)
