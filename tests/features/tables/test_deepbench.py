"""Kernels of deepbench have the shapes and the arithmetic that the workbooks report."""

import pandas as pd
import pytest

from forerun.features.operators.costs import operator_cost
from forerun.features.tables.deepbench import (
    deepbench_convolutions,
    deepbench_formats,
    deepbench_products,
    deepbench_recurrent,
    deepbench_software,
)

CONV = pd.DataFrame(
    {
        **{"w": [700.0], "h": [161.0], "c": [1.0], "batch": [4], "k": [32.0]},
        **{"r": [5.0], "s": [20.0], "pad_h": [0.0], "pad_w": [0.0]},
        **{"stride_v": [2.0], "stride_h": [2.0]},
    }
)


def gemm(m, n, k, a_t="N", b_t="N"):
    return pd.DataFrame({"m": [m], "n": [n], "k": [k], "a_t": [a_t], "b_t": [b_t]})


def rnn(cell="LSTM", hidden=512.0, batch=16, timesteps=25.0):
    rows = {"cell": cell, "hidden": hidden, "batch": batch, "timesteps": timesteps}
    return pd.DataFrame({name: [value] for name, value in rows.items()})


def test_a_column_major_product_is_a_linear_layer_whose_weight_is_its_first_matrix():
    (operator,) = deepbench_products(gemm(1760.0, 16, 2048.0, a_t="T"))
    assert operator.kind == "linear"
    assert operator.input_shapes == ((16, 2048),)
    assert operator.output_shapes == ((16, 1760),)
    assert operator.parameter_elements == 1760 * 2048
    assert (operator.attributes["transpose_a"], operator.attributes["transpose_b"]) == (True, False)


def test_flops_of_a_product_are_the_workbooks():
    (operator,) = deepbench_products(gemm(1760.0, 16, 1760.0))
    # 0.038 ms at 2.6085 TERAFLOPS, first row of the V100
    assert operator_cost(operator).flops == pytest.approx(0.038e-3 * 2.6085052631578947e12)


def test_a_forward_convolution_has_the_workbooks_output():
    (operator,) = deepbench_convolutions(CONV)
    assert operator.kind == "conv"
    assert operator.output_shapes == ((4, 32, 79, 341),)
    # 0.078 ms at 8.8415 TERAFLOPS, first row of the V100
    assert operator_cost(operator).flops == pytest.approx(0.078e-3 * 8.84151794871795e12)


def test_the_gradient_of_the_input_does_the_same_work_the_other_way():
    (forward,) = deepbench_convolutions(CONV)
    (backward,) = deepbench_convolutions(CONV, "backward_input")
    assert backward.kind == "conv_transpose"
    assert backward.input_shapes == forward.output_shapes
    assert backward.output_shapes == forward.input_shapes
    assert operator_cost(backward).flops == operator_cost(forward).flops


@pytest.mark.parametrize(("cell", "gates"), [("Vanilla", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_reads_its_square_matrices_at_each_step(cell, gates):
    (operator,) = deepbench_recurrent(rnn(cell))
    assert operator.kind == "recurrent"
    assert operator.parameter_elements == gates * 512**2
    assert operator_cost(operator).flops == 2 * gates * 512**2 * 16 * 25


@pytest.mark.parametrize("row", [{"hidden": 100_000.0}, {"timesteps": float("nan")}])
def test_an_all_reduce_row_is_no_layer(row):
    assert deepbench_recurrent(rnn(**row)) == [None]


def test_half_precision_without_tensor_cores_is_no_format():
    table = pd.DataFrame(
        {
            "device": ["V100", "P100", "V100", "1080Ti"],
            "suite": "train",
            "precision": ["fp16_mixed", "fp16_mixed", "fp32", "int8"],
        }
    )
    assert deepbench_formats(table) == ["fp16", None, "fp32", "int8"]


def test_recurrent_layers_of_the_inference_suite_ran_in_single_precision():
    table = rnn().assign(device="1080Ti", suite="inference", precision="int8")
    assert deepbench_formats(table) == ["fp32"]


def test_software_is_the_library_of_the_devices_workbook():
    table = pd.DataFrame({"device": ["M40", "V100", "New"], "suite": "train"})
    found = deepbench_software(table)
    assert [software.cuda for software in found] == ["7.5.18", "10.1.243", None]
    assert {software.framework for software in found} == {"deepbench"}
