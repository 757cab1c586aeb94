"""Measurements in files: tables of the row schema and JSON lists; messages name file and row."""

import json

import pandas as pd
import pytest

from forerun.data.errors import BadTable, InputError, MissingData, UnknownGraph
from forerun.data.measurement import write_measurements
from forerun.service.adaptation.measurement_files import GraphFolder, graph_folder_of, read_rows
from tests.devices import CATALOG, L4
from tests.service.conftest import GRAPH, linear_row

OPERATOR = json.dumps(linear_row(64, 1.0)["workload"]["operator"])


def table(*rows):
    defaults = {"device": "NVIDIA L4", "status": "ok", "latency_ms": 1.5}
    return pd.DataFrame([defaults | row for row in rows])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_rows_of_a_table_become_what_goes_over_http(tmp_path, suffix):
    file = tmp_path / f"m{suffix}"
    network = {"workload": "ab" * 16, "kind": "network", "batch_size": 8, "precision": "amp"}
    network |= {"runtime": "compiled", "framework_version": "2.9", "power_w": 60.0}
    rows = (
        {"workload": OPERATOR, "kind": "kernel", "precision": "fp16"},
        network,
        {"workload": OPERATOR},
        {"workload": OPERATOR, "status": "oom", "latency_ms": None},
        {"workload": OPERATOR, "status": "throttled"},
        {"workload": OPERATOR, "device": "t4"},
        {"workload": OPERATOR, "device": "somebody's"},
    )
    write_measurements(table(*rows), file)
    found = read_rows(file, L4, CATALOG)
    assert found.left_out == 4
    assert found.names == tuple(f"{file}: row {n}" for n in (1, 2, 3))
    kernel, whole, plain = found.rows
    assert kernel.workload.precision == "fp16"
    assert kernel.workload.operator == plain.workload.operator
    assert kernel.measured() == {"latency_ms": 1.5}
    assert (whole.workload.graph, whole.workload.batch_size) == ("ab" * 16, 8)
    assert (whole.software.runtime, whole.software.version) == ("compiled", "2.9")
    assert whole.measured() == {"latency_ms": 1.5, "power_w": 60.0}


def test_a_cell_holds_a_workload_as_suggestions_print_it(tmp_path):
    file = tmp_path / "m.csv"
    whole = linear_row(64, 1.0)["workload"] | {"precision": "fp16"}
    network = {"kind": "network", "graph": "ab" * 16, "batch_size": 8, "phase": "training"}
    rows = [{"workload": json.dumps(one), "precision": None} for one in (whole, network)]
    write_measurements(table(*rows), file)
    kernel, other = (row.workload for row in read_rows(file, L4, CATALOG).rows)
    assert (kernel.precision, kernel.operator.kind) == ("fp16", "linear")
    assert (other.graph, other.batch_size, other.phase) == ("ab" * 16, 8, "training")
    write_measurements(table(rows[0] | {"precision": "fp32"}), file)
    with pytest.raises(BadTable, match="row 1, column 'precision': it is 'fp32', and 'fp16' in"):
        read_rows(file, L4, CATALOG)


def test_json_is_a_list_or_the_body_of_a_post_and_may_be_half_filled_in(tmp_path):
    file = tmp_path / "m.json"
    rows = [linear_row(1, 0.5), linear_row(2, None), linear_row(3, 0.7)]
    for content in (rows, {"device": "l4", "measurements": rows}):
        file.write_text(json.dumps(content))
        found = read_rows(file, L4, CATALOG)
        assert found.names == (f"{file}: measurement 0", f"{file}: measurement 2")
        assert found.left_out == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("m.json", "{", "valid JSON"),
        ("m.json", "[]", "no measurement to learn from"),
        ("m.json", '{"rows": []}', "no list of measurements"),
        ("m.json", '[{"workload": 3}]', "measurement 0.workload"),
        ("m.csv", "workload,device,status\n", "column 'device'"),
        ("m.csv", "workload,device\nx,l4\n", "no column is a metric"),
        ("m.csv", "workload,device,status,latency_ms\nx,t4,ok,1\n", "no row is of l4; .* has t4"),
        ("m.csv", "workload,device,status,latency_ms\nx,l4,ok,-1\n", "latency_ms"),
        ("m.csv", "workload,device,status,kind,latency_ms\nx,l4,ok,kernel,1\n", "row 1.* as JSON"),
        ("m.csv", "workload,device,status,latency_ms\n{},l4,ok,1\n", "row 1.*operator"),
        ("m.csv", "workload,device,status\nx,l4,oom\n", "no measurement to learn from; 1"),
    ],
)
def test_a_bad_file_is_reported_in_one_line(tmp_path, name, content, said):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(BadTable, match=said) as refused:
        read_rows(file, L4, CATALOG)
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    for name in ("m.json", "m.csv"):
        with pytest.raises(MissingData, match=name):
            read_rows(tmp_path / name, L4, CATALOG)


def test_more_than_a_thousand_rows_at_once_are_refused(tmp_path):
    file = tmp_path / "m.json"
    file.write_text(json.dumps([linear_row(1, 0.5)] * 1001))
    with pytest.raises(InputError, match="1,000 at most"):
        read_rows(file, L4, CATALOG)


def test_graphs_are_found_by_digest_and_by_file_name(tmp_path, light):
    folder = tmp_path / "m-graphs"
    assert graph_folder_of(tmp_path / "m.parquet") == folder
    with pytest.raises(UnknownGraph):
        GraphFolder(folder).get(GRAPH.digest)
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps(GRAPH.to_json()))
    (folder / "broken.json").write_text("{")
    model = light / "light_squeezenet.onnx"
    (folder / model.name).write_bytes(model.read_bytes())
    graphs = GraphFolder(folder)
    named = graphs.get(model.name)
    assert graphs.get(named.digest).digest == named.digest
    for name in (GRAPH.digest, "mine.json", "mine"):
        assert graphs.get(name).digest == GRAPH.digest
    for name in ("0" * 32, "../m-graphs/mine.json", ""):
        with pytest.raises(UnknownGraph):
            graphs.get(name)


def test_runs_recorded_as_cuda_graphs_are_left_out(tmp_path):
    rows = [{"workload": OPERATOR, "cuda_graph": recorded} for recorded in (True, None)]
    for name in ("t.parquet", "t.csv"):
        write_measurements(table(*rows), tmp_path / name)
        found = read_rows(tmp_path / name, L4, CATALOG)
        assert (len(found.rows), found.left_out) == (1, 1)


def test_the_time_of_an_operator_is_that_of_the_gpu_without_its_launch(tmp_path):
    rows = ({"workload": OPERATOR, "kernel_ms": 0.25}, {"workload": OPERATOR})
    write_measurements(table(*rows), tmp_path / "t.parquet")
    timed, launched = read_rows(tmp_path / "t.parquet", L4, CATALOG).rows
    assert timed.measured() == {"latency_ms": 0.25}
    assert launched.measured() == {"latency_ms": 1.5}
