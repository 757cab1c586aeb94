"""Peaks by the affine map and the boosters of its residuals, on plans made by hand."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.memory.plan import MemoryPlan
from forerun.features.memory.traits import TRAITS
from forerun.models.memory.fitted_peaks import (
    FEATURE_NAMES,
    FEWEST_ROWS,
    FittedPeaks,
    booster_features,
)

RELU = OperatorGraph((Operator("elementwise", "relu", ((1, 8),), ((1, 8),)),))
QUERY = Query(Network(RELU, 1, "fp32", "training"), DeviceCatalog.load().get("l4"))


def plan(reserved: float, convolutions: float) -> MemoryPlan:
    """A plan without workspaces; `convolutions` is their share of the operators."""
    traits = dict.fromkeys(TRAITS, 0.5) | {"attentions": 0.0, "convolutions": convolutions}
    parts = {"weights": 100.0, "optimizer": 100.0}
    return MemoryPlan(0.5 * reserved, reserved, parts, 0.0, 0.0, tuple(traits.values()))


def test_each_kind_of_network_follows_its_own_measurements() -> None:
    """Dense networks take 1.2 times what their plan reserves, those with convolutions 1.8 times."""
    sizes = np.linspace(2000.0, 20000.0, 2 * FEWEST_ROWS)
    plans = [plan(size, share) for share in (0.0, 0.5) for size in sizes.tolist()]
    measured = np.concatenate([1.2 * sizes, 1.8 * sizes])
    unknown = np.full(len(plans), np.nan)
    fitted = FittedPeaks.of([QUERY] * len(plans), plans, measured, unknown, seed=0)
    assert set(fitted.residuals) == {"dense", "mixed"}
    off = np.abs(fitted.peaks(plans) / measured - 1.0).reshape(2, -1)
    assert (np.median(off, axis=1) < 0.01).all()


def test_boosters_that_were_fitted_on_fewer_features_read_theirs_by_name() -> None:
    plans = [plan(3000.0, 0.5), plan(9000.0, 0.25)]
    names = ("log_live", "convolutions")
    own = booster_features(plans, names)
    whole = booster_features(plans)
    assert whole.shape == (2, len(FEATURE_NAMES))
    np.testing.assert_array_equal(own[:, 0], whole[:, FEATURE_NAMES.index("log_live")])
    assert own[:, 1] == pytest.approx([0.5, 0.25])
