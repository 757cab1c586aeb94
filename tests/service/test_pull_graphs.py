"""`forerun data pull timm_bench`: its networks are traced where timm is, else a line says how."""

import pytest
from typer.testing import CliRunner

from forerun.data.bundle import Bundle, find
from forerun.data.datasets.networks.timm_bench import TimmBench
from forerun.data.device import DeviceCatalog
from forerun.data.errors import MissingData, UnreadableModel
from forerun.features.readers import model_zoo
from forerun.features.readers.model_zoo import EagerCall
from forerun.service.cli import app
from forerun.training.protocols.networks.timm_bench import TimmBenchProtocols
from tests.contracts.tiny_upstream import tiny_upstream

RETIRED = "dla_2"


@pytest.fixture
def pull(tmp_path, monkeypatch):
    """Pulls made-up upstream files into a home of its own; the lines on standard error."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    raw = tiny_upstream("timm_bench", tmp_path / "upstream")

    def made(self):
        return Bundle.write(
            tmp_path / "home" / "bundles" / self.name,
            self.name,
            self.tidy(raw),
            facts={"licence": self.licence},
        )

    monkeypatch.setattr(TimmBench, "pull", made)

    def call(*words):
        done = CliRunner().invoke(app, ["data", "pull", "timm_bench", *words])
        assert done.exit_code == 0, done.exception
        return done.stderr

    return call


@pytest.fixture
def zoo(monkeypatch):
    """In place of timm: networks of one operator, one of them retired. Lists what was traced."""
    traced = []

    def calls(model, size):
        traced.append((model, size))
        if model in (RETIRED, "too_large"):
            raise UnreadableModel(model, "it is retired.")
        shape = f"[1,3,{size},{size}]"
        area = 3 * size * size
        return [EagerCall(0, "relu", f"[{shape}]", shape, "", 0, area, area, 0, "")]

    monkeypatch.setattr(model_zoo, "is_installed", lambda: True)
    monkeypatch.setattr(model_zoo, "versions", lambda: {"timm": "1.0", "torch": "2.13"})
    monkeypatch.setattr(model_zoo, "zoo_calls", calls)
    return traced


def test_without_timm_a_line_says_what_adds_the_graphs(pull, monkeypatch):
    monkeypatch.setattr(model_zoo, "is_installed", lambda: False)
    assert "scripts/install zoo" in pull()
    bundle = find("timm_bench")
    assert bundle.tables() == ("bench",)
    with pytest.raises(MissingData, match=r"forerun data pull timm_bench.*scripts/install zoo"):
        TimmBenchProtocols().training_rows(bundle, DeviceCatalog.load())


def test_networks_are_traced_into_the_bundle(pull, zoo):
    lines = pull()
    assert "2 of 11 networks" in lines
    assert RETIRED in lines
    bundle = find("timm_bench")
    TimmBench().validate({name: bundle.table(name) for name in bundle.tables()})
    assert "`graphs`: 9 rows" in bundle.datasheet
    assert bundle.facts["digest"] == bundle.digest
    assert bundle.facts["licence"] == "Apache-2.0"
    assert bundle.facts["graphs"] == {
        "timm": "1.0",
        "torch": "2.13",
        "not_traced": [f"{RETIRED}@224", "too_large@224"],
    }
    training_rows = TimmBenchProtocols().training_rows(bundle, DeviceCatalog.load())
    assert set(training_rows.groups["model"]) == set(bundle.table("graphs")["model"])


def test_the_next_pull_traces_only_what_is_missing(pull, zoo):
    pull()
    first, digest = list(zoo), find("timm_bench").digest
    zoo.clear()
    pull()
    assert len(first) == 11
    assert sorted(zoo) == [(RETIRED, 224), ("too_large", 224)]
    assert find("timm_bench").digest == digest


def test_other_versions_trace_anew(pull, zoo, monkeypatch):
    pull()
    zoo.clear()
    monkeypatch.setattr(model_zoo, "versions", lambda: {"timm": "1.1", "torch": "2.13"})
    pull()
    assert len(zoo) == 11
