"""Arrays of the checked rooms have the shapes that their types give."""

import importlib
import pkgutil

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from forerun.models.conformal import LogQuantiles
from forerun.models.domain.device_novelty import novelty_of
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gaussian_process.additive_categorical import KeyedRows
from forerun.models.gaussian_process.regression import Answer, Posterior, distances
from forerun.training.scores.task_scores import class_errors
from tests.shapes import CHECKED, CHECKED_CALLS

POSTERIOR = Posterior.of(np.eye(2), 0.1, np.zeros(2))
RANGE = FeatureRange(("a", "b"), np.zeros(2), np.ones(2))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: POSTERIOR.variance(np.zeros((3, 2)), np.ones(1)), id="length 1"),
        pytest.param(lambda: class_errors(np.ones(3), np.ones(1)), id="two of one length"),
        pytest.param(lambda: RANGE.outside(np.zeros(1)), id="as many as there are names"),
        pytest.param(lambda: LogQuantiles().around(np.ones(3), ["all"]), id="inside of a call"),
        pytest.param(lambda: novelty_of(np.zeros(1), [np.zeros(3)]), id="a fixed length"),
        pytest.param(lambda: distances(np.zeros((3, 2), np.float32), np.ones((3, 2))), id="type"),
    ],
)
def test_what_numpy_would_broadcast_raises(call):
    with pytest.raises(TypeCheckError):
        call()


@pytest.mark.parametrize(
    "fields",
    [
        (Answer, np.zeros(3), np.zeros(2)),
        (Posterior, np.zeros(2), np.zeros((2, 3)), np.zeros(2), 0.0),
        (KeyedRows, {"model": np.array(["a"])}, np.zeros((2, 9)), {}),
    ],
    ids=lambda fields: fields[0].__name__,
)
def test_fields_of_a_dataclass_agree_in_their_dimensions(fields):
    kind, *values = fields
    with pytest.raises(TypeCheckError):
        kind(*values)


def test_of_each_test_the_first_calls_of_a_function_are_checked():
    single = np.zeros((3, 2), np.float32)
    for _ in range(CHECKED_CALLS - 1):
        distances(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(TypeCheckError):
        distances(single, np.ones((3, 2)))
    distances(single, np.ones((3, 2)))
    with pytest.raises(TypeCheckError):
        class_errors(np.ones(3), np.ones(1))


def test_annotations_of_checked_rooms_give_dimensions():
    for room in map(importlib.import_module, CHECKED):
        inside = pkgutil.iter_modules(getattr(room, "__path__", ()), f"{room.__name__}.")
        for module in (room, *(importlib.import_module(found.name) for found in inside)):
            assert not hasattr(module, "NDArray"), (
                f"{module.__name__} has arrays without dimensions"
            )
