"""Operators that eager execution dispatches: one call each, views and fused chains none."""

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.networks.dispatch import dispatched_operators

SHAPE = (1, 16, 8, 8)


def op(kind: str, *inputs: int, repeat: int = 1, **attributes: str) -> Operator:
    return Operator(
        kind, f"aten.{kind}", (SHAPE,), (SHAPE,), 0, attributes, tuple(inputs), repeat=repeat
    )


def relu(*inputs: int, repeat: int = 1) -> Operator:
    return op("elementwise", *inputs, repeat=repeat, function="relu")


def test_every_operator_is_one_call() -> None:
    assert dispatched_operators(OperatorGraph((relu(), relu(0), relu(1)))) == 3.0


def test_a_repeated_operator_counts_as_often_as_it_runs() -> None:
    assert dispatched_operators(OperatorGraph((relu(repeat=7), relu(0)))) == 8.0


def test_the_batch_size_changes_nothing() -> None:
    ops = (relu(), relu(0))
    assert dispatched_operators(OperatorGraph(ops, 1)) == dispatched_operators(
        OperatorGraph(ops, 64)
    )


def test_a_chain_that_only_onnx_writes_counts_as_the_operator_it_stands_for() -> None:
    """X * sigmoid(x) is one SiLU of the framework; a graph of the framework is left as it is."""
    gate = op("elementwise", 0, function="sigmoid")
    times = Operator("elementwise", "Mul", (SHAPE, SHAPE), (SHAPE,), 0, {"function": "mul"}, (0, 1))
    chain = (relu(), gate, times)
    assert dispatched_operators(OperatorGraph(chain, source="onnx")) == 2.0
    assert dispatched_operators(OperatorGraph(chain, source="torch_export")) == 3.0
