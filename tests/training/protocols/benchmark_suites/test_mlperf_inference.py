"""Protocols of mlperf_inference: training rows, held-out rows and simple baselines.

Protocols of wa_hls4ml and ncpp: training rows, held-out rows, and tasks on a new folder.
"""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.mlperf_inference import (
    CLOSED,
    MlperfInference,
)
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.device import DeviceCatalog
from forerun.training.protocols.benchmark_suites.mlperf_inference import (
    MlperfInferenceProtocols,
    framework_family,
    gflop_per_sample,
    run_measurements,
    tokens_per_unit,
)
from forerun.training.protocols.hls_designs.wa_hls4ml import WaHls4mlProtocols
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlperf")
    tables = MlperfInference().tidy(tiny_upstream("mlperf_inference", folder / "upstream"))
    return Bundle.write(folder / "bundle", "mlperf_inference", tables, as_csv=tuple(tables))


def test_the_median_answers_exactly_the_rows_with_a_history(bundle):
    for fold in MlperfInferenceProtocols().folds(bundle, CATALOG):
        for task in fold.tasks:
            if task.name == "later_rounds/throughput":
                median = task.baselines["median"]
                assert np.isfinite(median).all()
                assert median == pytest.approx(task.held_out.values["samples_per_s"], rel=0.1)
            if task.name.endswith("throughput_new"):
                assert np.isnan(task.baselines["median"]).all()


def test_settings_hold_no_outcome(bundle):
    rows = bundle.table(CLOSED)
    doubled = rows.assign(result=2 * rows["result"], accuracy=0.1)
    one, other = (run_measurements(frame, CATALOG) for frame in (rows, doubled))
    assert list(one.queries) == list(other.queries)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("TensorRT 9.0.0, CUDA 12.2", "vendor"),
        ("NGC MLPerf v3.0.2", "vendor"),
        ("MLCommons reference implementation with CM API, Onnxruntime v1.15.1", "onnx"),
        ("PyTorch", "pytorch"),
        (float("nan"), "vendor"),
    ],
)
def test_frameworks_are_the_vendor_s_or_portable(text, family):
    assert framework_family(text) == family


def test_the_longest_name_says_a_model_s_arithmetic():
    assert gflop_per_sample("dlrm-v2-99.9") > gflop_per_sample("dlrm-99.9")
    assert np.isnan(gflop_per_sample("something-new"))


@pytest.mark.reference
def test_tokens_become_samples_by_what_the_reference_writes(reference):
    """Without it, the same system would be seventy to three hundred times as fast as before."""
    rows = Bundle.open(reference / "mlperf_inference").table(CLOSED)
    unit = tokens_per_unit(rows)
    mine = (rows["model"] == "gptj-99") & (rows["scenario"] == "Offline")
    mine &= rows["platform"].str.contains("H100") & (rows["accelerators_per_node"] == 8)
    rate = (rows["result"] / unit)[mine].groupby(rows["round"]).median()
    assert 1.0 < rate["v4.1"] / rate["v4.0"] < 2.0


def tiny(dataset, folder) -> Bundle:
    tables = dataset.tidy(tiny_upstream(dataset.name, folder / "upstream"))
    return Bundle.write(folder / "bundle", dataset.name, tables)


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    return tiny(WaHls4ml(), tmp_path_factory.mktemp("wa_hls4ml"))


def test_failed_layers_are_no_training_rows_and_labels_are_not_settings(layers):
    train = WaHls4mlProtocols().training_rows(layers, CATALOG)
    assert len(train) == 15
    names = {name for q in train.queries for name, _ in q.workload.settings}
    assert names == {
        *("d_in", "d_out", "precision_bits", "reuse_factor", "strategy", "multipliers")
    }
