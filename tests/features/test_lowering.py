"""Kernels from operator graphs: what runtimes launch, whatever the graph."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Attribute, Operator, OperatorGraph
from forerun.data.software import Software
from forerun.features.lowering import lower, lower_owned, lowered
from forerun.features.lowering.decomposed_operators import recomposed
from forerun.features.lowering.kernels import (
    IS_PRODUCT,
    KERNEL_KINDS,
    Kernels,
)
from forerun.features.lowering.mode import LoweringMode, lowering_mode
from forerun.features.operators.kinds import KINDS

IMAGE = (1, 3, 32, 32)
MAP = (1, 16, 32, 32)


def op(
    kind: str,
    reads: tuple[tuple[int, ...], ...],
    writes: tuple[int, ...],
    inputs: tuple[int, ...] = (),
    weights: int = 0,
    name: str = "",
    batched: bool = True,
    **attributes: Attribute,
) -> Operator:
    return Operator(
        kind, name or f"aten.{kind}", reads, (writes,), weights, attributes, inputs, batched
    )


def conv(
    source: tuple[int, ...], channels: int, inputs: tuple[int, ...], groups: int = 1
) -> Operator:
    target = (source[0], channels, *source[2:])
    weights = channels * source[1] // groups * 9
    return op(
        "conv", (source,), target, inputs, weights,
        kernel=(3, 3), stride=(1, 1), groups=groups,
    )  # fmt: skip


def pointwise(function: str, shape: tuple[int, ...], *inputs: int, weights: int = 0) -> Operator:
    reads = (shape,) * max(1, len(inputs))
    name = f"aten.{function}"
    return op("elementwise", reads, shape, inputs, weights, name, function=function)


def graph(*ops: Operator, source: str = "torch_export", batch: int = 1) -> OperatorGraph:
    return OperatorGraph(ops, batch, source=source)


def small_net(batch: int = 1) -> OperatorGraph:
    image, map_ = (batch, *IMAGE[1:]), (batch, *MAP[1:])
    return graph(
        conv(image, 16, ()),
        op("batch_norm", (map_,), map_, (0,), 64, "aten.native_batch_norm"),
        pointwise("relu", map_, 1),
        conv(map_, 16, (2,)),
        pointwise("add", map_, 2, 3),
        op("reduce", (map_,), (batch, 16), (4,), name="aten.mean"),
        op("linear", ((batch, 16),), (batch, 10), (5,), 170),
        batch=batch,
    )


def mode_of(
    net: OperatorGraph, precision: str = "amp", runtime: str = "eager", version: str = "2.4.0"
) -> LoweringMode:
    software = Software(version=version, runtime=runtime)  # type: ignore[arg-type]
    return lowering_mode(net, precision, software)  # type: ignore[arg-type]


def kernels_of(net: OperatorGraph, **how: str) -> Kernels:
    return next(lower(net, (mode_of(net, **how),)))


def names(kernels: Kernels) -> list[str]:
    return [KERNEL_KINDS[code].name for code in kernels.kind]


def roots(kernels: Kernels) -> list[str]:
    return [name.split("/")[0] for name in names(kernels)]


def moved(kernels: Kernels) -> float:
    return float(kernels.traffic.sum() + kernels.fixed_traffic.sum())


def attention_net(shape: tuple[int, ...] = (1, 4, 64, 32)) -> OperatorGraph:
    return graph(
        op("linear", ((64, 128),), (64, 384), (), 128 * 384),
        op("attention", (shape,) * 3, shape, (0,)),
        op("linear", ((64, 128),), (64, 128), (1,), 128 * 128),
    )


def test_autocast_casts_activations_once_and_weights_at_every_product() -> None:
    found = roots(kernels_of(small_net()))
    assert found.count("cast_weight") == 3
    assert found.count("cast") == 1
    assert "cast" not in roots(kernels_of(small_net(), precision="fp16"))
    assert "cast_weight" not in roots(kernels_of(small_net(), precision="fp32"))


def test_a_compiler_launches_less_and_moves_less_but_computes_the_same() -> None:
    eager, compiled = kernels_of(small_net()), kernels_of(small_net(), runtime="compiled")
    assert compiled.launches < eager.launches
    assert moved(compiled) < moved(eager)
    assert compiled.work.sum() == eager.work.sum()
    assert roots(compiled).count("batch_norm") == 0


def test_attention_is_one_kernel_since_torch_2() -> None:
    new, old = (kernels_of(attention_net(), version=v) for v in ("2.4.0", "1.13"))
    assert roots(new).count("attention") == 1
    assert roots(old).count("bmm") == 2
    assert roots(old).count("softmax0") == 1
    assert old.work.sum() == pytest.approx(new.work.sum())
    assert moved(old) > moved(new)


@pytest.mark.parametrize(("precision", "units"), [("fp32", False), ("tf32", False), ("bf16", True)])
def test_fused_attention_uses_matrix_units_in_16_bits_alone(precision: str, units: bool) -> None:
    found = kernels_of(attention_net(), precision=precision)
    fused = [r == "attention" for r in roots(found)]
    assert found.tensor[fused].all() == units
    assert any(fused)


def test_attention_of_five_dimensions_is_not_fused() -> None:
    net = attention_net((1, 4, 2, 32, 32))
    assert "attention" not in roots(kernels_of(net))
    assert "bmm_fp32" in roots(kernels_of(net, version="2.9.1"))


def test_depthwise_convolutions_do_not_run_on_matrix_units() -> None:
    dense, depthwise = (
        kernels_of(graph(conv(MAP, 16, (), groups=g)), precision="fp16") for g in (1, 16)
    )
    assert dense.tensor.all()
    assert not depthwise.tensor.any()


def test_what_does_not_depend_on_the_input_does_not_grow_with_the_batch() -> None:
    constant = op("elementwise", ((64, 64),), (64, 64), batched=False, function="exp")
    found = kernels_of(graph(constant))
    assert names(found) == ["constant"]
    assert found.traffic.sum() == 0
    assert found.fixed_traffic.sum() > 0


def test_kernels_of_a_sample_do_not_depend_on_the_traced_batch() -> None:
    for runtime in ("eager", "compiled"):
        one, eight = (kernels_of(small_net(b), runtime=runtime) for b in (1, 8))
        assert names(one) == names(eight)
        for column in ("work", "traffic", "fixed_traffic", "m", "groups"):
            np.testing.assert_allclose(getattr(one, column), getattr(eight, column))


def test_unknown_operators_are_launched() -> None:
    found = kernels_of(graph(op("unknown", (MAP,), MAP, name="aten.mystery")), runtime="compiled")
    assert names(found) == ["unknown"]


def test_repeated_operators_count_as_often_as_they_run() -> None:
    once = pointwise("relu", MAP)
    thrice = Operator(
        once.kind, once.name, once.input_shapes, once.output_shapes, 0, once.attributes, repeat=3
    )
    one, three = kernels_of(graph(once)), kernels_of(graph(thrice))
    assert three.launches == 3 * one.launches
    assert moved(three) == 3 * moved(one)


def test_an_edge_the_tracer_guessed_is_believed_where_sizes_agree() -> None:
    """Node 0 stands for producers that the benchmark's tracer did not know."""

    def second(shape: tuple[int, ...]) -> list[str]:
        sine = op("elementwise", (shape,), shape, (0,), 0, "aten.sin", False, function="sin")
        return roots(kernels_of(graph(conv(IMAGE, 16, ()), sine, source="table")))

    assert "constant" in second((64, 64))
    assert "constant" not in second(MAP)


def test_the_readers_own_mark_holds_where_no_edge_says_anything() -> None:
    def only(batched: bool, source: str = "table") -> list[str]:
        shape = (1, 64, 64)
        sine = op("elementwise", (shape,), shape, (), 0, "aten.sin", batched, function="sin")
        return roots(kernels_of(graph(sine, source=source)))

    for source in ("table", "torch_export"):
        assert only(True, source) == ["elementwise"]
        assert only(False, source) == ["constant"]


def position_table(batched: bool, source: str) -> OperatorGraph:
    """A small perceptron makes a table of relative positions: no image reaches it."""
    coordinates, table = (225, 2), (225, 512)
    dense = op("linear", (coordinates,), table, (), 2 * 512 + 512, "aten.addmm", batched)
    relu = op("elementwise", (table,), table, (0,), 0, "aten.relu", batched, function="relu")
    return graph(dense, relu, source=source)


@pytest.mark.parametrize("source", ["table", "torch_export"])
def test_a_dense_layer_on_constants_is_not_multiplied_by_the_batch(source: str) -> None:
    found = kernels_of(position_table(False, source), precision="fp16")
    assert roots(found) == ["constant", "constant"]
    assert found.work.sum() == found.traffic.sum() == 0
    assert found.fixed_work.sum() == pytest.approx(2 * 225 * 2 * 512)
    grown = kernels_of(position_table(True, source), precision="fp16")
    assert grown.work.sum() > 0
    assert "constant" not in roots(grown)


def test_what_reads_the_image_is_reached_whatever_the_mark_says() -> None:
    first = op("conv", (IMAGE,), MAP, (), 432, "aten.convolution", False,
               kernel=(3, 3), stride=(1, 1), groups=1)  # fmt: skip
    relu = op("elementwise", (MAP,), MAP, (0,), 0, "aten.relu", False, function="relu")
    assert "constant" not in roots(kernels_of(graph(first, relu, source="table")))


def test_a_gate_that_a_view_expands_is_read_once() -> None:
    """Squeeze and excite: the gate has one value a channel, its view as many as the map."""
    gate, rows = (1, 16, 1, 1), 32 * 32
    net = graph(
        conv(IMAGE, 16, ()),
        op("reduce", (MAP,), gate, (0,), name="aten.mean"),
        op("elementwise", (MAP, MAP), MAP, (0, 1), 0, "aten.mul", function="mul"),
    )
    found = kernels_of(net, precision="fp16")
    assert found.traffic[-1] == pytest.approx(2.0 * (16 * rows + 16 + 16 * rows))


def test_operands_that_were_written_in_full_are_read_in_full() -> None:
    net = graph(
        conv(IMAGE, 16, ()),
        pointwise("relu", MAP, 0),
        op("elementwise", (MAP, MAP), MAP, (0, 1), 0, "aten.mul", function="mul"),
    )
    found = kernels_of(net, precision="fp16")
    assert found.traffic[-1] == pytest.approx(2.0 * 3 * 16 * 32 * 32)


def copied_operand(batched: bool) -> OperatorGraph:
    """Window attention of the benchmark's tables: a copy of five dimensions feeds the product."""
    shape, copy = (4, 64, 32), (1, 1, 4, 64, 32)
    return graph(
        op("linear", ((64, 128),), (64, 128), (), 128 * 128, "aten.addmm"),
        op("copy", (copy,), copy, (0,) if batched else (), 0, "aten.clone", batched),
        op("attention", (shape,) * 3, shape, (0, 1)),
        op("linear", ((64, 128),), (64, 128), (2,), 128 * 128, "aten.addmm"),
        source="table",
    )


def test_a_copied_constant_does_not_unfuse_attention_and_a_copied_operand_does() -> None:
    assert "attention" in roots(kernels_of(copied_operand(batched=False), precision="fp16"))
    assert "attention" not in roots(kernels_of(copied_operand(batched=True), precision="fp16"))


def rms_norm(weights: int = 256, width: int = 256, over: int = 1) -> OperatorGraph:
    shape, mean = (1, 64, width), (1, 64, over)
    return graph(
        op("linear", (shape,), shape, (), width * width, "aten.addmm"),
        op("elementwise", (shape,), shape, (0,), 0, "aten.pow", function="pow"),
        op("reduce", (shape,), mean, (1,), name="aten.mean"),
        op("elementwise", (mean,), mean, (2,), 0, "aten.add", function="add"),
        op("elementwise", (mean,), mean, (3,), 0, "aten.rsqrt", function="rsqrt"),
        op("elementwise", (shape, shape), shape, (0, 4), 0, "aten.mul", function="mul"),
        op("elementwise", (shape,), shape, (5,), weights, "aten.mul", function="mul"),
        source="table",
    )


def test_a_root_mean_square_norm_is_one_kernel_in_the_benchmark_on_torch_2_9() -> None:
    def norms(net: OperatorGraph, version: str) -> tuple[int, float]:
        found = kernels_of(net, precision="fp16", version=version)
        return sum("norm" in root for root in roots(found)), found.launches

    assert norms(rms_norm(), "2.9.1") == (1, 2.0)
    assert norms(rms_norm(), "2.8.0") == (0, 7.0)
    # A mean over something else is no norm, and what is not one weight a column is not its scale.
    assert norms(rms_norm(over=2), "2.9.1")[0] == 0
    assert norms(rms_norm(weights=64 * 256), "2.9.1") == (1, 3.0)


def test_the_chain_of_a_norm_stays_a_chain_outside_the_benchmark() -> None:
    net = graph(*rms_norm().operators, source="torch_export")
    assert kernels_of(net, precision="fp16", version="2.9.1").launches == 7


def test_a_bias_that_the_tracer_added_apart_is_part_of_the_dense_layer() -> None:
    shape = (64, 256)
    net = graph(
        op("linear", (shape,), shape, (), 256 * 256, "aten.mm"),
        op("elementwise", (shape,), shape, (0,), 256, "aten.add", function="add"),
        source="table",
    )
    assert kernels_of(net, precision="fp16").launches == 1
    assert kernels_of(graph(*net.operators), precision="fp16").launches == 2


def test_branches_are_merged_in_the_benchmark_since_torch_2_9() -> None:
    def branch(inputs: tuple[int, ...], at: int) -> tuple[Operator, Operator]:
        norm = op("batch_norm", (MAP,), MAP, (at,), 64, "aten.native_batch_norm")
        return conv(MAP, 16, inputs), norm

    net = graph(
        conv(IMAGE, 16, ()),
        *branch((0,), 1),
        *branch((0,), 3),
        pointwise("add", MAP, 2, 4),
        source="table",
    )
    old, new = (roots(kernels_of(net, version=v)) for v in ("2.4.0", "2.9.1"))
    assert (old.count("conv"), new.count("conv")) == (2, 1)
    assert (old.count("batch_norm"), new.count("batch_norm")) == (2, 0)


def chain(*steps: tuple[str, tuple[int, ...], int]) -> list[Operator]:
    shape = (1, 64, 256)
    return [pointwise(function, shape, *inputs, weights=w) for function, inputs, w in steps]


def test_an_erf_chain_is_one_gelu() -> None:
    ops = chain(
        ("relu", (), 0), ("div", (0,), 0), ("erf", (1,), 0), ("add", (2,), 0),
        ("mul", (0, 3), 0), ("mul", (4,), 0), ("tanh", (5,), 0),
    )  # fmt: skip
    found = recomposed(graph(*ops, source="onnx"))
    assert [o.attributes["function"] for o in found.operators] == ["relu", "gelu", "tanh"]
    assert [o.inputs for o in found.operators] == [(), (0,), (1,)]


def test_a_product_with_its_sigmoid_is_one_silu() -> None:
    ops = chain(("relu", (), 0), ("sigmoid", (0,), 0), ("mul", (0, 1), 0))
    found = recomposed(graph(*ops, source="onnx"))
    assert [o.attributes["function"] for o in found.operators] == ["relu", "silu"]


def test_a_decomposed_layer_norm_is_one_operator() -> None:
    shape, means = (1, 64, 256), (1, 64, 1)
    mean = op("reduce", (shape,), means, (0,), name="ReduceMean")
    ops = [
        pointwise("relu", shape),
        mean,
        pointwise("sub", shape, 0, 1),
        pointwise("pow", shape, 2),
        op("reduce", (shape,), means, (3,), name="ReduceMean"),
        pointwise("add", means, 4),
        pointwise("sqrt", means, 5),
        pointwise("div", shape, 2, 6),
        pointwise("mul", shape, 7, weights=256),
        pointwise("add", shape, 8, weights=256),
    ]
    found = recomposed(graph(*ops, source="onnx")).operators
    assert [o.kind for o in found] == ["elementwise", "layer_norm"]
    assert found[1].attributes["width"] == 256
    assert found[1].parameter_elements == 512


def test_splits_and_transpositions_that_products_read_in_place_are_no_kernels() -> None:
    shape = (1, 4, 64, 32)
    ops = [
        pointwise("relu", shape),
        op("copy", (shape,), (1, 4, 32, 64), (0,), name="Transpose"),
        op("matmul", (shape, (1, 4, 32, 64)), (1, 4, 64, 64), (0, 1)),
        op("copy", ((1, 4, 64, 64),), (1, 64, 4, 64), (2,), name="Transpose"),
        pointwise("tanh", (1, 64, 4, 64), 3),
    ]
    found = recomposed(graph(*ops, source="onnx")).operators
    assert [o.kind for o in found] == ["elementwise", "matmul", "copy", "elementwise"]


def test_lowering_leaves_the_graph_alone_and_is_kept_by_content() -> None:
    net, twin = small_net(), small_net()
    before = net.to_json()
    mode = mode_of(net, runtime="compiled")
    assert lowered(net, mode) is lowered(twin, mode)
    assert net.to_json() == before


SHAPES = st.lists(st.integers(0, 9), max_size=5).map(tuple)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(("function", "width", "scale")), st.sampled_from(("add", "mul", "erf", 3))
)


@st.composite
def any_graph(draw: st.DrawFn) -> OperatorGraph:
    ops: list[Operator] = []
    for i in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from([k.name for k in KINDS] + ["unknown_kind"]))
        attributes: Mapping[str, Attribute] = draw(ATTRIBUTES)
        reads = tuple(draw(st.lists(SHAPES, max_size=4)))
        writes: tuple[tuple[int, ...], ...] = tuple(draw(st.lists(SHAPES, max_size=2)))
        if kind in ("conv", "conv_transpose", "linear", "matmul", "attention", "recurrent"):
            # The smallest that their costs are defined for.
            base = draw(st.tuples(*[st.integers(1, 9)] * 4))
            reads, writes = (base, base, base), (base,)
            attributes = {"kernel": draw(st.sampled_from((1, (3, 3), ()))), "groups": 1}
        inputs = tuple(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else ()
        name = draw(st.sampled_from(("aten.clone", "Transpose", "Mul", "aten.add_.Tensor", "")))
        ops.append(
            Operator(kind, name, reads, writes, draw(st.integers(0, 99)), attributes, inputs,
                     draw(st.booleans()), draw(st.integers(1, 3)))
        )  # fmt: skip
    source = draw(st.sampled_from(("table", "onnx", "torch_export", "huggingface")))
    return OperatorGraph(tuple(ops), draw(st.integers(1, 4)), source=source)


@given(
    net=any_graph(),
    precision=st.sampled_from(("fp32", "amp", "bf16", "int8")),
    runtime=st.sampled_from(("eager", "compiled", "onnxruntime")),
    version=st.sampled_from(("1.13", "2.1.0", "2.9.1")),
)
def test_any_graph_can_be_lowered(
    net: OperatorGraph, precision: str, runtime: str, version: str
) -> None:
    found = kernels_of(net, precision=precision, runtime=runtime, version=version)
    for column in (found.work, found.traffic, found.fixed_work, found.fixed_traffic):
        assert np.isfinite(column).all()
        assert (column >= 0).all()


@pytest.mark.parametrize(("stored", "read"), [(0, 512 * 256), (512 * 256 + 256, 512 * 256 + 256)])
def test_a_dense_layer_reads_its_weights_wherever_they_are_stored(stored: int, read: int) -> None:
    """Tied weights belong to another layer and are read all the same; a bias is read too."""
    dense = op("linear", ((64, 512),), (64, 256), (), stored)
    found = kernels_of(graph(dense), precision="fp16")
    assert found.fixed_traffic.tolist() == [2.0 * read]
    assert found.traffic.tolist() == [2.0 * (64 * 512 + 64 * 256)]
    assert found.work.tolist() == [2.0 * 64 * 512 * 256]


def kernel_of_convolution(
    channels: int, outputs: int, window: int, stride: int, groups: int = 1
) -> str:
    reads, writes = (1, channels, 64, 64), (1, outputs, 64 // stride, 64 // stride)
    weights = outputs * channels // groups * window**2
    layer = op(
        "conv", (reads,), writes, (), weights,
        kernel=(window, window), stride=(stride, stride), groups=groups,
    )  # fmt: skip
    return names(kernels_of(graph(layer), precision="fp16"))[0]


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        ((3, 64, 7, 2), "stem_conv/0/0"),
        ((4, 96, 16, 16), "stem_conv/1/1"),
        ((5, 64, 7, 2), "strided_conv/1/1/1"),
        ((64, 64, 3, 1), "conv/2/1/0"),
        ((256, 512, 1, 1), "conv1x1/2/2/0"),
        ((256, 512, 1, 2), "conv1x1/2/2/0"),
        ((32, 32, 5, 1, 32), "depthwise_conv/5/0"),
        ((32, 32, 3, 2, 32), "depthwise_conv/3/1"),
        ((32, 32, 11, 1, 32), "depthwise_conv/9/0"),
        ((64, 64, 3, 1, 4), "grouped_conv/2/1"),
        ((64, 64, 1, 1, 2), "grouped_conv/3/0"),
    ],
)
def test_convolutions_by_what_their_libraries_have_kernels_for(
    layer: tuple[int, ...], kind: str
) -> None:
    """Of images (at most four channels), of one pixel, of steps, of groups, of single channels."""
    assert kernel_of_convolution(*layer) == kind


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_every_kernel_is_owned_by_the_operators_that_it_runs(mode: str) -> None:
    first = op("conv", (IMAGE,), MAP, weights=432, kernel=(3, 3), stride=(1, 1), groups=1)
    relu = op("elementwise", (MAP,), MAP, (0,), name="aten.relu", function="relu")
    scale = op("elementwise", (MAP,), MAP, (1,), name="aten.mul", function="mul")
    second = op("conv", (MAP,), MAP, (2,), weights=2304, kernel=(3, 3), stride=(1, 1), groups=1)
    given = graph(first, relu, scale, second)
    how = lowering_mode(given, "amp", Software(version="2.4.0", runtime=mode))
    kernels, owners = lower_owned(given, how)
    (same,) = lower(given, (how,))
    np.testing.assert_array_equal(kernels.traffic, same.traffic)
    assert len(owners) == len(kernels)
    places = [tuple(map(given.operators.index, own)) for own in owners]
    is_product = IS_PRODUCT[kernels.kind]
    products = [own for own, kind in zip(places, is_product, strict=True) if kind]
    assert products == [(0,), (3,)]
    rest = {own for own, kind in zip(places, is_product, strict=True) if not kind}
    fused = {(1, 2)} if mode == "compiled" else {(1,), (2,)}
    assert fused <= rest <= fused | {(0,), (3,)}, "casts belong to their product"
