"""Weights of single operators: how their elements are divided, counted by hand."""

import pytest

from forerun.data.graph import Operator
from forerun.data.workload import TrainingSetup
from forerun.features.memory.training_state import weights_of


def weights(op: Operator, setup: TrainingSetup | None = None) -> list[tuple[int, int, bool]]:
    return [(w.elements, w.columns, w.adapter) for w in weights_of(op, setup, adapted=True)]


def linear(parameters: int) -> Operator:
    return Operator("linear", "aten.addmm", ((4, 10),), ((4, 6),), parameters)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (linear(60), [(60, 10, False)]),
        (linear(66), [(60, 10, False), (6, 0, False)]),
        (Operator("embedding", "aten.embedding", ((4,),), ((4, 8),), 800), [(800, 0, False)]),
        (Operator("linear", "aten.mm", ((4, 10),), (), 60), [(60, 0, False)]),
    ],
    ids=["matrix", "matrix and bias", "table", "without a known result"],
)
def test_a_matrix_its_bias_and_everything_else(op, expected):
    assert weights(op) == expected


def test_adapters_are_two_narrow_matrices():
    setup = TrainingSetup("adamw", lora_rank=4)
    assert weights(linear(60), setup) == [(60, 10, False), (40, 10, True), (24, 4, True)]
