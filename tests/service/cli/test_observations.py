"""`forerun observe` and `forerun drift`: files as observations, and what all of them say."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from forerun.data.measurement import write_measurements
from tests.service.conftest import GRAPH, linear_row

pytestmark = pytest.mark.slow
SIZES = (64, 300, 2_000)


def rows_file(folder, name, factor=1.0, count=60, seed=0):
    """A JSON list of linear layers with the answers that were given about them."""
    chance = np.random.default_rng(seed)
    rows = []
    for size in chance.choice(SIZES, count).tolist():
        measured = 0.05 * factor * chance.lognormal(0.0, 0.03)
        answer = {"value": 0.05, "low": 0.04, "high": 0.06, "version": "v1"}
        rows.append(linear_row(size, measured) | {"answer": {"latency_ms": answer}})
    file = folder / name
    file.write_text(json.dumps(rows))
    return file


def test_a_table_is_observed_with_its_graphs_and_stored_once(forerun, tmp_path):
    folder = tmp_path / "m-graphs"
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps(GRAPH.to_json()))
    row = {"workload": GRAPH.digest, "kind": "network", "device": "l4", "latency_ms": 0.5}
    table = pd.DataFrame([row | {"status": "ok"}, row | {"status": "oom", "latency_ms": None}])
    write_measurements(table, tmp_path / "m.csv")
    words = ("observe", tmp_path / "m.csv", "--device", "NVIDIA L4")
    code, out, err = forerun(*words, "--json")
    assert code == 0, err
    first = json.loads(out)
    assert (first["rows"], first["judged"], first["left_out"], first["new"]) == (1, 1, 1, True)
    assert first["errors"]["latency_ms"]["rows"] == 1
    code, out, err = forerun(*words)
    assert (code, "kept before" in out, first["set"] in out) == (0, True, True), err
    code, out, err = forerun("adapt", "--list", "--json")
    assert json.loads(out) == {"sets": []}
    (folder / "mine.json").unlink()
    faster = pd.DataFrame([row | {"status": "ok", "latency_ms": 0.4}])
    write_measurements(faster, tmp_path / "m.csv")
    code, _, err = forerun(*words)
    assert code == 0, err + ": the graph was kept with the first observations"


def test_a_missing_graph_is_named_with_its_folder(forerun, tmp_path):
    row = {"workload": "0" * 32, "kind": "network", "device": "l4", "latency_ms": 0.5}
    write_measurements(pd.DataFrame([row | {"status": "ok"}]), tmp_path / "m.csv")
    code, _, err = forerun("observe", tmp_path / "m.csv", "--device", "l4")
    assert (code, "m-graphs" in err, "row 1" in err) == (2, True, True)


def test_drift_prints_slices_and_alarms(forerun, tmp_path):
    assert "no observations are kept of l4" in forerun("drift", "--device", "l4")[1]
    files = [rows_file(tmp_path, f"{n}.json", 1.0 if n < 3 else 1.2, seed=n) for n in range(4)]
    for file in files[:3]:
        assert forerun("observe", file, "--device", "l4")[0] == 0
    code, out, err = forerun("drift")
    assert (code, "no lasting change of 5 % or more" in out) == (0, True), err
    assert forerun("observe", files[3], "--device", "l4")[0] == 0
    code, out, err = forerun("drift", "--device", "l4", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["observations"] == {"l4": 240}
    (alarm,) = report["alarms"]
    code, out, err = forerun("drift")
    assert alarm["message"] in out
    assert "+20 %" in out or "+19 %" in out or "+21 %" in out
    assert forerun("drift", "--device", "l5")[0] == 2


def test_a_report_is_logged_as_a_run(forerun, tmp_path, request):
    pytest.importorskip("mlflow")
    from forerun.training.tracking.runs import connect

    prepared = request.getfixturevalue("prepared_database")
    uri = f"sqlite:///{shutil.copy(prepared, tmp_path / 'tracked.db')}"
    assert forerun("observe", rows_file(tmp_path, "1.json"), "--device", "l4")[0] == 0
    code, _, err = forerun("drift", "--track", "--uri", uri)
    assert code == 0, err
    client = connect(uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "forerun"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["forerun.kind"] == "drift"
    assert run.data.metrics["l4/latency_ms/n"] == 60
    assert run.data.metrics["l4/latency_ms/alarm"] == 0
    assert 0 < run.data.metrics["l4/latency_ms/mape"] < 10
    names = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert names == {"drift.json", "alarms.txt"}

    of_candidate = rows_file(tmp_path, "2.json", seed=2)
    of_candidate.write_text(of_candidate.read_text().replace('"v1"', '"v2"'))
    assert forerun("observe", of_candidate, "--device", "l4")[0] == 0
    assert forerun("drift", "--track", "--uri", uri, "--version", "all")[0] == 0
    latest = client.search_runs([experiment.experiment_id])[0].data.metrics
    assert {latest[f"{version}/l4/latency_ms/n"] for version in ("v1", "v2")} == {60}
