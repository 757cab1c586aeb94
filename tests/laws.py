"""Strategies that laws are checked over: operators and graphs."""

from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph

DIMENSIONS = st.integers(1, 64)


@st.composite
def operators(draw, inputs=()):
    """One operator of a kind that needs no more than a shape."""
    kind = draw(st.sampled_from(["linear", "elementwise", "softmax", "copy", "unknown"]))
    batch, width, out = draw(DIMENSIONS), draw(DIMENSIONS), draw(DIMENSIONS)
    if kind == "linear":
        return Operator(
            kind, "fc", ((batch, width),), ((batch, out),), width * out, inputs=tuple(inputs)
        )
    name = draw(st.sampled_from(["a", "b", "aten.x"]))
    batched, repeat = draw(st.booleans()), draw(st.integers(1, 3))
    shape = (batch, width)
    return Operator(
        kind, name, (shape,), (shape,), 0, {}, tuple(inputs), batched=batched, repeat=repeat
    )


@st.composite
def graphs(draw):
    """A graph of up to eight operators, edges pointing backwards."""
    ops = []
    for place in range(draw(st.integers(1, 8))):
        sources = st.lists(st.integers(0, place - 1), max_size=2, unique=True)
        ops.append(draw(operators(inputs=draw(sources) if place else ())))
    return OperatorGraph(tuple(ops), batch_size=draw(st.integers(1, 8)))
