"""What a compiled step keeps: what fused operators start from, and operands of products."""

from dataclasses import replace

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.software import Software
from forerun.data.workload import TrainingSetup
from forerun.features.memory.liveness import EAGER, Execution, Walk, execution
from forerun.features.memory.saved_tensors import kept_results, saved_tensors
from tests.features.configurations import TOKENS, traced

TOKEN_BYTES = 2
COMPILED = Execution(compiled=True)


def gated(width=64, inner=256):
    """A norm, a gated pair of layers, and a residual sum: the second half of a Llama block.

    The first operator stands for the block before.
    """
    row, wide = (1, 8, width), (1, 8, inner)

    def linear(source, before, after):
        return Operator("linear", "l", (before,), (after,), before[-1] * after[-1], {}, (source,))

    def pointwise(function, shape, *sources):
        facts = {"function": function}
        return Operator(
            "elementwise", function, (shape,) * len(sources), (shape,), 0, facts, sources
        )

    operators = (
        Operator("linear", "l", (row,), (row,), width * width),
        Operator("layer_norm", "n", (row,), (row,), 2 * width, {"width": width}, (0,)),
        linear(1, row, wide),
        pointwise("silu", wide, 2),
        linear(1, row, wide),
        pointwise("mul", wide, 3, 4),
        linear(5, wide, row),
        pointwise("add", row, 0, 6),
        pointwise("gelu", row, 7),
    )
    return OperatorGraph(operators)


def kept_bytes(graph, how):
    walk = Walk(graph, "bf16", TrainingSetup("none"), execution=how)
    kept: dict[int, list[int]] = {}
    walk.forward(range(len(walk.graph)), {}, kept, [])
    tensors = {tensor for held in kept.values() for tensor in held}
    return sum(walk.tape.bytes_of(t) for t in tensors)


def test_a_gated_layer_keeps_what_was_counted_by_hand():
    graph, tokens = gated(), 8
    statistics = 2 * tokens * 4
    # The first layer's result, the norm's, two inner results, their gated product, and the residual
    # sum that the last function starts from; the network's input lives anyway.
    compiled = (3 * 64 + 3 * 256) * tokens * TOKEN_BYTES + statistics
    assert kept_bytes(graph, COMPILED) == compiled
    # In eager mode silu's result is kept as well; the sum is what gelu keeps.
    assert kept_bytes(graph, EAGER) == compiled + 256 * tokens * TOKEN_BYTES


@pytest.mark.parametrize("how", [COMPILED, EAGER], ids=["compiled", "eager"])
def test_an_operator_that_repeats_keeps_its_statistics_as_often(how):
    """A mean and a deviation of four bytes for each of 8 tokens, three times in place of once."""
    graph = gated()
    norm = replace(graph.operators[1], repeat=3)
    thrice = replace(graph, operators=(graph.operators[0], norm, *graph.operators[2:]))
    grown = 2 * 8 * 64 * TOKEN_BYTES
    assert kept_bytes(thrice, how) - kept_bytes(graph, how) in (
        2 * 2 * 8 * 4,
        2 * 2 * 8 * 4 + grown,
    )


def test_fused_operators_start_from_products_and_sums():
    graph = gated()
    n = len(graph)
    found = kept_results(graph, saved_tensors(graph), [True] * n, [True] * n)
    assert found == {0, 2, 4, 7}


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_compiled_step_keeps_no_more(family):
    graph = traced(family, tokens=TOKENS)
    assert 0 < kept_bytes(graph, COMPILED) <= kept_bytes(graph, EAGER)


@pytest.mark.parametrize(
    ("runtime", "compiled"),
    [("eager", False), ("torchscript", False), ("compiled", True), ("reduce-overhead", True)],
)
def test_runtimes_that_fuse_are_compiled(runtime, compiled):
    assert execution(Software(runtime=runtime)) == Execution(compiled)
    assert execution(Software(layout="nhwc")).channels_last
