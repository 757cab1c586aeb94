"""Queries about a processor: threads, caches and speeds as sheets and users give them."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.features.processors.work import COLUMNS
from forerun.models.processors.latency import (
    latency_rows,
    sheet_shift,
    structure_of,
    threads_of,
)
from forerun.models.processors.rates import COUNT

CPU = Device(
    name="cpu", vendor="nobody", kind="cpu", peak_tflops={"fp32": 0.8}, compute_units=4,
    memory_bandwidth_gbs=50.0, l2_mib=32.0,
)  # fmt: skip
BARE = Device(name="bare", vendor="nobody", kind="cpu")
ESTIMATE = "derived: estimated from 9 measurements"


def dense(batch=8, width=64):
    return Operator("linear", "Gemm", ((batch, 64),), ((batch, width),), 64 * width)


def network(batch=8, width=64, size=8):
    relu = Operator("elementwise", "Relu", ((batch, width),), ((batch, width),), 0,
                    {"function": "relu"}, (0,))  # fmt: skip
    return Network(OperatorGraph((dense(batch, width), relu), batch), size)


def amount(query, column):
    return float(latency_rows([query]).amounts[0, COLUMNS.index(column)])


def test_threads_are_those_given_else_usual_else_cores_else_one():
    query = Query(network(), CPU)
    given = replace(query, software=Software(threads=3))
    assert threads_of(given, 2.0) == 3.0
    assert threads_of(query, 2.0) == 2.0
    assert threads_of(query) == 4.0
    assert threads_of(replace(query, device=BARE)) == 1.0
    guessed = CPU.model_copy(update={"sources": {"compute_units": ESTIMATE}})
    assert threads_of(replace(query, device=guessed)) == 1.0


def test_rows_hold_doublings_of_threads_and_of_the_batch():
    queries = [Query(network(size=16), CPU), Query(Kernel(dense()), CPU)]
    rows = latency_rows(queries)
    assert rows.doublings.tolist() == [2.0, 2.0]
    assert rows.log_size.tolist() == [4.0, 0.0]
    assert rows.whole.tolist() == [True, False]
    assert np.isnan(rows.log_ms).all()
    assert rows.noise.tolist() == [0.03, 0.03]
    flops = rows.amounts[:, COLUMNS.index(("gemm", "flops"))]
    assert flops.tolist() == [2 * 16 * 64 * 64, 2 * 8 * 64 * 64]


def test_one_structure_whatever_the_batch_and_another_for_other_shapes():
    assert structure_of(network(8).graph) == structure_of(network(16).graph)
    assert structure_of(network(8).graph) != structure_of(network(8, 128).graph)
    one, other = (OperatorGraph((dense(batch),)) for batch in (8, 16))
    assert structure_of(one) != structure_of(other), "a single operator has no batch"


def test_speeds_of_a_sheet_shift_the_prior_from_a_core_of_a_tenth_of_a_teraflop():
    """0.8 TFLOP/s on 4 cores: each is twice as fast; of memory, half of that in logarithms."""
    shift = sheet_shift(CPU)
    assert (shift[COUNT:] == 0).all()
    for (_, term), value in zip(COLUMNS, shift[:COUNT], strict=True):
        assert value == pytest.approx(-log(2.0) if term == "flops" else -log(2.0) / 2)


@pytest.mark.parametrize(
    "change",
    [
        {"peak_tflops": {}},
        {"compute_units": None},
        {"sources": {"peak_tflops.fp32": ESTIMATE}},
    ],
)
def test_without_a_given_peak_nothing_is_shifted(change):
    assert not sheet_shift(CPU.model_copy(update=change)).any()


def test_a_run_has_half_of_the_last_cache_up_to_32_mib():
    """Weights of 16 MiB: half far where the cache that they may use is as large."""
    wide = Operator("linear", "Gemm", ((8, 1024),), ((8, 4096),), 4 * 2**20)

    def far(mib, **more):
        device = CPU.model_copy(update={"l2_mib": mib, **more})
        return amount(Query(Kernel(wide), device), ("memory", "far_weights")) / 2**24

    def expected(cache_mib):
        return 16**2 / (16**2 + cache_mib**2)

    assert far(32.0) == pytest.approx(expected(16))
    assert far(8.0) == pytest.approx(expected(4))
    assert far(500.0) == pytest.approx(expected(32))
    assert far(None) == pytest.approx(expected(16))
    assert far(4.0, sources={"l2_mib": ESTIMATE}) == pytest.approx(expected(16))
