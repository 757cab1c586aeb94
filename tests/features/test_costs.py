"""Costs of one operator: what does not apply to a kind is zero."""

import pytest

from forerun.data.graph import Operator
from forerun.features.costs import operator_cost


@pytest.mark.parametrize(
    ("operator", "absent"),
    [
        (
            Operator("linear", "fc", ((4, 8),), ((4, 16),), 128),
            {"rows", "width", "kernel", "stride", "heavy"},
        ),
        (
            Operator("elementwise", "relu", ((4, 8),), ((4, 8),)),
            {"batch", "m", "n", "k", "rows", "width", "kernel", "stride", "heavy"},
        ),
    ],
    ids=["linear", "elementwise"],
)
def test_what_does_not_apply_is_zero(operator, absent):
    cost = operator_cost(operator)._asdict()
    assert {name for name, value in cost.items() if value == 0.0} - {"parameter_elements"} == absent
