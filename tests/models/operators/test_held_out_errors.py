"""Errors of boosters on devices outside their training sets, by boosters of known ratios."""

from types import SimpleNamespace

import numpy as np
import pytest

from forerun.models.domain.device_novelty import device_position, distance
from forerun.models.operators import held_out_errors as module
from forerun.models.operators.held_out_errors import errors_by_others, held_out_errors
from forerun.models.operators.training_rows import OperatorRows
from tests.models.operators.test_booster import CATALOG, measured

ROWS = OperatorRows.of(measured(n=40))
OF_T4 = ROWS.device == "t4"


def expert(name):
    return SimpleNamespace(position=tuple(device_position(CATALOG.get(name))))


@pytest.fixture
def asked(monkeypatch):
    """Experts that were asked; each says that a kernel takes its physical base time."""
    seen = []

    def ratio(experts, position, family, features):
        seen.append([tuple(one.position) for one in experts])
        return np.zeros(len(features.base_ms))

    monkeypatch.setattr(module, "mixed_ratio", ratio)
    return seen


def test_an_error_is_the_logarithm_of_measured_over_predicted(asked):
    """Kernels that take 1.6 times their roofline, where base times say between it and twice it."""
    found = held_out_errors(ROWS, OF_T4, "t4", [expert("p100-pcie-16gb")], 0.5)
    for one in found:
        features, log_measured = ROWS.family(one.family, OF_T4)
        expected = np.exp(log_measured) / np.maximum(features.base_ms, features.power_ms)
        assert np.median(np.exp(one.errors)) == pytest.approx(np.median(expected), rel=0.3)
        assert (one.device, one.novelty) == ("t4", 0.5)
        assert len(one.errors) == len(one.site) == len(features.base_ms)
    assert sum(len(one.errors) for one in found) >= 0.9 * OF_T4.sum()


def test_boosters_of_the_same_device_from_another_dataset_are_left_out(asked):
    """One sheet, two keys: only the V100 is another device than the held-out T4."""
    experts = {"t4": expert("t4"), "t4 again": expert("t4"), "v100": expert("v100-pcie-32gb")}
    found = errors_by_others(ROWS, experts, "t4", OF_T4)
    assert {len(one) for one in asked} == {1}
    t4, v100 = (device_position(CATALOG.get(n)) for n in ("t4", "v100-pcie-32gb"))
    assert {one.novelty for one in found} == {float(distance(t4, v100))}
    alone = {name: one for name, one in experts.items() if name != "v100"}
    assert errors_by_others(ROWS, alone, "t4", OF_T4) == []


def test_families_without_held_out_rows_have_no_errors(asked):
    assert held_out_errors(ROWS, np.zeros(len(OF_T4), dtype=bool), "t4", [expert("t4")], 0.0) == []
