"""Conventions of scikit-learn: settings by name, clones without what was fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import pytest
from sklearn.base import clone

from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.catalog import PREDICTORS, predictor_class
from forerun.models.networks.device_time import DeviceTime
from forerun.models.networks.latency import NetworkLatency
from forerun.models.predictor import SETTING, Estimator
from forerun.models.router import Router
from tests.every import for_every


@dataclass(frozen=True)
class Inner(Estimator):
    trees: int = field(default=3, metadata=SETTING)
    fitted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outer(Estimator):
    inner: Inner = field(default_factory=Inner, metadata=SETTING)
    parts: tuple[Inner, ...] = field(default=(), metadata=SETTING)
    seed: int = field(default=0, metadata=SETTING)
    level: float = 1.0


FITTED = Outer(Inner(5, {"a": 1.0}), (Inner(7, {"b": 2.0}),), 4, level=9.0)


def test_settings_are_read_by_name_also_those_of_estimators_inside():
    assert FITTED.get_params(deep=False) == {
        "inner": FITTED.inner,
        "parts": FITTED.parts,
        "seed": 4,
    }
    assert FITTED.get_params() == FITTED.get_params(deep=False) | {"inner__trees": 5}


def test_a_clone_forgets_what_was_fitted_at_every_depth():
    assert clone(FITTED) == Outer(Inner(5), (Inner(7),), 4)
    assert clone([FITTED.inner]) == [Inner(5)]


def test_changes_reach_the_estimators_inside_and_leave_the_rest_unfitted():
    assert FITTED.with_params(seed=1) == Outer(Inner(5), (Inner(7),), 1)
    assert FITTED.with_params(inner__trees=8).inner == Inner(8)
    given = Inner(2, {"c": 3.0})
    assert FITTED.with_params(inner=given).inner == given, "an estimator that is given stays fitted"
    assert FITTED.with_params(inner__trees=6, inner=given).inner == Inner(6)


@pytest.mark.parametrize("name", ["level", "nothing", "seed__trees", "inner__fitted"])
def test_what_is_no_setting_is_refused_and_the_settings_are_listed(name):
    with pytest.raises(ValueError, match=r"no setting .*; it has .*trees"):
        FITTED.with_params(**{name: 1})


def test_a_predictor_of_several_is_changed_inside():
    changed = NetworkLatency(DeviceTime(trees=7)).with_params(device__seed=3)
    assert (changed.device.trees, changed.device.seed) == (7, 3)
    router = clone(Router((Constant({"latency_ms": 2.0}), Roofline())))
    assert router == Router((Constant(), Roofline()))


@for_every("name", PREDICTORS)
def test_every_predictor_of_the_catalogue_declares_its_settings(name):
    cls = predictor_class(name)
    assert issubclass(cls, Estimator)
    own = {f.name for f in fields(cls) if f.metadata == SETTING}
    assert "seed" in own or "seed" not in {f.name for f in fields(cls)}
    assert {
        f.name for f in fields(cls) if f.name in ("bag", "trees", "epochs", "calibrated")
    } <= own
