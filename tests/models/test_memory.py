"""Inference memory: weights plus the largest live set plus the device's own share."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.contract import PredictorContract
from forerun.models.memory import (
    CONTEXT_HIGH_MIB,
    CONTEXT_LOW_MIB,
    CONTEXT_MIB,
    SLACK,
    InferenceMemory,
)

CATALOG = DeviceCatalog.load()
MILLION = 2**20
GRAPH = OperatorGraph(
    (
        Operator("linear", "fc", ((1, MILLION),), ((1, MILLION),), 64 * MILLION),
        Operator("elementwise", "relu", ((1, MILLION),), ((1, MILLION),), inputs=(0,)),
    ),
    parameter_elements=64 * MILLION,
)


def ask(batch=1, precision="fp32", device="l4", phase="inference"):
    return Query(Network(GRAPH, batch, precision, phase), CATALOG.get(device))


class TestInferenceMemoryContract(PredictorContract):
    def make(self):
        return InferenceMemory()

    def queries(self):
        return [ask(), ask(16, "fp16"), ask(4, "amp", "a100-pcie-80gb")]


def test_it_is_weights_and_live_tensors_by_hand():
    answer = InferenceMemory().predict([ask(batch=8)])
    network_input, hidden, output = 1, 1, 1
    live = 64 * 4 + 8 * (network_input + hidden + output) * 4
    assert answer.values["allocated_memory_mib"][0] == pytest.approx(live)
    assert answer.values["peak_memory_mib"][0] == pytest.approx(SLACK * live + CONTEXT_MIB)


def test_half_precision_halves_and_autocast_keeps_both_copies():
    full, half, auto = (
        InferenceMemory().predict([ask(precision=p)]).values["allocated_memory_mib"][0]
        for p in ("fp32", "fp16", "amp")
    )
    assert half == pytest.approx(full / 2)
    assert auto > full


def test_what_cannot_fit_says_so():
    answer = InferenceMemory().predict([ask(batch=10_000)])[0]
    assert any("the device has 24 GiB" in line for line in answer.limits)
    assert answer.estimates["peak_memory_mib"].coverage is None


def test_it_answers_inference_only():
    assert not InferenceMemory().answers(ask(phase="training"))


def test_measured_rows_move_the_devices_own_share():
    queries = [ask(batch=b) for b in (1, 8, 32)]
    plain = InferenceMemory().predict(queries).values["peak_memory_mib"]
    rows = Measurements(queries, {"peak_memory_mib": plain + 400.0})
    adapted = InferenceMemory().adapt(rows)
    gained = adapted.predict(queries).values["peak_memory_mib"] - plain
    assert (gained > 200).all()
    assert (gained <= 400 + 1e-6).all()
    assert adapted.adapt(Measurements(queries, {"latency_ms": np.ones(3)})) == adapted


def shown(rows, gained=400.0):
    queries = [ask(batch=b + 1) for b in range(rows)]
    plain = InferenceMemory().predict(queries).values["peak_memory_mib"]
    return InferenceMemory().adapt(Measurements(queries, {"peak_memory_mib": plain + gained}))


def test_more_rows_are_trusted_more_and_other_devices_stay():
    plain = InferenceMemory().predict([ask()]).values["peak_memory_mib"][0]
    gains = [shown(n).predict([ask()]).values["peak_memory_mib"][0] - plain for n in (1, 2, 5, 20)]
    assert gains == sorted(gains)
    assert gains[0] > 100
    assert gains[-1] == pytest.approx(400, rel=0.05)
    other = ask(device="a100-pcie-80gb")
    assert shown(20).predict([other]).values == InferenceMemory().predict([other]).values


def test_a_few_rows_narrow_the_range():
    def width(predictor):
        peak = predictor.predict([ask()])[0].estimates["peak_memory_mib"]
        return peak.high - peak.low

    assert width(shown(5)) < 0.6 * width(InferenceMemory())


def test_shares_survive_saving(tmp_path):
    adapted = shown(5)
    adapted.save(tmp_path / "memory")
    assert InferenceMemory.load(tmp_path / "memory") == adapted


@pytest.mark.parametrize("precision", ["fp32", "fp16", "amp", "int8"])
def test_a_larger_batch_never_takes_less(precision):
    peaks = [
        InferenceMemory().predict([ask(b, precision)]).values["peak_memory_mib"][0]
        for b in (1, 2, 7, 64)
    ]
    assert peaks == sorted(peaks)


def test_weights_are_counted_once_however_often_they_are_used():
    tied = Operator("linear", "fc", ((1, 1024),), ((1, 1024),), MILLION)
    twice = (tied, replace(tied, inputs=(0,)))
    shared = OperatorGraph(twice, parameter_elements=MILLION)
    apart = OperatorGraph(twice)
    one, two = (
        InferenceMemory().predict([Query(Network(g), CATALOG.get("l4"))]) for g in (shared, apart)
    )
    gained = two.values["allocated_memory_mib"] - one.values["allocated_memory_mib"]
    assert gained[0] == pytest.approx(4.0)


def test_the_devices_share_spans_what_training_jobs_showed(reference):
    """The least that any job took of an A100: 1,443 MiB, with nearly nothing of its own."""
    jobs = pd.read_parquet(reference / "gpumemnet" / "mlp_step2.parquet")
    least = jobs["Max GPU Memory (MiB)"].min()
    assert CONTEXT_LOW_MIB < CONTEXT_MIB < least < CONTEXT_HIGH_MIB
