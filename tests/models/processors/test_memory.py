"""Peak memory on a processor: a session, weights and live activations, by hand."""

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.processors.latency import METRIC, CpuMemory

CPU = Device(name="cpu", vendor="nobody", kind="cpu")
MIB = 2**18
"""Elements of four bytes in one MiB."""


def query(weights_mib, activations_mib, batch=1, device=CPU):
    """One layer of so many MiB, whose input and output are live together."""
    half = ((1, activations_mib * MIB // 2),)
    layer = Operator("linear", "Gemm", half, half, weights_mib * MIB)
    graph = OperatorGraph((layer,), 1, parameter_elements=weights_mib * MIB)
    return Query(Network(graph, batch), device)


def measured(queries, factors=(10.0, 2.0, 1.5)):
    parts = [(1.0, w, a) for w, a in SIZES[: len(queries)]]
    return Measurements(queries, {METRIC: np.array(parts) @ np.array(factors)})


SIZES = [(4, 2), (8, 4), (16, 2), (2, 16), (32, 8), (6, 32)]
QUERIES = [query(*size) for size in SIZES]


def test_a_peak_is_a_session_twice_the_weights_and_the_live_activations():
    """Before a fit: 5 MiB, weights as bytes of the file and as tensors, a fifth of slack."""
    answer = CpuMemory().predict([query(8, 4), query(8, 4, batch=3), Query(Kernel(
        QUERIES[0].run.graph.operators[0]), CPU)])  # fmt: skip
    values = answer.values[METRIC]
    assert values[:2] == pytest.approx([5 + 2 * 8 + 1.2 * 4, 5 + 2 * 8 + 1.2 * 12])
    assert np.isnan(values[2])
    assert answer.low[METRIC][:2] == pytest.approx(values[:2] / 2)
    assert answer.high[METRIC][:2] == pytest.approx(values[:2] * 2)


def test_a_fit_gives_the_factors_back():
    fitted = CpuMemory().fit(measured(QUERIES))
    assert fitted.factors == pytest.approx([10.0, 2.0, 1.5])
    assert fitted.spread == pytest.approx(1.0)


def test_few_networks_teach_nothing():
    assert CpuMemory().fit(measured(QUERIES[:4])).factors.tolist() == [5.0, 2.0, 1.2]
    assert CpuMemory().fit(measured(QUERIES[:5])).factors == pytest.approx([10.0, 2.0, 1.5])


def test_factors_are_never_nearly_nothing():
    fitted = CpuMemory().fit(measured(QUERIES, (0.0, 3.0, 0.0)))
    assert fitted.factors[0] >= 1.0
    assert fitted.factors[2] >= 0.1


def test_bounds_hold_nine_of_ten_rows():
    rows = measured(QUERIES)
    noisy = rows.values[METRIC] * np.array([1.3, 0.8, 1.1, 0.9, 1.0, 1.2])
    fitted = CpuMemory().fit(Measurements(QUERIES, {METRIC: noisy}))
    answer = fitted.predict(QUERIES)
    held = (answer.low[METRIC] <= noisy * 1.001) & (noisy <= answer.high[METRIC] * 1.001)
    assert held.sum() >= 5
    assert 1.05 < fitted.spread < 1.5


@pytest.mark.parametrize("count", [1, 5])
def test_an_offset_is_shrunken_by_five_observations_without_an_error(count):
    support = [QUERIES[0]] * count
    more = 2.0 * CpuMemory().predict(support).values[METRIC]
    adapted = CpuMemory().adapt(Measurements(support, {METRIC: more}))
    assert adapted.offsets["cpu"] == pytest.approx(np.log(2.0) * count / (count + 5))
    other = QUERIES[0].device.model_copy(update={"name": "other"})
    values = adapted.predict([query(4, 2), query(4, 2, device=other)]).values[METRIC]
    assert values[0] / values[1] == pytest.approx(2 ** (count / (count + 5)))


def test_rows_without_a_measurement_are_left_out():
    values = measured(QUERIES).values[METRIC]
    holes = np.concatenate([values, [np.nan, 0.0, 7.0]])
    rows = [*QUERIES, QUERIES[0], QUERIES[0], Query(Kernel(QUERIES[0].run.graph.operators[0]), CPU)]
    fitted = CpuMemory().fit(Measurements(rows, {METRIC: holes}))
    assert fitted.factors == pytest.approx([10.0, 2.0, 1.5])
