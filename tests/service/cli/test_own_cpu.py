"""The path of a new user: add the processor, adapt to a collection, ask; nobody needs PUT."""

import json

import pandas as pd
import pytest

from forerun.service.adaptation.collecting import keep_graph
from tests.models.recorded_cpu import PUBLISHED, TABLE, built_graph

SHEET = {
    "vendor": "amd",
    "kind": "cpu",
    "memory_bandwidth_gbs": 22,
    "peak_tflops": {"fp32": 0.166},
    "compute_units": 2,
}


@pytest.fixture
def collected(tmp_path):
    """The recorded two-minute collection as `forerun collect cpu --quick` writes it."""
    rows = pd.read_csv(TABLE)
    rows = rows[rows["role"] == "quick"].copy()
    table = tmp_path / "mine.csv"
    networks = rows["kind"] == "network"
    for name in rows.loc[networks, "label"]:
        graph = built_graph(name)
        keep_graph(graph, name, table)
        rows.loc[rows["label"] == name, "workload"] = graph.digest
    rows = rows.assign(device="my-cpu", precision="fp32", phase="inference", status="ok")
    rows = rows.assign(framework="onnxruntime", runtime="onnxruntime", layout="nchw")
    rows = rows.assign(repeats=9, window_s=1.0).drop(columns=["role", "label"])
    rows.to_csv(table, index=False)
    return table


def latency(forerun, name, *words):
    return json.loads(
        forerun.ok("predict", PUBLISHED / name, "--device", "my-cpu", "--json", *words)
    )


def test_a_processor_is_added_adapted_to_and_asked_about(forerun, collected):
    forerun.ok("devices", "add", "--black-box", "--name", "my-cpu")
    error = json.loads(forerun.ok("adapt", collected, "--device", "my-cpu", "--json"))["errors"][
        "latency_ms"
    ]
    assert error["mape_after"] < 20
    answer = latency(forerun, "light_resnet50.onnx")
    assert answer["metrics"]["latency_ms"]["value"] == pytest.approx(75.7, rel=0.15)
    assert 0.5 < answer["metrics"]["latency_ms"]["coverage"] <= 1
    assert answer["metrics"]["peak_memory_mib"]["value"] > 100
    two = latency(forerun, "light_resnet50.onnx", "--threads", 2)
    assert two["metrics"]["latency_ms"]["value"] < 70


def test_a_sheet_may_come_with_rows_and_a_second_time_is_refused(forerun, collected, tmp_path):
    sheet = tmp_path / "sheet.json"
    sheet.write_text(json.dumps(SHEET))
    code, _, err = forerun("adapt", collected, "--device", "my-cpu", "--sheet", sheet, "--json")
    assert code == 0, err
    assert "my-cpu is registered" in err
    before = latency(forerun, "light_squeezenet.onnx")
    err = forerun.refused("adapt", collected, "--device", "my-cpu", "--json")
    assert "in use already" in err and "--rollback" in err
    after = latency(forerun, "light_squeezenet.onnx")
    value = after["metrics"]["latency_ms"]["value"]
    assert value == pytest.approx(before["metrics"]["latency_ms"]["value"], rel=1e-6)


def test_a_device_without_a_row_in_the_table_is_not_registered(forerun, collected, tmp_path):
    sheet = tmp_path / "sheet.json"
    sheet.write_text(json.dumps(SHEET))
    code, _, err = forerun("adapt", collected, "--device", "other-cpu", "--sheet", sheet)
    assert code == 2
    assert "no row is of other-cpu" in err
    code, _, err = forerun("devices", "show", "other-cpu")
    assert code == 2


def test_devices_are_printed_and_added_under_one_command(forerun, tmp_path):
    assert "a100" in forerun("devices", "--kind", "gpu")[1]
    assert forerun("devices", "l4")[1] == forerun("devices", "show", "l4")[1]
    code, _, err = forerun("devices", "add", "--kind", "gpu")
    assert code == 2
    assert "Only a processor is detected" in err
    sheet = tmp_path / "s.json"
    sheet.write_text(json.dumps(SHEET))
    code, out, _ = forerun("devices", "add", sheet, "--name", "box", "--json")
    assert (code, json.loads(out)["origin"]) == (0, "registered")
    assert "box" in forerun("devices", "--kind", "cpu")[1]
    code, _, err = forerun("devices", "add", sheet, "--black-box")
    assert "not both" in err
