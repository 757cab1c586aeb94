"""Our own measurements on GPUs keep the dataset contract, and packing preserves the rows."""

import json

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.pack_torch_gpu import write_package
from forerun.data.datasets.networks.torch_gpu import (
    EXECUTION_MODES,
    TorchGpu,
    execution_modes,
    families,
)
from forerun.data.errors import BadTable
from forerun.data.graph import OperatorGraph
from forerun.data.measurement import write_measurements
from tests.contracts.tiny_torch_gpu import GPUS, GRAPH, LINEAR
from tests.data.datasets.packaged_contract import PackagedContract


class TestTorchGpu(PackagedContract):
    cls = TorchGpu
    datasheet_says = "TF32 is off for matrix products in `fp32`"

    def test_modes_train_nothing_and_each_gpu_is_held_out(self, bundle, splits):
        assert set(splits) == {*EXECUTION_MODES, *(f"unseen_device/{gpu}" for gpu in GPUS)}
        runs = bundle.table("runs")
        for mode in EXECUTION_MODES:
            assert not splits[mode].train.any()
            assert set(execution_modes(runs[splits[mode].held_out])) == {mode}
        assert not any(split.held_out[runs["status"] == "oom"].any() for split in splits.values())

    def test_each_network_of_the_packaged_rows_has_its_graph(self, packaged):
        runs, graphs = packaged["runs"], packaged["graphs"]
        assert runs["device"].value_counts().to_dict() == {GPUS[0]: 1297, GPUS[1]: 1367}
        assert not runs.duplicated(["device", "workload", "precision", "batch_size", "phase",
                                    "cuda_graph", "fp32_convolutions"]).any()  # fmt: skip
        networks = runs[runs["kind"] == "network"]
        assert set(networks["workload"]) == set(graphs["digest"])
        for row in graphs.itertuples():
            graph = OperatorGraph.from_json(json.loads(row.content))
            assert (graph.digest, len(graph)) == (row.digest, row.operators)

    def test_energy_over_power_is_close_to_the_time_of_a_recorded_network(self, packaged):
        """Queued runs have small gaps, and may run at the clock of the power limit."""
        runs = packaged["runs"]
        recorded = runs[runs["cuda_graph"]]
        window_ms = 1e3 * recorded["energy_j"] / recorded["power_w"]
        ratio = window_ms / recorded["latency_ms"]
        assert ratio.min() > 0.9
        assert ratio.median() < 1.3


def collected():
    same = {"framework": "torch", "framework_version": "2.11.0", "runtime": "eager", "cuda": "13.0"}
    same |= {"device": "NVIDIA H200", "driver": "580.1", "layout": "nchw", "status": "ok"}
    same |= {"latency_ms": 2.0, "spread": 0.01, "repeats": 9, "window_s": 1.0, "precision": "tf32"}
    network = {"kind": "network", "workload": "tiny-16", "label": "tiny-16", "batch_size": 4}
    network |= {"phase": "inference"}
    operator = {"kind": "kernel", "workload": json.dumps(LINEAR), "label": LINEAR["name"]}
    return pd.DataFrame(
        [
            same | operator | {"kernel_ms": 0.01},
            same | network,
            same | network | {"cuda_graph": True},
            same | network | {"runtime": "compiled"},
        ]
    )


def packed(tmp_path, graph=GRAPH):
    table, graphs = tmp_path / "t.parquet", tmp_path / "graphs"
    write_measurements(collected(), table)
    graphs.mkdir()
    if graph is not None:
        (graphs / "tiny-16.json").write_text(json.dumps(graph.to_json()))
    return write_package([table], [graphs], tmp_path / "torch_gpu")


def test_packing_uses_forerun_device_names_and_graph_digests(tmp_path):
    bundle = packed(tmp_path)
    runs = bundle.table("runs")
    assert set(runs["device"]) == {"h200-sxm-141gb"}
    assert runs["kind"].tolist() == ["kernel", "network", "network"]
    assert runs["cuda_graph"].tolist() == [False, False, True]
    assert set(runs["workload"][1:]) == {GRAPH.digest}
    assert runs["phase"].isna().tolist() == [True, False, False]
    assert np.isnan(runs["batch_size"][0])
    assert bundle.table("graphs")["graph"].tolist() == ["tiny-16"]
    assert "| h200-sxm-141gb | recorded | inference | 1 | 0 | 0.010 |" in bundle.datasheet


def test_new_rows_are_added_and_replace_earlier_rows_of_the_same_query(
    tmp_path,
):
    earlier = packed(tmp_path)
    again = collected().assign(latency_ms=3.0, fp32_convolutions="strict").iloc[1:2]
    failed = again.assign(batch_size=64, status="failed", latency_ms=np.nan)
    default = again.assign(precision="fp32", fp32_convolutions="tf32", batch_size=64)
    table = tmp_path / "more.parquet"
    write_measurements(pd.concat([again, failed, default], ignore_index=True), table)
    bundle = write_package([table], [], tmp_path / "torch_gpu", Bundle.open(earlier.folder))
    runs = bundle.table("runs")
    assert runs["latency_ms"].tolist() == [2.0, 3.0, 3.0, 2.0]
    assert runs["fp32_convolutions"].tolist() == ["strict", "strict", "tf32", "strict"]
    assert set(runs["workload"][1:]) == {GRAPH.digest}
    assert list(bundle.facts["machines"]) == ["h200-sxm-141gb"]


def test_a_network_without_its_graph_is_refused(tmp_path):
    with pytest.raises(BadTable, match=r"tiny-16 was measured, but no folder has its graph"):
        packed(tmp_path, graph=None)


def test_families_are_leading_letters_of_networks_and_kinds_of_operators():
    rows = [("kernel", json.dumps(LINEAR), "linear 1x1"), ("network", "ab", "resnet50")]
    frame = pd.DataFrame(rows, columns=["kind", "workload", "label"])
    assert families(frame).tolist() == ["linear", "resnet"]
