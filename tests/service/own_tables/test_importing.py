"""Devices and graphs of a table are resolved, and what cannot be is named with a way to mend it."""

import json

import numpy as np
import pytest

from forerun.data.collectors.workloads.onnx_networks import NETWORKS
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import BadTable, InputError
from forerun.data.graph import OperatorGraph
from forerun.features.readers import read_graph
from forerun.features.tables.own_tables import own_measurements
from forerun.service.own_tables.importing import check_name, import_table
from forerun.service.settings import Settings
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.places import Place

NETWORK = next(iter(NETWORKS))


@pytest.fixture
def importing(tmp_path, monkeypatch):
    """Imports lines of CSV as the table `mine`."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))

    def run(*lines, **options):
        file = tmp_path / "t.csv"
        file.write_text("\n".join(lines) + "\n")
        options = {"given": {}, "rest": "setting"} | options
        return import_table(file, "mine", Settings.load(), **options)

    return run


def rows_of(imported):
    return own_measurements(imported.bundle, imported.description)


@pytest.mark.parametrize("name", ["timm_bench", "device_time", "Mine", "", "a/b", "x" * 50])
def test_a_name_that_is_taken_or_no_name_is_refused(name):
    with pytest.raises(InputError, match="--name"):
        check_name(name)
    check_name("mine-2")


def test_unknown_devices_are_named_with_the_nearest_ones(importing):
    lines = ("gpu,n,latency_ms", "rtx-4091,1,1", "l4,2,1", "nothing-like-it,3,1")
    with pytest.raises(BadTable, match=r"'nothing-like-it', 'rtx-4091' \(did you mean rtx-4090"):
        importing(*lines)


def test_a_device_is_found_by_any_of_its_names_and_its_sheet_comes_with_the_bundle(importing):
    imported = importing("gpu,n,latency_ms", "NVIDIA GeForce RTX 3090,1,1", "rtx-3090,2,2")
    rows = rows_of(imported)
    assert rows.groups["device"].tolist() == ["rtx-3090"] * 2
    assert rows.queries[0].device == DeviceCatalog.load().get("rtx-3090")
    settings = rows.queries[0].workload.by_name
    assert settings["device memory_bandwidth_gbs"] == rows.queries[0].device.bandwidth_gbs
    assert not any("3090" in str(value) for value in settings.values()), "names are no features"


def test_a_black_box_serves_plain_columns_and_not_graphs(importing, tmp_path):
    store = DeviceStore(Place(tmp_path / "home") / "devices")
    store.register(Device(name="my-phone", vendor="unknown", kind="npu"))
    rows = rows_of(importing("device,n,latency_ms", "my-phone,1,1", "my-phone,2,2"))
    assert set(rows.queries[0].workload.by_name) == {"n"}
    with pytest.raises(BadTable, match="my-phone has no spec sheet"):
        importing("device,graph,latency_ms", "my-phone,g.onnx,1")


def test_rows_without_a_device_column_have_none(importing):
    rows = rows_of(importing("n,latency_ms", "1,1", "2,2"))
    assert "device" not in rows.groups


def test_graphs_are_files_next_to_the_table_or_digests_and_operators_are_json(importing, tmp_path):
    content = NETWORKS[NETWORK].build()
    graph = read_graph(content)
    (tmp_path / "net.onnx").write_bytes(content)
    (tmp_path / "t-graphs").mkdir()
    other = OperatorGraph(graph.operators[:3], graph.batch_size)
    (tmp_path / "t-graphs" / "other.json").write_text(json.dumps(other.to_json()))
    third = OperatorGraph(graph.operators[:2], graph.batch_size)
    GraphStore(Place(tmp_path / "home") / "graphs", 10).put(third)
    operator = '{""kind"": ""softmax"", ""input_shapes"": [[8, 64]], ""output_shapes"": [[8, 64]]}'
    lines = [
        "graph,gpu,latency_ms,precision",
        "net.onnx,l4,9,fp32",
        f"{other.digest},l4,9,fp32",
        "other.json,l4,9,fp16",
        f"{third.digest},l4,9,fp32",
        f'"{operator}",l4,9,fp32',
    ]
    imported = importing(*lines)
    rows = rows_of(imported)
    kinds = [query.workload.kind for query in rows.queries]
    assert kinds == ["network"] * 4 + ["kernel"]
    digests = [query.workload.graph.digest for query in rows.queries[:4]]
    assert digests == [graph.digest, other.digest, other.digest, third.digest]
    assert rows.queries[4].workload.operator.kind == "softmax"
    assert len(np.unique(rows.groups["model_group"])) == 4


def test_a_graph_that_is_nowhere_is_named_with_its_row_and_the_places(importing):
    lines = ("graph,gpu,latency_ms", "absent.onnx,l4,1")
    with pytest.raises(BadTable, match=r"t\.csv, row 1: no graph 'absent\.onnx'.*t-graphs/"):
        importing(*lines)


def test_what_a_user_answers_is_read_like_an_option(importing):
    asked = {}

    def ask(name, examples):
        asked[name] = list(examples)
        return {"cores": "setting", "took": "latency_us"}.get(name, "")

    imported = importing("cores,took,note", "4,5,x", "8,7,x", rest=None, ask=ask)
    assert asked == {"cores": ["4", "8"], "took": ["5", "7"], "note": ["x"]}
    assert imported.columns["note"] == "ignored"
    assert rows_of(imported).values["latency_ms"].tolist() == pytest.approx([0.005, 0.007])


def test_doubtful_rows_are_counted_stored_and_weigh_less(importing):
    imported = importing("n,latency_ms", "1,1", "1,1", "2,3", "2,9")
    assert imported.flags == {"duplicate": 1, "conflict": 2}
    assert rows_of(imported).weights.tolist() == [1.0, 0.5, 0.5, 0.5]
    assert "- conflict: 2" in imported.bundle.datasheet
