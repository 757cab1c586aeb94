"""The grid of operators: sound, named apart, log-spaced, and around the reference operators."""

import pytest

from forerun.data.collectors.workloads.operators import (
    dense_sweep,
    flops,
    operator_sweep,
    reference_operators,
    spaced,
    touched,
)
from forerun.data.graph import OperatorGraph
from forerun.features.operators.costs import operator_cost
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE
from forerun.features.readers.operator_json import graph_of


@pytest.fixture(scope="module")
def operators():
    return operator_sweep(4)


def test_each_is_sound_and_has_a_name_of_its_own(operators):
    assert len({op.name for op in operators}) == len(operators)
    for op in operators:
        assert graph_of(OperatorGraph((op,)).to_json()).operators == (op,)


def test_it_covers_what_networks_are_made_of_and_the_reference_operators(operators):
    kinds = {op.kind for op in operators}
    assert {"linear", "matmul", "conv", "attention", "elementwise"} <= kinds
    assert {"softmax", "layer_norm", "batch_norm", "reduce", "pool", "embedding", "copy"} <= kinds
    assert {op.name for op in reference_operators()} <= {op.name for op in operators}


def test_a_dense_sweep_holds_the_sweep_and_is_sound():
    dense = dense_sweep(8)
    assert dense[: len(operator_sweep(8))] == operator_sweep(8)
    assert len({op.name for op in dense}) == len(dense)
    assert all(touched(op) <= 2**20 for op in dense_sweep(8, largest=2**20))
    for op in dense:
        assert graph_of(OperatorGraph((op,)).to_json()).operators == (op,)


def test_guessed_work_of_products_is_that_of_the_cost_model():
    for op in dense_sweep(4):
        if IS_GEMM[KIND_CODE[op.kind]]:
            assert flops(op) == pytest.approx(operator_cost(op).flops, rel=0.1)


def test_a_finer_step_gives_more_and_a_limit_gives_less(operators):
    assert len(operator_sweep(8)) < len(operators) < len(operator_sweep(2))
    small = operator_sweep(4, largest=2**20)
    assert small
    assert all(touched(op) <= 2**20 for op in small)


def test_sizes_are_spaced_by_a_factor_and_end_at_the_highest():
    assert spaced(1, 100, 4) == (1, 4, 16, 64, 100)
    with pytest.raises(ValueError, match="factor"):
        operator_sweep(1)
