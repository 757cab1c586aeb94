"""Protocols of mlenergy: queries, training rows and held-out rows."""

import numpy as np

from forerun.data.datasets.power.mlenergy import RUNS
from forerun.data.workload import LlmServing
from forerun.training.protocols.power.mlenergy import VALUES, serving_runs
from tests.devices import CATALOG


def test_a_query_only_holds_facts_known_before_the_run(made_up):
    """Measured values may change without changing the queries."""
    runs = made_up("mlenergy").table(RUNS)
    changed = runs.copy()
    for name in runs.columns:
        if name.startswith(("avg_", "energy_", "throughput_", "batch_lat", "output_")) or (
            "itl" in name
        ):
            changed[name] = runs[name] * 3.0
    changed["model_id"] = "another"
    assert serving_runs(changed, CATALOG).queries == serving_runs(runs, CATALOG).queries


def test_power_is_per_device_and_all_else_for_all_devices(made_up):
    runs = serving_runs(made_up("mlenergy").table(RUNS), CATALOG)
    power, rate, joules, _, samples, each = (runs.values[name] for name in VALUES)
    count = np.array([q.operation.device_count for q in runs.queries])
    language = np.array([isinstance(q.workload, LlmServing) for q in runs.queries])
    assert set(count) == {1, 2}
    np.testing.assert_allclose((power * count / rate)[language], joules[language])
    np.testing.assert_allclose((power * count / samples)[~language], each[~language])
