"""Graphs and operators of dataset tables: published costs, real shapes, nothing lost."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from forerun.features.operators.table import OperatorTable
from forerun.features.tables.neusight import (
    bmm_kernel,
    conv_kernel,
    linear_kernel,
    neusight_graphs,
    neusight_kernels,
    vector_kernel,
)
from forerun.features.tables.timm_bench import timm_graphs
from forerun.features.tables.torch_op_energy import module_kernel, torch_op_energy_kernels

PRODUCTS = {"conv", "conv_transpose", "linear", "matmul", "attention"}


def product_flops(graph):
    """Two FLOPs a multiply-add of products and convolutions, softmax inside attention left out."""
    table = OperatorTable.of_graph(graph)
    softmax = 5 * table.batch * table.m * table.n * (table.rows > 0)
    product = np.array([op.kind in PRODUCTS for op in graph.operators])
    return float(((table.flops - softmax) * table.repeat)[product].sum())


@pytest.fixture(scope="module")
def timm(reference):
    """Every fifth graph of the reference bundle, with its rows."""
    frame = pd.read_parquet(reference / "timm_bench" / "graphs.parquet")
    keys = frame[["model", "img_size"]].drop_duplicates().iloc[::5]
    rows = frame.merge(keys, on=["model", "img_size"])
    return rows, timm_graphs(rows)


@pytest.mark.reference
def test_timm_flops_are_those_of_the_table(timm):
    rows, graphs = timm
    table = rows.groupby(["model", "img_size"])["flops"].sum()
    assert len(graphs) == len(table) > 250
    for key, graph in graphs.items():
        assert product_flops(graph) == pytest.approx(table[key], rel=1e-9)


@pytest.mark.reference
def test_timm_costs_agree_with_published_gmacs_and_parameters(timm, reference):
    bench = pd.read_parquet(reference / "timm_bench" / "bench.parquet")
    published = bench.groupby(["model", "img_size"])[["gmacs", "params_m"]].agg(["min", "max"])
    costs, weights = [], []
    for key, graph in timm[1].items():
        if key in published.index:
            row = published.loc[key]
            macs, held = product_flops(graph) / 2e9, graph.parameter_elements / 1e6
            costs.append(0.95 * row["gmacs", "min"] <= macs <= 1.05 * row["gmacs", "max"])
            weights.append(0.95 * row["params_m", "min"] <= held <= 1.05 * row["params_m", "max"])
    assert np.mean(costs) >= 0.94
    assert np.mean(weights) >= 0.94


@pytest.mark.reference
def test_timm_graphs_are_whole(timm):
    for graph in timm[1].values():
        assert not graph.unknown
        assert graph.operators[-1].batched
        assert all(i < n for n, op in enumerate(graph.operators) for i in op.inputs)


@pytest.mark.reference
def test_decomposed_attention_of_timm_becomes_one_operator(timm):
    rows, graphs = timm
    kinds = Counter(op.kind for graph in graphs.values() for op in graph.operators)
    assert kinds["attention"] == (rows["op"] == "_safe_softmax").sum()


@pytest.mark.reference
def test_neusight_kernels_keep_the_dimensions_of_their_rows(reference):
    rows = pd.read_parquet(reference / "neusight" / "ops.parquet").iloc[::997]
    table = OperatorTable.of(neusight_kernels(rows))
    gemm = rows["op"].isin(["linear", "bmm"]).to_numpy()
    for name in ("batch", "m", "n", "k"):
        wanted = rows.loc[gemm, name].to_numpy(dtype=np.float64)
        np.testing.assert_array_equal(getattr(table, name)[gemm], wanted, err_msg=name)
    flat = ~gemm & (rows["op"] != "conv").to_numpy()
    elements = rows.loc[flat, "batch"].astype("float64") * rows.loc[flat, "h"].astype("float64")
    np.testing.assert_array_equal(table.out_elements[flat], elements.to_numpy())
    two = rows.loc[flat, "op"].isin(["add", "mul", "pow", "div"])
    np.testing.assert_array_equal(table.operands[flat], np.where(two, 2, 1))


@pytest.mark.reference
def test_neusight_graphs_have_the_flops_of_their_architecture(reference):
    graphs = neusight_graphs(pd.read_parquet(reference / "neusight" / "opgraphs.parquet"))
    # 24 layers of 12 width^2 weights and two products with 512 keys, for 8 x 512 tokens.
    forward = product_flops(graphs["bert_large", "inference", 512, 8, ""])
    assert forward == pytest.approx(2 * 24 * (12 * 1024**2 + 2 * 512 * 1024) * 8 * 512, rel=0.02)
    training = product_flops(graphs["gpt2_large", "training", 1024, 4, ""])
    inference = product_flops(graphs["gpt2_large", "inference", 1024, 4, ""])
    assert training == pytest.approx(3 * inference, rel=0.01)


@pytest.mark.reference
def test_collectives_of_neusight_are_reported_as_unknown(reference):
    graphs = neusight_graphs(pd.read_parquet(reference / "neusight" / "opgraphs.parquet"))
    assert graphs["gpt2_large", "training", 1024, 4, "tp4"].unknown == {"ALLREDUCE": 6}


@pytest.mark.reference
def test_module_representations_are_all_understood_but_random_depth(reference):
    rows = pd.read_parquet(reference / "torch_op_energy" / "ops.parquet")
    kernels = torch_op_energy_kernels(rows)
    left = {op for op, kernel in zip(rows["op"], kernels, strict=True) if kernel is None}
    assert left == {"StochasticDepth"}


@pytest.mark.parametrize(
    ("layer", "shape", "out", "weights"),
    [
        (
            "Conv2d(8, 16, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), groups=4)",
            "(2, 8, 15, 15)",
            (2, 16, 8, 8),
            16 * 2 * 9 + 16,
        ),
        ("Linear(in_features=8, out_features=4, bias=False)", "(3, 5, 8)", (3, 5, 4), 32),
        ("BatchNorm2d(8, eps=1e-05)", "(2, 8, 4, 4)", (2, 8, 4, 4), 32),
        ("AdaptiveAvgPool2d(output_size=1)", "(1, 4, 6, 6)", (1, 4, 1, 1), 0),
    ],
)
def test_a_module_is_read_from_its_representation(layer, shape, out, weights):
    kernel = module_kernel(layer, shape)
    assert kernel.output_shapes == (out,)
    assert kernel.parameter_elements == weights


def test_windows_rounded_up_are_torchs():
    torch = pytest.importorskip("torch")
    for size in range(3, 12):
        for stride, padding in ((1, 0), (2, 0), (2, 1), (3, 1)):
            pool = torch.nn.MaxPool2d(3, stride, padding, ceil_mode=True)
            text = f"MaxPool2d(kernel_size=3, stride={stride}, padding={padding}, ceil_mode=True)"
            out = pool(torch.zeros(1, 1, size, size)).shape
            assert module_kernel(text, f"(1, 1, {size}, {size})").output_shapes == (tuple(out),)


@pytest.mark.parametrize("text", ["__import__('os').getcwd()", "Linear(", "f(open('x'))", "3"])
def test_a_representation_is_never_run(text):
    assert module_kernel(text, "(1, 2)") is None


def test_kernels_by_hand():
    assert linear_kernel(4, 8, 16).parameter_elements == 8 * 16 + 16
    assert bmm_kernel(2, 3, 4, 5).output_shapes == ((2, 3, 5),)
    assert conv_kernel(1, 3, 8, 3, 10, 2, 1).output_shapes == ((1, 8, 5, 5),)
    assert len(vector_kernel("add", 4, 4).input_shapes) == 2
    assert len(vector_kernel("addu", 4, 4).input_shapes) == 1
