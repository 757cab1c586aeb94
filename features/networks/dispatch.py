"""Host work of one network run: dispatched operators and launched kernels.

In eager mode, Python and the framework's dispatcher spend about 30 to 60 microseconds per operator,
whatever its size; compiled code launches one kernel per fused group.
"""

from forerun.data.graph import OperatorGraph
from forerun.features.caches import OPERATORS_KEPT, GraphKey, kept_by_graph
from forerun.features.lowering.decomposed_operators import recomposed

CELL_OPERATORS = 12.0
"""Operators of one unrolled step: two products, their sum, four gates and five on the state."""
_PRODUCTS = ("linear", "matmul", "attention")
_GATES = ["sigmoid", "sigmoid", "sigmoid", "tanh"]


def dispatched_operators(graph: OperatorGraph) -> float:
    """Operators that eager execution dispatches in one forward pass.

    Views are not in a graph and do not count. Chains in a graph from ONNX count as the framework
    operators that they represent.
    """
    return _dispatched(GraphKey(graph), graph.source == "onnx")


@kept_by_graph(4 * OPERATORS_KEPT)
def _dispatched(key: GraphKey, recompose: bool) -> float:
    graph = recomposed(key.graph) if recompose else key.graph
    calls = float(sum(op.repeat for op in graph.operators))
    return max(1.0, calls - CELL_OPERATORS * _unrolled_cells(graph))


def product_share(graph: OperatorGraph) -> float:
    """Share of a graph's operators that are linear layers, matrix products or attention."""
    return _product_share(GraphKey(graph))


@kept_by_graph(4 * OPERATORS_KEPT)
def _product_share(key: GraphKey) -> float:
    operators = key.graph.operators
    products = sum(op.repeat for op in operators if op.kind in _PRODUCTS)
    return products / max(1, sum(op.repeat for op in operators))


def attentions(graph: OperatorGraph) -> int:
    """Number of fused attention operators in a graph."""
    return sum(op.repeat for op in graph.operators if op.kind == "attention")


def _unrolled_cells(graph: OperatorGraph) -> int:
    """Number of LSTM steps that a tracer has unrolled.

    A framework runs the whole layer as one call. A step is recognised by gates read by three
    sigmoids and one hyperbolic tangent.
    """
    readers: dict[int, list[str]] = {}
    for op in graph.operators:
        function = op.attributes.get("function")
        if op.kind == "elementwise" and function in ("sigmoid", "tanh") and len(op.inputs) == 1:
            readers.setdefault(op.inputs[0], []).append(str(function))
    return sum(sorted(found) == _GATES for found in readers.values())
