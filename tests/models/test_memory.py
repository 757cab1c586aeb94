"""Inference memory: weights plus the largest live set plus the device's own share."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.contract import PredictorContract
from forerun.models.memory import CONTEXT_MIB, SLACK, InferenceMemory

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
    live = 64 * 4 + 8 * (1 + 1) * 4
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
