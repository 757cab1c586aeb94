"""`forerun adapt`, `observe` and `drift`: learn from a file, list, go back, and report."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.measurement import write_measurements
from forerun.service.adaptation.held_out import HeldOut, MetricError
from forerun.service.cli.adapt import show_errors
from forerun.service.schemas.measured_rows import MeasuredRow, queries_of
from tests.service.conftest import GRAPH, linear_row

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path):
    folder = tmp_path / "m-graphs"
    folder.mkdir()
    file = folder / "mine.json"
    file.write_text(json.dumps(GRAPH.to_json()))
    return file


def predicted(forerun, graph, device="l4"):
    return forerun.json("predict", graph, "--device", device)


def test_a_table_is_learnt_from_and_predict_answers_with_it(forerun, graph, tmp_path):
    before, other = predicted(forerun, graph), predicted(forerun, graph, "t4")
    says = before["metrics"]["latency_ms"]["value"]
    rows = [
        {"workload": GRAPH.digest, "kind": "network", "batch_size": n, "device": "l4"}
        | {"status": "ok", "latency_ms": 3 * says}
        for n in (1, 2, 3)
    ]
    rows.append({"workload": GRAPH.digest, "device": "l4", "status": "oom"})
    write_measurements(pd.DataFrame(rows), tmp_path / "m.csv")
    learnt = forerun.json("adapt", tmp_path / "m.csv", "--device", "NVIDIA L4")
    assert (learnt["rows"], learnt["left_out"], learnt["rows_in_use"]) == (3, 1, 3)
    assert learnt["one_by_one"] is True
    assert (
        learnt["errors"]["latency_ms"]["mape_after"] < learnt["errors"]["latency_ms"]["mape_before"]
    )
    after = predicted(forerun, graph)
    assert after["predictor"] == before["predictor"] | {
        "version": learnt["version"],
        "adapted_rows": 3,
    }
    assert after["metrics"]["latency_ms"]["value"] > 1.4 * says
    assert predicted(forerun, graph, "t4")["metrics"] == other["metrics"]
    assert "3 rows" in forerun.ok("adapt", "--device", "l4", "--rollback")
    assert predicted(forerun, graph) == before


def test_what_is_suggested_can_be_filled_in_and_learnt_from(forerun, tmp_path):
    todo = forerun.json("adapt", "--suggest", "4", "--device", "l4")
    assert len(todo["candidates"]) == len(todo["measurements"]) == 4
    for row in todo["measurements"][:3]:
        row["metrics"]["latency_ms"] = 0.5
    file = tmp_path / "done.json"
    file.write_text(json.dumps(todo))
    out = forerun.ok("adapt", file, "--device", "l4")
    assert "latency_ms" in out
    assert "kept 3 measurements of l4" in out
    again = forerun.json("adapt", "--suggest", "30", "--device", "l4")["candidates"]
    assert not set(todo["candidates"][:3]) & set(again)
    assert todo["candidates"][3] in again


def test_models_can_be_candidates_and_their_graphs_are_then_known(forerun, graph, tmp_path):
    words = ("adapt", graph.parent, "--suggest", "2", "--device", "l4", "--json")
    todo = json.loads(forerun.ok(*words, "--batch-size", "8", "--precision", "amp"))
    workload = todo["measurements"][0]["workload"]
    assert workload["graph"] == GRAPH.digest
    assert (workload["batch_size"], workload["precision"]) == (8, "amp")
    todo["measurements"][0]["metrics"]["latency_ms"] = 0.1
    file = tmp_path / "elsewhere.json"
    file.write_text(json.dumps(todo["measurements"]))
    forerun.ok("adapt", file, "--device", "l4")


def test_it_says_when_it_is_enough(forerun, tmp_path, trained):
    rows = [MeasuredRow.model_validate(linear_row(128 * n, 1.0)) for n in range(2, 10)]
    said = trained.predictor.predict(queries_of(rows, DeviceCatalog.load().get("l4"), GRAPH))
    latencies = 1.5 * said.values["latency_ms"]
    file = tmp_path / "m.json"
    file.write_text(json.dumps([linear_row(128 * n, latencies[n - 2]) for n in range(2, 10)]))
    assert "enough" in forerun("adapt", file, "--device", "l4")[1]
    out = forerun.ok("adapt", "--suggest", "2", "--device", "l4")
    assert "to measure on l4" in out
    assert "enough: further rows would gain less than 1 %" in out


def test_how_a_served_run_was_deployed_is_said(forerun, tmp_path):
    """The result of vLLM's benchmark has neither the device nor the degree."""
    file = tmp_path / "run.json"
    lengths = {"total_input_tokens": 204_800, "total_output_tokens": 51_200, "completed": 200}
    times = {"mean_ttft_ms": 140.0, "median_ttft_ms": 120.0}
    times |= {"mean_tpot_ms": 10.1, "median_tpot_ms": 10.0}
    run = {"backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "max_concurrency": 16}
    file.write_text(json.dumps(run | lengths | times | {"request_rate": "inf"}))
    code, out, err = forerun("adapt", file, "--device", "h100")
    assert code == 0, err
    assert "1 run of vllm, tensor parallel 1 (--engine, --tp)" in err
    assert "kept 1 measurement of h100-sxm-80gb" in out
    err = forerun.refused("adapt", file, "--device", "h100", "--tp", "3")
    assert "Tensor parallel 3 does not divide the attention heads" in err
    file.write_text(json.dumps(run | lengths | times | {"model_id": "our-own-tune"}))
    err = forerun.refused("adapt", file, "--device", "h100")
    assert "our-own-tune" in err
    assert "--model" in err


@pytest.mark.parametrize(("after", "said"), [(12.0, True), (9.0, False), (None, False)])
def test_it_says_when_measurements_do_not_help(capsys, after, said):
    error = MetricError(8, 10.0, after, 2.0, 2.0, 1.0, 1.0, None)
    show_errors(HeldOut({"latency_ms": error}, 8, True))
    printed = " ".join(capsys.readouterr().out.split())
    sentence = "over that of the release: latency_ms. The adapted predictor is in use all the same"
    assert (sentence in printed) == said == error.worse


def test_sets_are_listed(forerun, tmp_path):
    assert "no measurements are kept" in forerun("adapt", "--list")[1]
    file = tmp_path / "m.json"
    file.write_text(json.dumps([linear_row(64, 0.05)]))
    for name in ("l4", "t4"):
        forerun.ok("adapt", file, "--device", name)
    forerun("adapt", "--device", "t4", "--rollback")
    listed = forerun.json("adapt", "--list")["sets"]
    assert [(s["device"], s["rows"], s["undone"]) for s in listed] == [
        ("l4", 1, False),
        ("t4", 1, True),
    ]
    assert "undone" in forerun("adapt", "--list", "--device", "t4")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Name the device"),
        (("--device", "l4"), "Give one file"),
        (("M", "M", "--device", "l4"), "Give one file"),
        (("M", "--device", "lx4"), "Did you mean l4"),
        (("nowhere.csv", "--device", "l4"), "No file nowhere.csv"),
        (("M", "--device", "l4"), "measurement 1.metrics.latency_ms is -1 ms"),
        (("M", "--device", "l4", "--graphs", "nowhere"), "No folder nowhere"),
        (("M", "--device", "l4", "--rollback"), "or one of"),
        (("--device", "l4", "--rollback"), "l4 has no set"),
        (("--suggest", "2", "--device", "l4", "--precision", "fp17"), "--precision 'fp17'"),
        (("nowhere", "--suggest", "2", "--device", "l4"), "nowhere"),
        (("--suggest", "2", "--device", "tpu-v4"), "no arithmetic peak for fp32"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(forerun, tmp_path, words, said):
    file = tmp_path / "m.json"
    file.write_text(json.dumps([linear_row(64, 0.05), linear_row(65, -1.0)]))
    err = forerun.refused("adapt", *(file if word == "M" else word for word in words))
    lines = [line for line in err.strip().splitlines() if line.startswith("forerun: ")]
    assert len(lines) == 1
    assert said in lines[0]


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
    first = forerun.json(*words)
    assert (first["rows"], first["judged"], first["left_out"], first["new"]) == (1, 1, 1, True)
    assert first["errors"]["latency_ms"]["rows"] == 1
    out = forerun.ok(*words)
    assert "kept before" in out and first["set"] in out
    assert forerun.json("adapt", "--list") == {"sets": []}
    (folder / "mine.json").unlink()
    faster = pd.DataFrame([row | {"status": "ok", "latency_ms": 0.4}])
    write_measurements(faster, tmp_path / "m.csv")
    forerun.ok(*words)


def test_a_missing_graph_is_named_with_its_folder(forerun, tmp_path):
    row = {"workload": "0" * 32, "kind": "network", "device": "l4", "latency_ms": 0.5}
    write_measurements(pd.DataFrame([row | {"status": "ok"}]), tmp_path / "m.csv")
    err = forerun.refused("observe", tmp_path / "m.csv", "--device", "l4")
    assert "m-graphs" in err and "row 1" in err


def test_drift_prints_slices_and_alarms(forerun, tmp_path):
    assert "no observations are kept of l4" in forerun("drift", "--device", "l4")[1]
    files = [rows_file(tmp_path, f"{n}.json", 1.0 if n < 3 else 1.2, seed=n) for n in range(4)]
    for file in files[:3]:
        forerun.ok("observe", file, "--device", "l4")
    assert "no lasting change of 5 % or more" in forerun.ok("drift")
    forerun.ok("observe", files[3], "--device", "l4")
    report = forerun.json("drift", "--device", "l4")
    assert report["observations"] == {"l4": 240}
    (alarm,) = report["alarms"]
    out = forerun.ok("drift")
    assert alarm["message"] in out
    assert "+20 %" in out or "+19 %" in out or "+21 %" in out
    assert forerun("drift", "--device", "l5")[0] == 2


def test_a_report_is_logged_as_a_run(forerun, tmp_path, request):
    pytest.importorskip("mlflow")
    from forerun.training.tracking.runs import connect

    prepared = request.getfixturevalue("prepared_database")
    uri = f"sqlite:///{shutil.copy(prepared, tmp_path / 'tracked.db')}"
    forerun.ok("observe", rows_file(tmp_path, "1.json"), "--device", "l4")
    forerun.ok("drift", "--track", "--uri", uri)
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
    forerun.ok("observe", of_candidate, "--device", "l4")
    forerun.ok("drift", "--track", "--uri", uri, "--version", "all")
    latest = client.search_runs([experiment.experiment_id])[0].data.metrics
    assert {latest[f"{version}/l4/latency_ms/n"] for version in ("v1", "v2")} == {60}
