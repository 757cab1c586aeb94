"""Operator graphs from the `mlp` tables of the gpumemnet bundle: layers as text."""

import ast
from functools import lru_cache

from forerun.data.graph import Operator, OperatorGraph

_FUNCTIONS = {"LeakyReLU": "leaky_relu"}


@lru_cache(maxsize=1 << 13)
def mlp_graph(layers: str, inputs: int) -> OperatorGraph:
    """The graph of one multilayer perceptron at batch 1.

    Args:
        layers: text of a list of (kind, width of its output, elements of its parameters).
        inputs: width of the network's input.

    Raises:
        ValueError, SyntaxError: the text is not such a list.
    """
    operators: list[Operator] = []
    width = inputs
    for kind, out, elements in ast.literal_eval(layers):
        sources = (len(operators) - 1,) if operators else ()
        operators.append(_operator(str(kind), width, int(out), int(elements), sources))
        width = int(out)
    total = sum(op.parameter_elements for op in operators)
    return OperatorGraph(tuple(operators), parameter_elements=total)


def _operator(kind: str, width: int, out: int, elements: int, sources: tuple[int, ...]) -> Operator:
    if kind == "linear":
        return Operator("linear", "aten.addmm", ((1, width),), ((1, out),), elements, {}, sources)
    shape = ((1, out),)
    if kind == "batch_normalization":
        # The table counts scale and shift, but not running mean and variance.
        name = "aten.native_batch_norm"
        return Operator("batch_norm", name, shape, shape, 2 * elements, {}, sources)
    if kind == "Softmax":
        return Operator("softmax", "aten._softmax", shape, shape, 0, {"width": out}, sources)
    function = _FUNCTIONS.get(kind, kind.lower())
    named = {"function": function}
    return Operator("elementwise", f"aten.{function}", shape, shape, elements, named, sources)
