"""Operators run with the shapes that they say, through torch and through onnxruntime alike."""

import pytest

from forerun.data.collectors.workloads.onnx_nodes import model_of
from forerun.data.collectors.workloads.operators import (
    NotRunnable,
    attention,
    batch_norm,
    conv,
    dense_sweep,
    elements,
    embedding,
    linear,
    operator_sweep,
    padding_of,
    pool,
    product,
    rows,
    touched,
    transpose,
)
from forerun.data.graph import Operator

SMALL = (
    linear(8, 16, 32),
    product(2, 8, 16, 4),
    conv(2, 8, 16, 9, 3, stride=2),
    conv(1, 8, 8, 7, 3, groups=8),
    rows("softmax", 4, 8),
    rows("layer_norm", 4, 8),
    rows("reduce", 4, 8),
    *(elements(function, 2048) for function in ("add", "mul", "relu", "gelu")),
    embedding(16, 32, 8),
    transpose(8, 16),
    attention(1, 2, 8, 4),
    batch_norm(2, 4, 5),
    pool(1, 4, 8, 3, 2),
    Operator("pool", "pool", ((1, 4, 8, 8),), ((1, 4, 4, 4),), 0, {"kernel": 2, "stride": 2}),
)


@pytest.mark.parametrize("operator", SMALL, ids=lambda op: op.name)
def test_onnxruntime_gives_the_output_that_the_operator_says(operator):
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(model_of(operator), providers=["CPUExecutionProvider"])
    whole = operator.kind == "embedding"
    feeds = {
        node.name: np.zeros(node.shape, np.int64 if whole else np.float32)
        for node in session.get_inputs()
    }
    (output,) = session.run(None, feeds)
    assert output.shape == operator.output_shapes[0]


@pytest.mark.parametrize("operator", SMALL, ids=lambda op: op.name)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_torch_gives_the_output_that_the_operator_says(operator, precision):
    torch = pytest.importorskip("torch")
    from forerun.data.collectors.workloads.torch_run import operator_run

    output = operator_run(operator, precision, "cpu")()
    assert tuple(output.shape) == operator.output_shapes[0]
    wanted = torch.float32 if precision == "fp32" else torch.bfloat16
    assert output.dtype == wanted


def test_every_operator_of_the_sweep_can_be_run_by_both():
    pytest.importorskip("torch")
    from forerun.data.collectors.workloads.torch_run import operator_run

    for op in operator_sweep(8):
        if op.kind == "conv":
            padding_of(op)
        if touched(op) < 2**17:
            operator_run(op, "fp32", "cpu")()
            model_of(op)


def test_every_operator_of_a_dense_sweep_can_be_run_by_torch():
    pytest.importorskip("torch")
    from forerun.data.collectors.workloads.torch_run import operator_run

    ran = set()
    for op in dense_sweep(8):
        if op.kind in ("conv", "pool"):
            padding_of(op)
        if touched(op) < 2**17:
            made = operator_run(op, "fp32", "cpu")()
            assert tuple(made.shape) == op.output_shapes[0]
            assert not made.requires_grad
            ran.add(op.attributes.get("function", op.kind))
    assert {"sigmoid", "tanh", "silu", "exp", "linear", "conv", "softmax"} <= ran


def test_what_cannot_be_run_says_so():
    torch = pytest.importorskip("torch")
    from forerun.data.collectors.workloads.torch_run import operator_run

    assert torch
    with pytest.raises(NotRunnable, match="recurrent"):
        model_of(Operator("recurrent", "lstm", ((1, 2, 3),), ((1, 2, 3),)))
    with pytest.raises(NotRunnable, match="fp8"):
        operator_run(rows("softmax", 4, 8), "fp8", "cpu")
    with pytest.raises(NotRunnable, match="padding"):
        padding_of(Operator("conv", "odd", ((1, 1, 8, 8),), ((1, 1, 2, 8),), 9, {"kernel": 3}))
