"""Networks as onnxruntime runs them: what is folded, and where images are reordered."""

from collections import Counter

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.processors.lowering import cpu_nodes
from forerun.features.processors.nodes import NODE_KINDS, node_of
from forerun.features.processors.work import COLUMNS, work_of
from forerun.features.tables.torch_gpu import built_graph
from tests.models.recorded_cpu import published_graph

WRITTEN = {
    "cpu-residual-a": {"conv": 12, "reorder": 1, "batch_norm": 0, "cheap": 0},
    "cpu-inverted-a": {"conv": 29, "reorder": 1, "cheap": 0},
    "cpu-inverted-c": {"conv": 37, "reorder": 28, "exponential": 16, "broadcast": 7},
    "cpu-dense-a": {"conv": 39, "concat": 18},
    "cpu-modern-a": {"reorder": 16, "layer_norm": 7, "erf": 7},
    "cpu-patches-a": {"softmax": 4, "layer_norm": 9, "erf": 4, "bmm": 8, "reorder": 1},
    "cpu-shuffled-a": {"conv_plain": 6, "conv_depth": 9, "conv_group": 12, "transpose": 9},
    "cpu-grouped-a": {"conv_plain": 3, "conv_group": 2, "reorder": 7},
}
"""Counts in the graphs that onnxruntime 1.31 wrote on a processor with AVX-512."""
PUBLISHED = {
    "light_resnet50": {"conv": 53, "reorder": 1, "batch_norm": 0, "cheap": 0},
    "light_squeezenet": {"conv": 26, "concat": 8, "reorder": 1},
    "light_inception_v1": {"conv": 57, "neighbourhood": 2},
}


def counted(graph):
    kinds = Counter(node.kind for node in cpu_nodes(graph))
    return kinds | Counter(conv=sum(n for kind, n in kinds.items() if kind.startswith("conv")))


@pytest.mark.parametrize("name", [n for n in WRITTEN if n != "cpu-dense-a"])
def test_nodes_are_those_that_onnxruntime_writes(name):
    found = counted(built_graph(name))
    assert {kind: found[kind] for kind in WRITTEN[name]} == WRITTEN[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_nodes_of_published_networks_too(name):
    found = counted(published_graph(name))
    assert {kind: found[kind] for kind in PUBLISHED[name]} == PUBLISHED[name]


def test_normalisation_and_activation_go_into_the_convolution_before():
    conv = Operator("conv", "Conv", ((1, 32, 8, 8),), ((1, 32, 8, 8),), 9216, {"kernel": (3, 3)})
    shape = ((1, 32, 8, 8),)
    norm = Operator("batch_norm", "BatchNormalization", shape, shape, 128, inputs=(0,))
    relu = Operator("elementwise", "Relu", shape, shape, 0, {"function": "relu"}, (1,))
    alone = OperatorGraph((conv, norm, relu))
    assert counted(alone) == Counter(conv_direct=1, conv=1, reorder=2)
    read_twice = OperatorGraph((conv, norm, relu, Operator("reduce", "ReduceMean", shape, shape,
                                                           inputs=(0,))))  # fmt: skip
    assert counted(read_twice)["batch_norm"] == 1


def test_every_kind_has_work_and_work_grows_with_the_batch():
    for kind in NODE_KINDS:
        assert any(column[0] == kind for column in COLUMNS)
    graph = built_graph("cpu-inverted-a")
    one, four = (work_of(graph, factor).amounts for factor in (1.0, 4.0))
    flops = [place for place, (_, term) in enumerate(COLUMNS) if term == "flops"]
    assert four[flops] == pytest.approx(4 * one[flops])
    fixed = [place for place, (kind, _) in enumerate(COLUMNS) if kind == "fixed"]
    assert four[fixed] == pytest.approx(one[fixed])


@pytest.mark.parametrize(
    ("inputs", "outputs", "computed"),
    [(3, 16, 48), (15, 16, 240), (16, 16, 256), (17, 16, 512), (40, 16, 768), (64, 17, 2048)],
)
def test_blocks_of_channels_are_computed_whole(inputs, outputs, computed):
    """Of 16 channels, unless there are fewer inputs than one block."""
    shapes = ((1, inputs, 8, 8),), ((1, outputs, 8, 8),)
    conv = Operator("conv", "Conv", *shapes, outputs * inputs, {"kernel": (1, 1)})
    assert node_of(conv, "conv_point").flops == 2 * 64 * computed


@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize(("operands", "scaled"), [(1, True), (2, False)])
def test_scale_and_shift_of_a_written_out_norm_belong_to_it(square, operands, scaled):
    """A square may be a product with itself; a product with another tensor is no scale."""
    shape = ((1, 64, 128),)
    ops = []

    def add(kind, name, inputs, weights=0, **attributes):
        reads = shape * max(1, len(inputs))
        ops.append(Operator(kind, name, reads, shape, weights, attributes, inputs))
        return len(ops) - 1

    x = add("elementwise", "Relu", (), function="relu")
    mean = add("reduce", "ReduceMean", (x,))
    centred = add("elementwise", "Sub", (x, mean), function="sub")
    squared = add("elementwise", "Pow", (centred,), function=square)
    variance = add("reduce", "ReduceMean", (squared,))
    shifted = add("elementwise", "Add", (variance,), function="add")
    root = add("elementwise", "Sqrt", (shifted,), function="sqrt")
    quotient = add("elementwise", "Div", (centred, root), function="div")
    scale = add("elementwise", "Mul", (quotient, x)[:operands], 128, function="mul")
    add("elementwise", "Add", (scale,), 128, function="add")
    kinds = Counter(node.kind for node in cpu_nodes(OperatorGraph(tuple(ops))))
    assert kinds == Counter(cheap=1, layer_norm=1) + (Counter() if scaled else Counter(add=2))


def test_an_image_is_read_and_written_where_it_is_reordered():
    """1 x 32 x 8 x 8 values of four bytes, before a convolution in blocks and after it."""
    shape = ((1, 32, 8, 8),)
    conv = Operator("conv", "Conv", shape, shape, 9216, {"kernel": (3, 3)})
    before, _, after = cpu_nodes(OperatorGraph((conv,)))
    for node in (before, after):
        assert (node.kind, node.flops, node.rows) == ("reorder", 2048, 2048)
        assert node.read == node.written == 4 * 2048


def test_a_sum_that_a_convolution_takes_in_reads_its_other_branch():
    shape = ((1, 32, 8, 8),)
    conv = {"kernel": (3, 3)}
    first = Operator("conv", "Conv", shape, shape, 9216, conv)
    second = Operator("conv", "Conv", shape, shape, 9216, conv, (0,))
    total = Operator("elementwise", "Add", shape * 2, shape, 0, {"function": "add"}, (0, 1))
    nodes = cpu_nodes(OperatorGraph((first, second, total)))
    (branch,) = (node for node in nodes if node.kind == "add")
    assert (branch.flops, branch.read, branch.written) == (2048, 4 * 2048, 0.0)


def test_a_function_of_a_chain_works_on_every_value():
    shape = ((1, 64, 128),)
    relu = Operator("elementwise", "Relu", shape, shape, 0, {"function": "relu"})
    gate = Operator("elementwise", "Sigmoid", shape, shape, 0, {"function": "sigmoid"}, (0,))
    product = Operator("elementwise", "Mul", shape * 2, shape, 0, {"function": "mul"}, (0, 1))
    _, silu = cpu_nodes(OperatorGraph((relu, gate, product)))
    assert (silu.kind, silu.flops, silu.read, silu.written) == (
        "exponential", 8192, 4 * 8192, 4 * 8192,
    )  # fmt: skip
