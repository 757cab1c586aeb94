"""Kernels of a run: sums, backward kernels, batch sizes, tiles and features, by hand."""

from dataclasses import fields, replace

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.number_formats import FORMATS
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, LoraTargets, Network, TrainingSetup
from forerun.features.kernels.rows import (
    BACKWARD,
    BYTES_PER_CYCLE,
    DEQUANTIZATION_PASSES,
    FEATURES,
    FEW_GRAPHS,
    FORWARD,
    INPUT_GRADIENT,
    OPTIMIZER,
    OPTIMIZER_PASSES,
    WEIGHT_GRADIENT,
    KernelRows,
    RunKernels,
    TrainingStep,
    _tiled,
    _Trained,
    labelled_kernels,
    runs_kernels,
)
from forerun.features.lowering import lowered
from forerun.features.lowering.kernels import (
    IS_PRODUCT,
    KERNEL_CODE,
    KERNEL_KINDS,
    Kernels,
    Launch,
    launch,
)
from forerun.features.lowering.mode import lowering_mode
from forerun.features.operators.adapters import adapted_layers
from forerun.features.operators.kinds import LOSS, OPTIMIZER_STEP
from forerun.features.operators.query_table import query_table

EAGER = Software(version="2.1.0")
GPU = Device(
    name="round",
    vendor="nobody",
    kind="gpu",
    memory_bandwidth_gbs=1000.0,
    peak_tflops={"fp32": 20.0, "fp16": 100.0 / 0.75},  # of which three quarters last
    compute_units=100,
    l2_mib=16.0,
    boost_clock_mhz=1000.0,
)
WIDTH, INNER, TOKENS = 256, 512, 64


def layers(depth: int = 3) -> OperatorGraph:
    """Equal blocks of a product from 512 to 256 columns, a product back, and a function."""
    wide, narrow = (1, TOKENS, INNER), (1, TOKENS, WIDTH)
    weights = WIDTH * INNER
    ops: list[Operator] = []
    for _ in range(depth):
        at = len(ops)
        ops += [
            Operator("linear", "aten.mm", (wide,), (narrow,), weights, {}, (at - 1,) * bool(at)),
            Operator("linear", "aten.mm", (narrow,), (wide,), weights, {}, (at,)),
            Operator(
                "elementwise", "aten.gelu", (wide,), (wide,), 0, {"function": "gelu"}, (at + 1,)
            ),
        ]
    return OperatorGraph(tuple(ops), source="torch_export")


GRAPH = layers()


def ask(batch: int = 8, graph: OperatorGraph = GRAPH, device: Device = GPU, **run: object) -> Query:
    network = Network(graph, batch, **{"precision": "fp16", **run})  # type: ignore[arg-type]
    return Query(network, device, EAGER)


def step(batch: int = 8, **setup: object) -> Query:
    training = TrainingSetup(**setup) if setup else None  # type: ignore[arg-type]
    return ask(batch, phase="training", training=training)


def of_role(rows: KernelRows, role: int) -> KernelRows:
    return rows.take(rows.role == role)


def column(rows: KernelRows, name: str) -> np.ndarray:
    return rows.features[:, FEATURES.index(name)].astype(np.float64)


def by_hand(*launches: Launch, batch: int = 1, device: Device = GPU) -> KernelRows:
    """Rows of these kernels, given for one sample."""
    kernels = RunKernels.of(Kernels.of(launches, 1.0))
    return KernelRows.of_runs([ask(batch, device=device)], [kernels])


def product(m: float, n: float, k: float, name: str = "linear/1/2/0", **more: float) -> Launch:
    values = {"work": 2.0 * m * n * k, "traffic": 2.0 * (m * k + m * n), "groups": 1.0} | more
    return Launch(KERNEL_CODE[name], m=m, n=n, k=k, tensor=True, **values)  # type: ignore[arg-type]


def sorted_rows(kernels: RunKernels) -> np.ndarray:
    rows = np.stack([getattr(kernels, own.name).astype(float) for own in fields(kernels)], axis=1)
    return rows[np.lexsort(rows.T)]


def test_names_of_features_are_distinct_and_values_finite() -> None:
    rows = KernelRows.of([ask(), step(), ask(1, precision="fp32")])
    assert len(set(FEATURES)) == len(FEATURES)
    assert rows.features.shape == (len(rows), len(FEATURES))
    assert np.isfinite(rows.features).all()


def test_equal_kernels_are_one_row_and_their_sums_stay() -> None:
    graph = layers(5)
    all_of_them = RunKernels.of(lowered(graph, lowering_mode(graph, "fp16", EAGER)))
    (merged,) = runs_kernels([ask(graph=graph)])
    assert len(all_of_them) == 15
    assert len(merged) == 3
    assert merged.count.tolist() == [5.0, 5.0, 5.0]
    assert len(np.unique(sorted_rows(replace(merged, count=0 * merged.count)), axis=0)) == 3
    for own in fields(merged):
        if own.name != "count":
            values, whole = (getattr(kernels, own.name) for kernels in (merged, all_of_them))
            assert (values * merged.count).sum() == pytest.approx(
                (whole * all_of_them.count).sum()
            ), own.name


def test_kernels_that_differ_in_anything_stay_apart() -> None:
    base = product(64, 128, 256, fixed_traffic=1e5)
    changed = [
        base._replace(**{name: value})
        for name, value in {
            "kind": KERNEL_CODE["linear/0/0/0"],
            "work": 1.0,
            "traffic": 2.0,
            "fixed_work": 3.0,
            "fixed_traffic": 4.0,
            "m": 5.0,
            "n": 6.0,
            "k": 7.0,
            "groups": 8.0,
            "tensor": False,
        }.items()
    ]
    found = RunKernels.of(Kernels.of((base, *changed, base), 1.0)).merged()
    assert len(found) == 11
    assert sorted(found.count) == [1.0] * 10 + [2.0]


def test_each_product_has_two_gradients_with_its_dimensions_exchanged() -> None:
    batch = 8
    rows = KernelRows.of([step(batch)])
    forward = of_role(rows, FORWARD)
    forward = forward.take(IS_PRODUCT[forward.kind])
    assert len(forward) == 2

    def shapes(own: KernelRows) -> list[tuple[int, ...]]:
        found = (np.exp(column(own, f"log_{name}")).round() for name in "mnk")
        return sorted(zip(*(values.astype(int).tolist() for values in found), strict=True))

    rows_ = batch * TOKENS
    assert shapes(forward) == [(rows_, WIDTH, INNER), (rows_, INNER, WIDTH)]
    assert shapes(of_role(rows, INPUT_GRADIENT)) == [(rows_, WIDTH, INNER), (rows_, INNER, WIDTH)]
    assert shapes(of_role(rows, WEIGHT_GRADIENT)) == [(WIDTH, INNER, rows_), (INNER, WIDTH, rows_)]
    for role in (INPUT_GRADIENT, WEIGHT_GRADIENT):
        own = of_role(rows, role)
        assert (own.roofline_s * own.count).sum() == pytest.approx(
            (forward.roofline_s * forward.count).sum()
        )
        assert own.count.sum() == forward.count.sum() == 6


def test_each_other_kernel_has_one_backward_kernel_that_moves_half_as_much_again() -> None:
    rows = KernelRows.of([step()])
    forward, behind = of_role(rows, FORWARD), of_role(rows, BACKWARD)
    forward = forward.take(~IS_PRODUCT[forward.kind])
    behind = behind.take(behind.kind == forward.kind[0])
    assert behind.count.tolist() == forward.count.tolist() == [3.0]
    np.testing.assert_allclose(behind.memory_s, 1.5 * forward.memory_s)


def test_a_loss_reads_and_writes_the_outputs_eight_times_in_fp32() -> None:
    """A mean square reads outputs and writes squares, reads these, and backward as often again."""
    behind = of_role(KernelRows.of([step(batch=8)]), BACKWARD)
    loss = behind.take(behind.kind == KERNEL_CODE["elementwise"])
    outputs = 8 * TOKENS * INNER
    np.testing.assert_allclose(loss.memory_s, [8 * 4 * outputs / (GPU.bandwidth_gbs * 1e9)])
    assert loss.count.tolist() == [1.0]


def embedded(entries: int, tied: bool) -> OperatorGraph:
    """An embedding of `TOKENS` tokens, and a product with as many columns as its entries."""
    weights = entries * WIDTH
    ops = (
        Operator("embedding", "aten.embedding", ((1, TOKENS),), ((1, TOKENS, WIDTH),), weights),
        Operator(
            "linear", "aten.mm", ((1, TOKENS, WIDTH),), ((1, TOKENS, entries),), weights, {}, (0,)
        ),
    )
    known = weights if tied else 2 * weights
    return OperatorGraph(ops, source="torch_export", parameter_elements=known)


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_updates_embeddings_and_writes_their_gradients_whole(tied) -> None:
    """A shared weight is updated once; the gradient of a table has a row for each entry."""
    entries = 50_000
    query = ask(graph=embedded(entries, tied), phase="training", precision="fp32")
    rows = KernelRows.of([query])
    moved = rows.memory_s * rows.count * GPU.bandwidth_gbs * 1e9
    weights = entries * WIDTH * (1 if tied else 2)
    assert moved[rows.role == OPTIMIZER].sum() == pytest.approx(7 * 4 * weights)
    behind = (rows.role == BACKWARD) & (rows.kind == KERNEL_CODE["elementwise"])
    loss = 8 * 4 * 8 * TOKENS * entries
    assert moved[behind].sum() == pytest.approx(loss + 4 * entries * WIDTH)


@pytest.mark.parametrize(
    ("source", "outputs"), [("torch_export", TOKENS * (INNER + WIDTH)), ("table", TOKENS * INNER)]
)
def test_all_that_nothing_reads_is_an_output_but_in_tables_with_lost_edges(
    source: str, outputs: int
) -> None:
    shape = (1, TOKENS, WIDTH)
    unread = Operator("copy", "aten.clone", (shape,), (shape,))
    graph = replace(GRAPH, operators=(*GRAPH.operators[:-1], unread, GRAPH.operators[-1]))
    assert _Trained.of(replace(graph, source=source), TrainingStep()).outputs == outputs


@pytest.mark.parametrize("name", ["softmax1", "layer_norm1", "group_norm"])
def test_each_row_of_a_norm_is_the_work_of_one_unit(name) -> None:
    """One row is moved as fast as one unit can; many rows at the bandwidth of the GPU."""
    one_unit = BYTES_PER_CYCLE * 1e9
    row = launch(name, 1e6)._replace(m=1.0, k=1e5)
    few, many = by_hand(row, batch=1), by_hand(row, batch=1000)
    np.testing.assert_allclose(few.memory_s, 1e6 / one_unit)
    np.testing.assert_allclose(few.roofline_s, 1e6 / (GPU.bandwidth_gbs * 1e9))
    np.testing.assert_allclose(many.memory_s, many.roofline_s)
    whole = by_hand(launch("reduce", 1e6)._replace(m=1.0, k=1e5), batch=1)
    np.testing.assert_allclose(whole.memory_s, few.roofline_s, err_msg="a sum is divided")


def maps(*middle: Operator) -> OperatorGraph:
    """A convolution, some operators on its result, and a convolution of that."""
    shape = (1, 64, 14, 14)
    convs = [
        Operator("conv", "aten.conv2d", (shape,), (shape,), 64 * 64 * 9, {"kernel": (3, 3)}, inputs)
        for inputs in ((), (len(middle),))
    ]
    chained = [replace(op, inputs=(place,)) for place, op in enumerate(middle)]
    return OperatorGraph((convs[0], *chained, convs[1]), source="torch_export")


NORM = Operator("layer_norm", "aten.layer_norm", ((1, 14, 14, 64),), ((1, 14, 14, 64),), 128)
COPY = Operator("copy", "aten.clone", ((1, 64, 14, 14),), ((1, 64, 14, 14),))
ADD = Operator("elementwise", "aten.add", ((1, 64, 14, 14),), ((1, 64, 14, 14),))


@pytest.mark.parametrize(
    ("middle", "layout", "last"),
    [
        ((ADD,), "nchw", (0, 0)),
        ((ADD,), "nhwc", (1, 1)),
        ((NORM, ADD), "nchw", (0, 1)),
        ((NORM, COPY, ADD), "nchw", (0, 0)),
        ((COPY,), "nhwc", (1, 1)),  # the weights of the convolution have channels last
    ],
)
def test_a_convolution_behind_a_norm_over_channels_reads_channels_last(middle, layout, last):
    query = replace(ask(graph=maps(*middle)), software=Software(version="2.1.0", layout=layout))
    kernels, _ = labelled_kernels(query)
    rows = KernelRows.of_runs([query], [kernels])
    conv = [KERNEL_KINDS[kind].op_class == "conv" for kind in rows.kind.tolist()]
    assert tuple(column(rows, "channels_last")[conv]) == last


@pytest.mark.parametrize(
    ("before", "layout", "by_pixel"),
    [((), "nchw", True), ((), "nhwc", False), ((NORM,), "nchw", False), ((COPY,), "nhwc", True)],
)
def test_interpolation_has_a_thread_for_each_pixel_of_channels_first(before, layout, by_pixel):
    """28 x 28 pixels are two blocks of 512 threads, whatever the number of images and channels."""
    grown = Operator("resize", "aten.upsample_bilinear2d", ((1, 64, 14, 14),), ((1, 64, 28, 28),))
    query = replace(
        ask(graph=maps(*before, grown)), software=Software(version="2.1.0", layout=layout)
    )
    rows = KernelRows.of([query])
    own = rows.take(rows.kind == KERNEL_CODE["resize"])
    by_blocks = own.roofline_s * GPU.bandwidth_gbs / (2 * BYTES_PER_CYCLE)
    np.testing.assert_allclose(own.memory_s, by_blocks if by_pixel else own.roofline_s)


@pytest.mark.parametrize("precision", ["fp16", "amp"])
@pytest.mark.parametrize("optimizer", OPTIMIZER_PASSES)
def test_an_optimizer_reads_and_writes_numbers_of_every_weight(optimizer, precision) -> None:
    """SGD reads a weight and its gradient and writes it: three; a moment is read and written."""
    numbers = {"none": 0, "sgd": 3, "momentum": 5, "adam": 7, "adamw": 7}
    training = TrainingSetup(optimizer=optimizer)
    steps = [
        of_role(KernelRows.of([replace(ask(), workload=network)]), OPTIMIZER)
        for network in (
            Network(GRAPH, batch, precision, phase="training", training=training)
            for batch in (8, 64)
        )
    ]
    moved = [float((rows.memory_s * rows.count).sum()) * GPU.bandwidth_gbs * 1e9 for rows in steps]
    assert moved[0] == moved[1], "the batch size does not matter"
    weights, element = 6 * WIDTH * INNER, 4 if precision == "amp" else 2
    passes = numbers.get(optimizer, OPTIMIZER_PASSES[optimizer])
    assert moved[0] == pytest.approx(passes * weights * element)
    assert steps[0].compute_s.sum() == 0.0


def test_without_a_set_up_a_step_is_that_of_adamw() -> None:
    plain, adamw = (KernelRows.of([query]) for query in (step(), step(optimizer="adamw")))
    np.testing.assert_array_equal(plain.features, adamw.features)


def test_a_graph_with_its_backward_pass_gets_no_other_one() -> None:
    traced = replace(GRAPH, training=True)
    roles = KernelRows.of([ask(graph=traced, phase="training")]).role
    assert set(roles) == {FORWARD}
    assert set(KernelRows.of([ask()]).role) == {FORWARD}


def test_accumulation_runs_as_many_smaller_passes_and_one_update() -> None:
    whole, parts = (KernelRows.of([q]) for q in (step(64), step(64, accumulation=4)))
    small = KernelRows.of([step(16)])
    for role in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD):
        own, one = of_role(parts, role), of_role(small, role)
        np.testing.assert_array_equal(own.count, 4 * one.count)
        np.testing.assert_allclose(own.memory_s, one.memory_s)
    np.testing.assert_array_equal(of_role(parts, OPTIMIZER).count, of_role(whole, OPTIMIZER).count)


def test_blocks_that_are_recomputed_run_forward_twice() -> None:
    plain, again = (KernelRows.of([q]) for q in (step(), step(checkpoint_blocks=True)))
    for role, factor in ((FORWARD, 2.0), (INPUT_GRADIENT, 1.0), (BACKWARD, 1.0)):
        assert of_role(again, role).count.sum() == factor * of_role(plain, role).count.sum()


ADAPTER = "adapter of aten.mm"
LINEAR: LoraTargets = "all_linear"


def test_adapters_move_activations_once_and_leave_the_weights_without_gradients() -> None:
    rank = 8
    [plain], [adapted] = (
        runs_kernels([step(**setup)]) for setup in ({}, {"lora_rank": rank, "lora_targets": LINEAR})
    )
    layers = len(adapted_layers(GRAPH, LINEAR))
    assert layers in (5, 6)

    def activations(rows: RunKernels, role: int) -> float:
        own = rows.role == role
        return float((rows.traffic * rows.count)[own].sum())

    thin = 2.0 * TOKENS * (WIDTH + INNER + 2 * rank) * layers
    first = 2.0 * TOKENS * (WIDTH + INNER)  # nothing before it is trained
    for role in (INPUT_GRADIENT, WEIGHT_GRADIENT):
        weights = 0.0 if role == WEIGHT_GRADIENT else activations(plain, role) - first
        assert activations(adapted, role) - weights == pytest.approx(thin)
    more = activations(adapted, FORWARD) - activations(plain, FORWARD)
    sums = more - thin
    narrow, wide = (3.0 * 2.0 * TOKENS * size * layers for size in (WIDTH, INNER))
    assert narrow < sums < wide
    assert not IS_PRODUCT[adapted.kind[adapted.role == WEIGHT_GRADIENT]].any()
    assert OPTIMIZER not in adapted.role


def test_the_backward_pass_ends_at_the_first_adapter() -> None:
    """That of linear layers behind a convolution: so do labels and the roofline bound."""
    graph = maps()
    conv = len(graph) - 1
    outputs = graph.operators[conv].output_shapes[0]
    flat = Operator("reduce", "aten.mean", (outputs,), ((1, outputs[1]),), 0, {}, (conv,))
    dense = [
        Operator("linear", "aten.mm", ((1, outputs[1]),), ((1, outputs[1]),), 4096, {}, (at,))
        for at in (conv + 1, conv + 2)
    ]
    graph = replace(graph, operators=(*graph.operators, flat, *dense))
    adapted, whole = (
        replace(own, workload=replace(own.network, graph=graph))
        for own in (step(lora_rank=4), step())
    )
    kernels, labels = labelled_kernels(adapted)
    later = [label for label in labels if label.startswith("gradient of")]
    assert len(kernels) == len(labels) and len(later) == 1 and "aten.mm" in later[0]
    forward = query_table(ask(graph=graph).network).flops.sum()
    last = 2.0 * 8 * outputs[1] ** 2
    assert query_table(adapted.network).flops.sum() == pytest.approx(forward + last)
    assert query_table(whole.network).flops.sum() > 2.9 * forward


def test_weights_in_four_bits_are_converted_in_every_pass_that_reads_them() -> None:
    setups = ({}, {"frozen_weights": "nf4"}, {"frozen_weights": "fp16"})
    plain, four, half = (
        sum(float((own.weights * own.count).sum()) for own in runs_kernels([query]))
        for query in (step(lora_rank=8, checkpoint_blocks=True, **setup) for setup in setups)
    )
    read_and_written = 6 * WIDTH * INNER * (FORMATS["nf4"].bytes + 2.0)
    passes = 3  # forward, again, and the gradient of the input
    assert four - plain == pytest.approx(DEQUANTIZATION_PASSES * passes * read_and_written)
    assert half == plain


def test_arithmetic_that_is_fixed_does_not_grow_with_the_batch() -> None:
    part = product(64, 128, 256, fixed_work=1e6)
    fast_memory = GPU.model_copy(update={"memory_bandwidth_gbs": 1e9})
    one, two = (by_hand(part, batch=b, device=fast_memory).roofline_s[0] for b in (10, 20))
    assert (2 * one - two) * 100e12 == pytest.approx(1e6, rel=1e-6)


def test_rows_of_a_batched_product_stay_and_their_number_grows() -> None:
    """`m` of a sample counts the rows of all twelve heads."""
    heads = product(12 * 64, 64, 32, "bmm/1/1", groups=12.0)
    grouped = product(64, 64, 32, "grouped_conv/1/1", groups=12.0)
    for batch in (1, 8):
        rows = by_hand(heads, grouped, batch=batch)
        np.testing.assert_allclose(np.exp(column(rows, "log_m")), [64, 64 * batch], rtol=1e-5)
        np.testing.assert_allclose(np.exp(column(rows, "log_groups")), [12 * batch, 12], rtol=1e-5)


def tiled(m: float, n: float, k: float, units: float, groups: float = 1.0) -> float:
    return float(_tiled(*(np.array([x]) for x in (m, n, k, groups, units)))[0])


def test_fewer_tiles_than_units_leave_units_idle_unless_the_inner_dimension_is_split() -> None:
    """Tiles of 32 x 32 give sixteen of a hundred units work."""
    assert tiled(128, 128, 64, units=100) == pytest.approx(100 / 16)
    assert tiled(128, 128, 4 * 512, units=100) == pytest.approx(100 / 64)
    assert tiled(128, 128, 1e6, units=100) == 1.0
    assert tiled(128, 128, 64, units=100, groups=4) == pytest.approx(100 / 64)


def test_bounds_are_the_figures_of_the_chip() -> None:
    """100 TFLOP/s in fp16, 20 without matrix units, 1 TB/s."""
    big = product(4096, 4096, 4096)
    rows = by_hand(big, big._replace(tensor=False), launch("relu", 1e9))
    work = 2.0 * 4096**3
    np.testing.assert_allclose(rows.roofline_s, [work / 100e12, work / 20e12, 1e-3])
    assert (rows.compute_s[:2] >= rows.roofline_s[:2]).all()
    assert rows.compute_s[2] == 0.0
    np.testing.assert_allclose(rows.memory_s[2], 1e-3)


def test_convolutions_in_fp32_run_on_tf32_units_where_there_are_any() -> None:
    device = GPU.model_copy(update={"peak_tflops": GPU.peak_tflops | {"tf32": 50.0 / 0.75}})
    parts = (product(4096, 4096, 4096, "conv/1/1/1"), product(4096, 4096, 4096))
    kernels = RunKernels.of(Kernels.of(parts, 1.0))
    rows = KernelRows.of_runs([ask(1, device=device, precision="fp32")], [kernels])
    np.testing.assert_allclose(rows.roofline_s, 2.0 * 4096**3 / np.array([50e12, 20e12]))


def test_an_operator_alone_has_the_kernel_that_it_has_in_a_network() -> None:
    op = GRAPH.operators[0]
    alone = KernelRows.of([Query(Kernel(op, "fp16"), GPU, EAGER)])
    inside = KernelRows.of([ask(1)])
    same = column(inside, "log_n") == column(alone, "log_n")
    twin = inside.take(same & (inside.kind == alone.kind))
    np.testing.assert_array_equal(twin.features, alone.features)


def queries_of(count: int) -> list[Query]:
    return [ask(graph=layers(depth), batch=3) for depth in range(1, count + 1)]


def test_many_graphs_at_once_have_the_kernels_of_each_alone() -> None:
    queries = [*queries_of(FEW_GRAPHS + 2), step()]
    together = runs_kernels(queries)
    for place in (0, 7, FEW_GRAPHS + 1, FEW_GRAPHS + 2):
        in_order, _ = labelled_kernels(queries[place])
        np.testing.assert_array_equal(sorted_rows(together[place]), sorted_rows(in_order.merged()))


@pytest.mark.parametrize(
    "query",
    [ask(), step(), step(lora_rank=4), step(lora_rank=4, frozen_weights="nf4")],
    ids=["run", "step", "lora", "qlora"],
)
def test_every_kernel_has_a_label_and_kernels_with_labels_add_up(query: Query) -> None:
    kernels, labels = labelled_kernels(query)
    assert len(kernels) == len(labels)
    np.testing.assert_array_equal(
        sorted_rows(kernels.merged()), sorted_rows(*runs_kernels([query]))
    )
    for role, start in (
        (INPUT_GRADIENT, ("gradient of the input of aten.mm", ADAPTER)),
        (WEIGHT_GRADIENT, ("gradient of the second operand of aten.mm", ADAPTER)),
        (BACKWARD, ("gradient of aten.gelu", LOSS)),
        (OPTIMIZER, OPTIMIZER_STEP),
    ):
        own = [label for label, r in zip(labels, kernels.role, strict=True) if r == role]
        assert all(label.startswith(start) for label in own), own
    columns = {FORWARD: kernels.n, INPUT_GRADIENT: kernels.k, WEIGHT_GRADIENT: kernels.n}
    for role, own in columns.items():
        whole = ~np.array([label.startswith(ADAPTER) for label in labels])
        products = (kernels.role == role) & IS_PRODUCT[kernels.kind] & whole
        for row in np.flatnonzero(products).tolist():
            assert labels[row].endswith(f"-> 1x{TOKENS}x{own[row]:.0f}")


@pytest.mark.parametrize("setup", [{}, {"lora_rank": 4}], ids=["whole", "lora"])
def test_every_kernel_of_attention_has_a_label(setup) -> None:
    heads = (1, 12, TOKENS, 64)
    attention = Operator("attention", "aten.sdpa", (heads,) * 3, (heads,), 0, {}, (2, 2, 2))
    graph = OperatorGraph((*GRAPH.operators[:3], attention, attention), source="torch_export")
    kernels, labels = labelled_kernels(
        replace(step(**setup), workload=replace(step(**setup).network, graph=graph))
    )
    assert len(labels) == len(kernels)


def backward_of(part: Launch, **setup: object) -> RunKernels:
    """The kernels that a training step adds to those of this launch."""
    kernels = RunKernels.of(Kernels.of((part,), 1.0))
    step_of = TrainingStep.of(TrainingSetup(**setup))  # type: ignore[arg-type]
    added = kernels.with_backward(step_of, _Trained.of(GRAPH, step_of), 2.0)
    return added.take((added.kind == kernels.kind[0]) & (added.role != FORWARD))


@pytest.mark.parametrize("kind", ["attention/1/0/0", "bmm/1/1"])
@pytest.mark.parametrize("setup", [{}, {"lora_rank": 8}], ids=["whole", "lora"])
def test_products_of_activations_have_both_gradients_even_if_weights_are_frozen(
    kind, setup
) -> None:
    part = product(12 * 64, 64, 32, kind, groups=12.0)
    assert backward_of(part, **setup).work.sum() == pytest.approx(2 * part.work)
