"""Operators: costs, features, labels, tables and rooflines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.costs import operator_cost
from forerun.features.operators.features import (
    FEATURES,
    LAUNCH_MS,
    START_MS,
    operator_features,
)
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE, operator_label, workload_labels
from forerun.features.operators.query_table import gather, graph_table, query_table, training_table
from forerun.features.operators.roofline import (
    is_graphics,
    power_capped_tflops,
    roofline_ms,
    sustained_tflops,
    traffic_bytes,
)
from forerun.features.operators.table import OperatorTable
from tests.devices import A100, CATALOG
from tests.every import for_every
from tests.laws import graphs

# Costs by hand, and exact change with the batch.


@given(graphs(), st.integers(1, 16))
def test_the_batch_scales_work_but_no_weight(graph, factor):
    table = OperatorTable.of_graph(graph)
    scaled = table.at_batch(factor)
    grows = np.where(table.batched, factor, 1)
    np.testing.assert_allclose(scaled.flops, table.flops * grows)
    np.testing.assert_allclose(scaled.out_elements, table.out_elements * grows)
    np.testing.assert_array_equal(scaled.parameter_elements, table.parameter_elements)


@given(graphs())
def test_tables_concatenate_and_take_by_row(graph):
    table = OperatorTable.of_graph(graph)
    twice = OperatorTable.concatenate([table, table])
    again = twice.take(np.arange(len(table), 2 * len(table)))
    np.testing.assert_array_equal(again.flops, table.flops)
    np.testing.assert_array_equal(again.kind, table.kind)


# Costs of one operator: what does not apply to a kind is zero.


@pytest.mark.parametrize(
    ("operator", "absent"),
    [
        (
            Operator("linear", "fc", ((4, 8),), ((4, 16),), 128),
            {"rows", "width", "kernel", "stride", "heavy", "steps"},
        ),
        (
            Operator("elementwise", "relu", ((4, 8),), ((4, 8),)),
            {"batch", "m", "n", "k", "rows", "width", "kernel", "stride", "heavy", "steps"},
        ),
    ],
    ids=["linear", "elementwise"],
)
def test_what_does_not_apply_is_zero(operator, absent):
    cost = operator_cost(operator)._asdict()
    assert {name for name, value in cost.items() if value == 0.0} - {"parameter_elements"} == absent


def cost(kind, reads, writes, parameters=0, **attributes):
    return operator_cost(Operator(kind, kind, reads, writes, parameters, attributes))


def view(found):
    return found.batch, found.m, found.n, found.k


def test_a_dense_layer_is_one_product():
    """4 x 3 rows of 8 values, 16 outputs: a multiply-add counts as two."""
    found = cost("linear", ((4, 3, 8),), ((4, 3, 16),), 8 * 16)
    assert found.flops == 2 * 12 * 8 * 16
    assert view(found) == (1, 12, 16, 8)
    assert (found.in_elements, found.out_elements, found.parameter_elements) == (96, 192, 128)


def test_a_batched_product_is_as_many_as_its_first_dimensions():
    found = cost("matmul", ((2, 5, 3, 8), (2, 5, 8, 7)), ((2, 5, 3, 7),))
    assert found.flops == 2 * 10 * 3 * 7 * 8
    assert view(found) == (10, 3, 7, 8)


def test_a_convolution_is_a_product_of_windows_for_each_group():
    """ResNet-50's first layer has 118 million multiply-adds (He et al. 2015, 224 x 224)."""
    first = cost("conv", ((1, 3, 224, 224),), ((1, 64, 112, 112),), 64 * 3 * 49,
                 kernel=(7, 7), stride=(2, 2))  # fmt: skip
    assert first.flops / 2 == 118_013_952
    assert view(first) == (1, 112 * 112, 64, 147)
    assert (first.kernel, first.stride) == (49, 2)
    depthwise = cost("conv", ((1, 32, 8, 8),), ((1, 32, 8, 8),), 288, kernel=(3, 3), groups=32)
    assert depthwise.flops == 2 * 64 * 32 * 9
    assert view(depthwise) == (32, 64, 1, 9)


def test_a_transposed_convolution_is_that_of_its_gradient():
    up = cost("conv_transpose", ((1, 32, 8, 8),), ((1, 16, 16, 16),), 0, kernel=(2, 2), stride=2)
    down = cost("conv", ((1, 16, 16, 16),), ((1, 32, 8, 8),), 0, kernel=(2, 2), stride=2)
    assert (up.flops, view(up)) == (down.flops, view(down))
    assert up.stride == 2


def test_attention_is_two_products_and_a_softmax_between_them():
    """Scores of 10 x 12 in 2 x 4 heads of 16, five operations each; values of width 24."""
    query, key, value = (2, 4, 10, 16), (2, 4, 12, 16), (2, 4, 12, 24)
    found = cost("attention", (query, key, value), ((2, 4, 10, 24),))
    assert found.flops == 2 * 8 * 10 * 12 * (16 + 24) + 5 * 8 * 10 * 12
    assert view(found) == (8, 10, 12, 16)
    assert (found.rows, found.width) == (80, 12)


def test_a_recurrent_layer_uses_every_weight_at_every_step():
    found = cost("recurrent", ((7, 2, 16),), ((7, 2, 32),), 4 * 32 * 48)
    assert found.flops == 2 * 14 * 4 * 32 * 48
    assert view(found) == (1, 2, 32, 32)
    assert found.steps == 7


@pytest.mark.parametrize(("name", "gates"), [("aten.lstm", 4), ("GRU", 3), ("aten.rnn_tanh", 1)])
def test_the_steps_of_all_layers_and_directions_wait_for_each_other(name, gates):
    """Two layers in two directions over five positions of three samples, which come first."""
    shapes = ((3, 5, 16), (4, 3, 32))
    found = operator_cost(Operator("recurrent", name, shapes, ((3, 5, 64),), 999))
    assert view(found) == (1, 3, gates * 32, 32)
    assert found.steps == 4 * 5


def test_rows_windows_and_functions():
    norm = cost("layer_norm", ((4, 6, 8),), ((4, 6, 8),), 16)
    assert (norm.rows, norm.width) == (24, 8)
    declared = cost("layer_norm", ((4, 6, 8),), ((4, 6, 8),), 96, width=48)
    assert (declared.rows, declared.width) == (4, 48)
    pool = cost("pool", ((1, 8, 6, 6),), ((1, 8, 3, 3),), kernel=(2, 2), stride=(2, 2))
    assert (pool.kernel, pool.stride) == (4, 2)
    assert pool.flops >= 8 * 36, "every value is looked at"
    functions = [cost("elementwise", ((8,),), ((8,),), function=f).heavy for f in ("pow", "gelu",
                 "div", "relu")]  # fmt: skip
    assert functions == sorted(functions, reverse=True)
    assert functions[-1] == 0.0 < functions[-2]


# A training step: products twice more, every weight updated once, batch scales it like forward.


LINEAR = Operator("linear", "fc", ((8, 16),), ((8, 32),), 512)
MATMUL = Operator("matmul", "bmm", ((2, 8, 16), (2, 16, 4)), ((2, 8, 4),))
RELU = Operator("elementwise", "relu", ((8, 32),), ((8, 32),))


def test_products_do_their_flops_three_times():
    for op in (LINEAR, MATMUL):
        forward = OperatorTable.of([op])
        step = training_table(forward)
        products = step.flops[step.kind == forward.kind[0]].sum()
        assert products == 3 * forward.flops[0]


def test_gradients_have_the_shapes_of_what_they_are_gradients_of():
    step = training_table(OperatorTable.of([LINEAR]))
    assert (step.m[1], step.n[1], step.k[1]) == (8, 16, 32)
    assert step.out_elements[1] == 8 * 16
    assert (step.m[2], step.n[2], step.k[2]) == (16, 32, 8)
    assert step.out_elements[2] == 512


def test_other_operators_read_once_more_what_forward_saved():
    step = training_table(OperatorTable.of([RELU]))
    assert len(step) == 2
    assert step.in_elements[1] == 2 * 8 * 32
    assert step.out_elements[1] == 8 * 32
    assert step.operands.tolist() == [1, 2], "the gradient and what was saved"


def test_the_second_operand_of_a_batched_product_has_a_gradient_of_its_shape():
    """2 x 8 x 16 times 2 x 16 x 4."""
    step = training_table(OperatorTable.of([MATMUL]))
    assert step.out_elements.tolist() == [2 * 8 * 4, 2 * 8 * 16, 2 * 16 * 4]
    assert step.in_elements[1:].tolist() == [2 * (8 * 4 + 16 * 4), 2 * (8 * 16 + 8 * 4)]


def test_the_optimizer_touches_every_weight_and_no_batch():
    step = training_table(OperatorTable.of([LINEAR, RELU]))
    assert step.in_elements[-1] == 4 * 512
    assert not step.batched[-1]
    assert len(training_table(OperatorTable.of([RELU]))) == 2


def test_a_step_at_a_larger_batch_does_proportionally_more_products():
    forward = OperatorTable.of([LINEAR, MATMUL])
    one, four = training_table(forward), training_table(forward.at_batch(4))
    np.testing.assert_allclose(four.flops[:-1], 4 * one.flops[:-1])
    np.testing.assert_allclose(four.flops[-1], one.flops[-1])


# Features of operators, against counts by hand of what a kernel does.


def feature(kind: str, width: int, name: str, rows: int = 4096) -> float:
    """One feature of `rows` rows of this width."""
    table = OperatorTable.of([Operator(kind, kind, ((rows, width),), ((rows, width),))])
    matrix = operator_features(table, A100, "fp32", kind).features
    return float(matrix[0, FEATURES[kind].index(name)])


@pytest.mark.parametrize(
    ("width", "fill"), [(512, 1.0), (640, 1.25 / 2), (1024, 1.0), (128, 0.25), (1536, 1.0)]
)
def test_layer_norm_reads_four_elements_in_each_of_128_threads(width: int, fill: float) -> None:
    assert feature("layer_norm", width, "lane_fill") == pytest.approx(fill)


@pytest.mark.parametrize(("width", "fill"), [(32, 1.0), (48, 0.75), (1024, 1.0), (700, 700 / 1024)])
def test_softmax_of_short_rows_is_one_warp_a_row(width: int, fill: float) -> None:
    assert feature("softmax", width, "lane_fill") == pytest.approx(fill)
    assert feature("softmax", width, "iterations") == 0.0


@pytest.mark.parametrize(("width", "block"), [(2048, 256), (4096, 512), (16384, 512), (1536, 256)])
def test_softmax_of_long_rows_is_one_block_of_up_to_512_threads(width: int, block: int) -> None:
    steps = width / 4 / block
    assert feature("softmax", width, "iterations") == min(np.ceil(steps), 8)
    assert feature("softmax", width, "lane_fill") == pytest.approx(steps / np.ceil(steps))


def test_a_tile_also_reads_its_borders() -> None:
    """One full wave of tiles of 128 x 128 on 108 units: 16 / 128 more for rows and for columns."""
    assert A100.compute_units == 108
    product = Operator("linear", "aten.mm", ((108 * 128, 512),), ((108 * 128, 128),), 512 * 128)
    matrix = operator_features(OperatorTable.of([product]), A100, "fp16", "product").features
    best = matrix[0, FEATURES["product"].index("log_best_tile")]
    assert np.exp(best) == pytest.approx(1 + 16 / 128 + 16 / 128)


def product_features(m: int, n: int, k: int, family: str = "product") -> dict[str, float]:
    """Features of one product of half precision on an A100, by name."""
    product = Operator("linear", "aten.mm", ((m, k),), ((m, n),), n * k)
    found = operator_features(OperatorTable.of([product]), A100, "fp16", family)
    named = dict(zip(FEATURES[family], found.features[0].tolist(), strict=True))
    base_ms = 1e3 * (found.parallel_s[0, 0] + found.start_s[0]) + LAUNCH_MS * found.launch[0]
    return named | {"base_ms": base_ms, "power_ms": 1e3 * found.power_s[0]}


def test_alignment_counts_the_powers_of_two_that_divide_a_side() -> None:
    """200 = 2^3 x 25, 96 = 2^5 x 3, 256 by all up to 128."""
    found = product_features(200, 96, 256)
    assert [found[f"align_{side}"] for side in "mnk"] == [3.0, 5.0, 7.0]


def test_a_large_aligned_product_takes_its_arithmetic_and_one_launch() -> None:
    """64 full waves of 256 x 128: borders cost 16/256 + 16/128 more than the peak."""
    found = product_features(108 * 256, 64 * 128, 4096)
    peak_ms = 2 * 108 * 256 * 64 * 128 * 4096 / 312e12 * 1e3
    assert found["base_ms"] == pytest.approx(peak_ms * (1 + 16 / 256 + 16 / 128), rel=0.01)
    tiny_ms = product_features(1, 1, 1)["base_ms"]
    assert tiny_ms == pytest.approx(START_MS[KIND_CODE["linear"]], rel=0.05), "from a full queue"
    assert found["power_ms"] >= peak_ms


def test_only_what_was_timed_by_events_has_their_launch() -> None:
    """Products in fp32; in other formats, and of other kinds, a kernel starts from a full queue."""
    large = Operator("linear", "aten.mm", ((8192, 8192),), ((8192, 8192),), 8192**2)
    table = OperatorTable.of([large])
    timed, other = (operator_features(table, A100, name, "product") for name in ("fp32", "fp16"))
    assert (timed.launch[0], timed.start_s[0]) == (1.0, 0.0)
    assert other.launch[0] == 0.0
    assert other.start_s[0] == pytest.approx(3.5e-6)


def test_one_element_a_thread_takes_the_same_time_in_16_bits() -> None:
    """An A100 has 108 units at 1,410 MHz, each of which moves 1.4 elements in a cycle."""
    shape = (64, 256, 56, 56)
    table = OperatorTable.of([Operator("batch_norm", "", (shape,), (shape,))])
    times = [
        operator_features(table, A100, name, "elementwise").parallel_s[0, 0]
        for name in ("fp32", "fp16")
    ]
    expected = 2 * 64 * 256 * 56 * 56 / (1.4 * 108 * 1.41e9)
    assert times == pytest.approx([expected, expected])


@pytest.mark.parametrize(("name", "threads"), [("t4", 1024), ("rtx-4090", 1536), ("h100", 2048)])
def test_threads_resident_on_a_unit_are_those_of_cuda_s_table(name: str, threads: int) -> None:
    """Maximum resident threads per multiprocessor, CUDA C++ Programming Guide; 128 a row."""
    table = OperatorTable.of([Operator("layer_norm", "", ((64, 1024),), ((64, 1024),))])
    found = operator_features(table, CATALOG.get(name), "fp32", "layer_norm").features[0]
    live_kib = np.exp(found[FEATURES["layer_norm"].index("log_live_per_unit")])
    assert live_kib == pytest.approx(threads / 128 * 1024 * 4 / 1024)


def test_rows_that_fit_the_cache_are_not_read_again() -> None:
    assert feature("softmax", 2048, "log_traffic") == 0.0
    assert feature("layer_norm", 256, "log_traffic") == 0.0
    again = feature("softmax", 2**20, "log_traffic", rows=64)
    assert again == pytest.approx(np.log(2)), "a whole second read"


def test_widths_are_aligned_in_fours() -> None:
    assert [
        feature(kind, w, "align_4") for kind in ("softmax", "layer_norm") for w in (64, 66)
    ] == [
        1.0,
        0.0,
        1.0,
        0.0,
    ]


# Labels of operators: one for each row of a query's table, equal for equal operators.


@given(graph=graphs(), phase=st.sampled_from(["inference", "training"]))
def test_every_row_of_a_table_has_the_label_of_its_operator(graph, phase):
    run = Network(graph, 3, phase=phase)
    labels, table = workload_labels(run), query_table(run)
    assert len(labels) == len(table)
    forward = len(graph)
    assert labels[:forward] == [operator_label(op) for op in graph.operators]
    for label, kind in zip(labels[forward:], table.kind[forward:], strict=True):
        product = label.startswith(("gradient of the input", "gradient of the second"))
        assert product == bool(IS_GEMM[kind])


def test_an_operator_alone_has_one_label():
    op = Operator("softmax", "Softmax", ((8, 16),), ((8, 16),))
    assert workload_labels(Kernel(op)) == [operator_label(op)]


@pytest.mark.parametrize(
    ("op", "label"),
    [
        (Operator("conv", "Conv", ((1, 3, 8, 8),), ((1, 4, 8, 8),), 108, {"kernel": (3, 3)}),
         "Conv kernel 3x3, 1x3x8x8 -> 1x4x8x8"),
        (Operator("pool", "", ((1, 3, 8, 8),), ((1, 3, 4, 4),), 0, {"kernel": 2}),
         "pool kernel 2x2, 1x3x8x8 -> 1x3x4x4"),
        (Operator("elementwise", "add", ((4,), (4,)), ((4,),)), "add 4, 4 -> 4"),
        (Operator("copy", "constant", (), ((4, 2),)), "constant 4x2"),
        (Operator("reduce", "sum", ((4, 2),), ((),)), "sum 4x2 -> scalar"),
    ],
)  # fmt: skip
def test_a_label_says_the_name_the_shapes_and_the_window(op, label):
    assert operator_label(op) == label


# Queries as operators: equal graphs share a table, gathered rows belong to their query.


FIRST_RELU = Operator("elementwise", "relu", ((4, 32),), ((4, 32),))
LAST_LINEAR = Operator("linear", "fc", ((4, 32),), ((4, 8),), 256, inputs=(0,))


def graph():
    return OperatorGraph((FIRST_RELU, LAST_LINEAR), batch_size=4)


def test_equal_graphs_share_one_table():
    assert graph_table(graph()) is graph_table(graph())


def test_a_network_is_scaled_to_the_querys_batch():
    table = query_table(Network(graph(), batch_size=12))
    np.testing.assert_array_equal(table.out_elements, [12 * 32, 12 * 8])


def test_a_training_query_gets_its_backward_pass():
    assert len(query_table(Network(graph(), 4, "fp32", "training"))) > 2


def test_gathered_operators_keep_their_owner_and_their_device():
    a, b = CATALOG.get("a10"), CATALOG.get("t4")
    queries = [
        Query(Network(graph(), 4), a),
        Query(Kernel(FIRST_RELU), b),
        Query(Kernel(LAST_LINEAR), a),
        Query(Network(graph(), 8, "fp16"), a),
    ]
    found = {}
    for part in gather(queries):
        for owner in part.owner:
            found.setdefault(int(owner), []).append((part.device.name, part.precision))
    assert found == {
        0: [("a10", "fp32")] * 2,
        1: [("t4", "fp32")],
        2: [("a10", "fp32")],
        3: [("a10", "fp16")] * 2,
    }


# The bound: by hand, monotone, and capped by power where chips are known to be.


COPY = OperatorTable.of([Operator("copy", "", ((1024, 1024),), ((1024, 1024),))])


def test_traffic_at_full_bandwidth():
    device = CATALOG.get("v100-pcie-32gb")
    expected = 2 * 4 * 2**20 / (device.memory_bandwidth_gbs * 1e6)
    assert roofline_ms(COPY, device, "fp32")[0] == pytest.approx(expected)
    assert roofline_ms(COPY, device, "fp16")[0] == pytest.approx(expected / 2)


@pytest.mark.parametrize(("name", "share"), [("t4", 0.46), ("p4", 0.49), ("v100-pcie-32gb", 0.96)])
def test_the_power_cap_is_what_was_measured_in_fp32(name, share):
    device = CATALOG.get(name)
    assert power_capped_tflops(device, "fp32") / device.peak("fp32") == pytest.approx(
        share, abs=0.06
    )


@for_every("device", list(CATALOG))
def test_no_device_sustains_more_than_its_peak(device):
    for precision in device.peak_tflops:
        peak = device.peak(precision, matrix=True)
        assert 0 < power_capped_tflops(device, precision) <= peak
        assert 0 < sustained_tflops(device, precision) <= peak


def test_tf32_speeds_up_convolutions_of_fp32_runs_and_nothing_else():
    device = CATALOG.get("a100-sxm-80gb")
    conv = Operator(
        "conv", "aten.convolution", ((8, 512, 56, 56),), ((8, 512, 56, 56),), 512 * 4608
    )
    product = Operator("linear", "aten.mm", ((4096, 4096),), ((4096, 4096),), 4096 * 4096)
    table = OperatorTable.of([conv, product])
    plain = roofline_ms(table, device, "fp32")
    with_tf32 = roofline_ms(table, device, "fp32", tf32_convolutions=True)
    faster = device.peak("tf32", matrix=True) / device.peak("fp32", matrix=True)
    assert plain[0] / with_tf32[0] == pytest.approx(faster, rel=1e-6)
    assert with_tf32[1] == plain[1]
    half = (roofline_ms(table, device, "fp16", tf32_convolutions=t) for t in (False, True))
    np.testing.assert_array_equal(*half)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("a100-sxm-80gb", 249), ("h100-sxm-80gb", 747), ("b200-sxm-180gb", 1471)],
)
def test_full_rate_parts_sustain_what_was_published(name, tflops):
    """Products in bf16 of AIConfigurator's tables; one share of the peak stands for all."""
    assert sustained_tflops(CATALOG.get(name), "bf16") == pytest.approx(tflops, rel=0.16)


def test_graphics_chips_are_limited_by_their_power_too():
    """L40S: 205 to 253 TFLOP/s in bf16 at 350 W; less a watt on older nodes."""
    l40s = CATALOG.get("l40s")
    assert 205 < sustained_tflops(l40s, "bf16") < 253
    a_watt = {}
    for node in (5.0, 8.0, 12.0):
        chip = l40s.model_copy(update={"process_nm": node, "tdp_w": 100.0})
        a_watt[node] = sustained_tflops(chip, "bf16") / 100.0
    assert a_watt[5.0] == pytest.approx(0.72)
    assert a_watt[5.0] > a_watt[8.0] > a_watt[12.0] > 0.5 * a_watt[5.0]


@pytest.mark.parametrize(
    ("name", "whole"),
    [("b300-sxm-288gb", "b200-sxm-180gb"), ("h800-sxm-80gb", "h100-sxm-80gb")],
)
def test_data_centre_gpus_with_little_fp64_are_not_limited_as_graphics_chips(name, whole):
    few, full = CATALOG.get(name), CATALOG.get(whole)
    assert not is_graphics(few)
    assert sustained_tflops(few, "fp16") == sustained_tflops(full, "fp16")
    pcie = few.model_copy(update={"interconnect_gbs": 64.0})
    assert is_graphics(pcie)
    assert sustained_tflops(pcie, "fp16") < 0.8 * sustained_tflops(full, "fp16")


def test_chips_of_half_matrix_rate_hold_their_peak():
    """GeForce with fp32 accumulation: twice the fp32 rate."""
    device = CATALOG.get("rtx-4090")
    half = device.model_copy(update={"peak_tflops": {"fp32": 80.0, "fp16": 160.0}})
    assert sustained_tflops(half, "fp16") == 160.0
    full = device.model_copy(update={"peak_tflops": {"fp32": 80.0, "fp16": 320.0}})
    assert sustained_tflops(full, "fp16") < 320.0


@pytest.mark.parametrize(("nm", "gflops"), [(12.0, 53.0), (16.0, 37.0)])
def test_energy_of_a_product_falls_with_the_node(nm, gflops):
    """GFLOP/s a watt of fp32 products as measured; matrix units spend an eighth of it."""
    chip = CATALOG.get("v100-pcie-32gb").model_copy(
        update={"process_nm": nm, "tdp_w": 10.0, "peak_tflops": {"fp32": 14.0, "fp16": 112.0}}
    )
    assert power_capped_tflops(chip, "fp32") == pytest.approx(gflops / 100)
    assert power_capped_tflops(chip, "fp16") == pytest.approx(8 * gflops / 100)
    for unknown in ({"process_nm": None}, {"tdp_w": None}):
        assert power_capped_tflops(chip.model_copy(update=unknown), "fp32") == 14.0


def test_an_embedding_reads_the_rows_that_are_looked_up_and_not_its_table():
    few = Operator("embedding", "e", ((8,),), ((8, 64),), parameter_elements=64 * 1_000_000)
    assert traffic_bytes(OperatorTable.of([few]), "fp32")[0] == 4 * (8 + 2 * 8 * 64)
    many = Operator("embedding", "e", ((800,),), ((800, 64),), parameter_elements=64 * 10)
    found = traffic_bytes(OperatorTable.of([many]), "fp32")[0]
    assert found == 4 * (800 + 800 * 64 + 10 * 64)
