"""The record of a training set says what was measured on what, and survives its file."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Architecture, Kernel, Network
from forerun.models.artifact.sealed_folder import bundled
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


def test_what_was_judged_survives_the_file_and_further_rows(record, tmp_path):
    setting = Setting("t4", "architecture", "latency_ms")
    judged = replace(record, judged={"toy": {setting: (3, 2.5)}, "other": {}})
    judged.write(tmp_path)
    assert TrainingRecord.read(tmp_path) == judged
    nothing = Measurements((), {})
    assert judged.with_rows(Bundle("more", tmp_path), nothing).judged == judged.judged


def test_what_was_trained_often_and_scored_seldom_is_not_judged(record):
    often, seldom, rare = (Setting(name, "kernel", "power_w") for name in ("l4", "t4", "a30"))
    counts = {"toy": {often: 40, seldom: 40, rare: 5}, "unrecorded": {seldom: 90}}
    judged = {"toy": {often: (10, 10.0), seldom: (13, 13.0)}, "b": {often: (5, 5.0)}}
    known = replace(record, counts=counts, judged=judged)
    assert known.unjudged(20) == {seldom: (13, 13.0)}
    assert replace(known, judged={}).unjudged(20) == {}


@pytest.mark.parametrize(
    ("runs", "held", "covered"),
    [(0, 0.0, False), (13, 13.0, False), (14, 14.0, True), (20, 18.0, False), (50, 45.0, True),
     (80, 63.0, False), (800, 632.0, False)],
)  # fmt: skip
def test_coverage_is_known_by_the_binomial_distribution(runs, held, covered):
    """With a true coverage of 80 %, so many runs or more are inside in less than 1 of 20 cases."""
    setting = Setting("l4", "benchmark", "latency_ms")
    record = TrainingRecord(judged={"mine": {setting: (runs, held)}})
    assert record.is_covered(setting) == covered == (binom.sf(held - 1, runs, 0.8) <= 0.05)


def test_a_record_from_before_counts_is_read_without_them(record, tmp_path):
    record.write(tmp_path)
    content = json.loads(gzip.decompress((tmp_path / FILE).read_bytes()))
    del content["counts"]
    (tmp_path / FILE).write_bytes(gzip.compress(json.dumps(content).encode()))
    assert TrainingRecord.read(tmp_path) == replace(record, counts={})


@pytest.mark.slow
def test_the_counts_of_the_bundled_predictors_agree_with_their_rows():
    """Medians are of the whole or of the first part; device times are not counted as latencies."""
    record = bundled().record
    if not record.rows:
        pytest.skip("no bundled predictors in models/pretrained: `forerun train` makes them")
    assert set(record.counts) == set(record.rows)
    for dataset, counted in record.counts.items():
        of_kind: dict[tuple[str, str], int] = {}
        for setting, rows in counted.items():
            kind = setting.kind, setting.metric
            of_kind[kind] = of_kind.get(kind, 0) + rows
        # The number of rows is that of the first part, recorded networks; operators are more.
        own = {
            pair: n for pair, n in of_kind.items() if (dataset, pair[0]) != ("torch_gpu", "kernel")
        }
        assert max(own.values(), default=0) <= record.rows[dataset]
        device_times = {"latency_ms"} if dataset == "torch_gpu" else set()
        assert {metric for _, metric in of_kind} >= set(record.medians[dataset]) - device_times


def rows_of(metric, *models, **groups):
    """A row of each model, in which a metric was measured."""
    return Measurements(
        [Query(NETWORK, T4)] * len(models),
        {metric: np.ones(len(models))},
        {"model": np.array(models)} | {k: np.full(len(models), v) for k, v in groups.items()},
    )


def test_keys_of_two_parts_of_a_dataset_are_all_known(tmp_path):
    """Each part trains a predictor of its own, and rows of neither are evaluated."""
    bundle = Bundle("toy", tmp_path)
    record = TrainingRecord().with_rows(bundle, rows_of("latency_ms", "vit", "bert"))
    both = record.with_rows(bundle, rows_of("latency_ms", "resnet", "vit"), part=True)
    assert both.seen("toy")["model"] == ["bert", "resnet", "vit"]
    assert both.rows == record.rows == {"toy": 2}
    whole = both.with_rows(bundle, rows_of("latency_ms", "vit"))
    assert whole.seen("toy") == both.seen("toy")
    assert whole.rows == {"toy": 1}


def test_rows_of_a_changed_bundle_replace_those_of_the_former_one(tmp_path):
    """Their keys mean other rows."""
    bundle = Bundle("toy", tmp_path)
    (tmp_path / "notes.csv").write_text("a\n1\n")
    record = TrainingRecord({"toy": "another digest"}, {"toy": {"model": ["bert"]}}, {"toy": 7})
    found = record.with_rows(bundle, rows_of("latency_ms", "vit"), part=True)
    assert found.seen("toy") == {"model": ["vit"]}
    assert found.rows == {"toy": 1}


def test_counts_of_parts_do_not_depend_on_their_order(tmp_path):
    """Grades follow counts, and parts are fitted together or one by one. A row may be in both."""
    bundle = Bundle("toy", tmp_path)
    latency, power = rows_of("latency_ms", "vit", "bert"), rows_of("power_w", "vit")
    few = rows_of("latency_ms", "vit")
    orders = [(latency, power, few), (few, latency, power), (power, few, latency)]
    for first, *others in orders:
        record = TrainingRecord().with_rows(bundle, first)
        for part in others:
            record = record.with_rows(bundle, part, part=True)
        assert record.counts["toy"] == {
            Setting("t4", "network", "latency_ms", "training", "amp", "eager"): 2,
            Setting("t4", "network", "power_w", "training", "amp", "eager"): 1,
        }


def test_device_times_are_not_counted_as_latencies(tmp_path):
    """A recorded run says nothing of the time that an eager one waits for its host."""
    bundle = Bundle("toy", tmp_path)
    recorded = rows_of("latency_ms", "vit", host=NO_HOST)
    assert TrainingRecord().with_rows(bundle, recorded).counts["toy"] == {}
    powered = rows_of("power_w", "vit", host=NO_HOST)
    assert sum(TrainingRecord().with_rows(bundle, powered).counts["toy"].values()) == 1
