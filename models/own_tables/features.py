"""Operators and networks as tests with plain settings, and the base that a metric is divided by.

A metric over its base is nearly the same on all devices, so that a few hundred rows suffice: time
over the roofline bound, power over the design power, memory over the bytes that are moved.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.data.columns import Column
from forerun.data.query import Query
from forerun.data.workload import Benchmark, phase_of
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import ELEMENT_BYTES, roofline_ms

USUAL_TDP_W = 100.0
"""Base of power on a device whose sheet gives no design power, W."""


def as_test(query: Query, suite: str) -> Query:
    """The query as a test of a suite, whose settings describe its operators.

    Tests of a suite are returned as they are.

    Args:
        query: an operator or network on a device with a spec sheet, or a test of the suite.
        suite: name of the suite.

    Raises:
        UnknownPrecision: the device's sheet has no peak for the query's precision.
    """
    if isinstance(query.workload, Benchmark):
        return query
    run = query.run
    bound_ms, moved_mib, flops, operators, weights_mib = _totals(query)
    numbers = {
        "bound_ms": bound_ms,
        "moved_mib": moved_mib,
        "weights_mib": weights_mib,
        "gflop": flops / 1e9,
        "operators": operators,
        "threads": query.software.threads,
    }
    texts = {
        "precision": run.precision,
        "phase": phase_of(run),
        "runtime": query.software.runtime,
        "framework": query.software.framework,
    }
    settings = {n: float(value) for n, value in numbers.items() if value} | texts
    return replace(query, workload=Benchmark(suite, tuple(sorted(settings.items()))))


def bases(queries: Sequence[Query], metric: str) -> Column:
    """What a metric of n queries is divided by, in its unit, shape (n,); 1 for tests of a suite."""
    return np.array([_base(query, metric) for query in queries], dtype=np.float64)


def _base(query: Query, metric: str) -> float:
    if isinstance(query.workload, Benchmark):
        return 1.0
    bound_ms, moved_mib, *_ = _totals(query)
    power_w = query.device.tdp_w or USUAL_TDP_W
    known = {
        "latency_ms": bound_ms,
        "power_w": power_w,
        "energy_j": power_w * bound_ms / 1e3,
        "samples_per_s": 1e3 / bound_ms,
    }
    return moved_mib if metric.endswith("_mib") else known.get(metric, 1.0)


def _totals(query: Query) -> tuple[float, float, float, float, float]:
    """Roofline bound in ms, MiB moved, FLOPs, number of operators and MiB of weights of one run."""
    table, run = query_table(query.run), query.run
    torch = query.software.framework == "torch"
    times = roofline_ms(table, query.device, run.precision, torch) * table.repeat
    each_mib = ELEMENT_BYTES[run.precision] / 2**20
    weights = float((table.parameter_elements * table.repeat).sum()) * each_mib
    elements = table.in_elements + table.out_elements + table.parameter_elements
    moved = float((elements * table.repeat).sum()) * each_mib
    flops, operators = float((table.flops * table.repeat).sum()), float(table.repeat.sum())
    return max(float(times.sum()), 1e-9), max(moved, 1e-9), flops, operators, weights
