"""Kinds and work of single nodes, counted by hand."""

from forerun.data.graph import Operator
from forerun.features.processors.nodes import kind_of, node_of
from tests.every import for_every

MAP = (2, 32, 8, 8)


def conv(inputs=32, outputs=32, window=3, groups=1):
    return Operator(
        "conv", "Conv", ((2, inputs, 8, 8),), ((2, outputs, 8, 8),),
        outputs * inputs // groups * window**2, {"kernel": (window, window), "groups": groups},
    )  # fmt: skip


def elementwise(function, *reads):
    return Operator("elementwise", function, reads or (MAP,), (MAP,), 0, {"function": function})


def named(kind, name, reads=(MAP,), writes=MAP):
    return Operator(kind, name, reads, (writes,))


@for_every(
    "op, kind",
    [
        (conv(inputs=3), "conv_first"),
        (conv(inputs=15), "conv_first"),
        (conv(inputs=16), "conv_direct"),
        (conv(window=1), "conv_point"),
        (conv(groups=32), "conv_depth"),
        (conv(64, 64, groups=4), "conv_group"),
        (conv(64, 64, groups=8), "conv_plain"),
        (conv(32, 64, groups=32), "conv_plain"),
        (named("conv", "Conv", ((1, 16, 9),), (1, 16, 9)), "conv_plain"),
        (elementwise("lrn"), "neighbourhood"),
        (elementwise("add", MAP, MAP), "add"),
        (elementwise("add"), "add"),
        (elementwise("mul", MAP, (2, 32, 1, 1)), "broadcast"),
        (elementwise("gelu"), "erf"),
        (elementwise("hardswish"), "cheap"),
        (elementwise("sigmoid"), "exponential"),
        (named("copy", "Concat"), "concat"),
        (named("copy", "aten.permute", (MAP,), (2, 8, 8, 32)), "transpose"),
        (named("copy", "aten.clone"), "copy"),
        (named("copy", "Slice", (MAP,), (2, 8, 8, 32)), "copy"),
        (named("reduce", "GlobalAveragePool"), "mean"),
        (named("reduce", "ReduceMax"), "reduce"),
        (named("linear", "Gemm"), "gemm"),
        (named("embedding", "Gather"), "gather"),
        (named("conv_transpose", "ConvTranspose"), "conv_plain"),
        (named("softmax", "Softmax"), "softmax"),
        (named("mystery", "Mystery"), "unknown"),
    ],
)
def test_kinds_are_those_whose_kernels_differ(op, kind):
    """Blocked convolutions need whole blocks of 16 channels in every group."""
    assert kind_of(op) == kind


def test_a_convolution_by_hand():
    """2 x 8 x 8 pixels, 32 x 32 channels, 9 places of a window."""
    node = node_of(conv(), "conv_direct")
    assert (node.rows, node.columns, node.depth) == (128, 32, 288)
    assert node.flops == 2 * 128 * 32 * 288
    assert node.read == node.written == 4 * 2 * 32 * 64
    assert node.weights == 4 * 32 * 32 * 9


def test_groups_divide_the_terms_of_a_sum():
    node = node_of(conv(64, 64, groups=8), "conv_plain")
    assert (node.depth, node.flops) == (8 * 9, 2 * 128 * 64 * 72)
    assert node.read == 4 * 128 * 72 * 8, "every window is copied before it is multiplied"
    assert node_of(conv(64, 64, window=1, groups=8), "conv_plain").read == 4 * 2 * 64 * 64


def test_without_a_window_nothing_is_copied():
    bare = Operator("conv", "Conv", ((2, 64, 8, 8),), ((2, 64, 8, 8),), 64 * 8, {"groups": 8})
    node = node_of(bare, "conv_plain")
    assert (node.read, node.depth) == (4 * 2 * 64 * 64, 8)


def test_a_transposed_convolution_multiplies_each_of_its_inputs():
    grown = Operator(
        "conv_transpose", "ConvTranspose", ((1, 32, 8, 8),), ((1, 16, 16, 16),), 32 * 16 * 4,
        {"kernel": (2, 2)},
    )  # fmt: skip
    assert node_of(grown, "conv_plain").flops == 2 * 64 * 32 * 16 * 4


def test_products_by_hand():
    dense = Operator("linear", "Gemm", ((2, 5, 64),), ((2, 5, 48),), 64 * 48)
    node = node_of(dense, "gemm")
    assert (node.rows, node.columns, node.depth, node.flops) == (10, 48, 64, 2 * 10 * 48 * 64)
    batched = Operator("matmul", "MatMul", ((6, 5, 64), (6, 64, 7)), ((6, 5, 7),))
    node = node_of(batched, "bmm")
    assert (node.rows, node.columns, node.depth, node.flops) == (5, 7, 64, 2 * 6 * 5 * 7 * 64)
    heads = ((2, 4, 10, 16), (2, 4, 12, 16), (2, 4, 12, 16))
    node = node_of(Operator("attention", "Attention", heads, (heads[0],)), "attention")
    assert (node.rows, node.columns, node.depth) == (10, 12, 16)
    assert node.flops == 2 * (2 * 2 * 4 * 10 * 12 * 16), "scores, and their mean of values"
    layer = Operator("recurrent", "LSTM", ((7, 2, 16),), ((7, 2, 32),), 4 * 32 * (16 + 32))
    node = node_of(layer, "recurrent")
    assert (node.rows, node.depth, node.flops) == (14, 16, 2 * 14 * 4 * 32 * 48)


def test_values_of_other_nodes_by_hand():
    pool = Operator("pool", "MaxPool", (MAP,), ((2, 32, 4, 4),), 0, {"kernel": (3, 2)})
    assert node_of(pool, "pool").flops == 2 * 32 * 16 * 6, "a window for every result"
    everything = Operator("pool", "GlobalMaxPool", (MAP,), ((2, 32, 1, 1),))
    assert node_of(everything, "pool").flops == 2 * 32 * 64
    mean = named("reduce", "ReduceMean", (MAP,), (2, 32, 1, 1))
    assert node_of(mean, "mean").flops == 2 * 32 * 64, "every value that is read"
    assert node_of(elementwise("relu"), "cheap").flops == 2 * 32 * 64
    table = Operator("embedding", "Gather", ((2, 5),), ((2, 5, 64),), 30_000 * 64)
    node = node_of(table, "gather")
    assert (node.read, node.written, node.weights) == (4 * 640, 4 * 640, 0), "rows, not the table"
