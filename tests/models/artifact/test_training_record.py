"""The record of a training set says what was measured on what, and survives its file."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Architecture, Kernel, Network
from forerun.models.artifact.loading import bundled
from forerun.models.artifact.training_record import FILE, Setting, TrainingRecord

RELU = Operator("elementwise", "relu", ((8,),), ((8,),))
DEVICES = DeviceCatalog.load()
L4, T4 = DEVICES.get("l4"), DEVICES.get("t4")
NETWORK = Network(OperatorGraph((RELU,)), precision="amp", phase="training")


@pytest.fixture
def record(tmp_path) -> TrainingRecord:
    bundle = Bundle("toy", tmp_path)
    queries = [
        Query(Kernel(RELU), L4),
        Query(Kernel(RELU), L4),
        Query(NETWORK, T4, Software(runtime="compiled")),
        Query(Architecture("nb201", (1,)), T4),
    ]
    values = {"latency_ms": np.array([1.0, np.nan, 3.0, 4.0]), "power_w": np.full(4, np.nan)}
    return TrainingRecord().with_rows(bundle, Measurements(queries, values))


def test_rows_are_counted_where_the_metric_was_measured(record):
    assert record.counts["toy"] == {
        Setting("l4", "kernel", "latency_ms", "inference", "fp32", "eager"): 1,
        Setting("t4", "network", "latency_ms", "training", "amp", "compiled"): 1,
        Setting("t4", "architecture", "latency_ms"): 1,
    }


def test_counts_survive_the_file(record, tmp_path):
    record.write(tmp_path)
    assert TrainingRecord.read(tmp_path) == record


def test_a_record_from_before_counts_is_read_without_them(record, tmp_path):
    record.write(tmp_path)
    content = json.loads(gzip.decompress((tmp_path / FILE).read_bytes()))
    del content["counts"]
    (tmp_path / FILE).write_bytes(gzip.compress(json.dumps(content).encode()))
    assert TrainingRecord.read(tmp_path) == replace(record, counts={})


@pytest.mark.slow
def test_the_counts_of_the_bundled_predictors_agree_with_their_rows():
    record = bundled().record
    if not record.rows:
        pytest.skip("no bundled predictors in models/pretrained: `forerun train` makes them")
    assert set(record.counts) == set(record.rows)
    for dataset, counted in record.counts.items():
        by_metric: dict[str, int] = {}
        for setting, rows in counted.items():
            by_metric[setting.metric] = by_metric.get(setting.metric, 0) + rows
        assert max(by_metric.values()) <= record.rows[dataset]
        assert set(by_metric) == set(record.medians[dataset])


def test_keys_of_two_parts_of_a_dataset_are_all_known(tmp_path):
    """Each part trains a predictor of its own, and rows of neither are evaluated."""
    bundle = Bundle("toy", tmp_path)

    def part(*models):
        queries = [Query(NETWORK, T4)] * len(models)
        groups = {"model": np.array(models)}
        return Measurements(queries, {"latency_ms": np.ones(len(models))}, groups)

    record = TrainingRecord().with_rows(bundle, part("vit", "bert"))
    both = record.with_keys_of(bundle, part("resnet", "vit"))
    assert both.seen("toy")["model"] == ["bert", "resnet", "vit"]
    assert both.rows == record.rows
    assert both.counts == record.counts
