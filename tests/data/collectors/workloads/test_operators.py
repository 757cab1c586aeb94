"""The grid of operators: sound, named apart, log-spaced, and around the reference operators.

Reference operators: of every common class, small to large, and what they say they are.

Operators run with the shapes that they say, through torch and through onnxruntime alike.
"""

import pytest

from forerun.data.collectors.workloads.executors import model_of
from forerun.data.collectors.workloads.operators import (
    NotRunnable,
    attention,
    batch_norm,
    conv,
    dense_sweep,
    elements,
    embedding,
    flops,
    linear,
    operator_sweep,
    padding_of,
    pool,
    product,
    reference_operators,
    rows,
    spaced,
    touched,
    transpose,
)
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.operators.costs import operator_cost
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE, KINDS
from forerun.features.readers.operator_json import graph_of
from forerun.models.baselines.roofline import Roofline


@pytest.fixture(scope="module")
def operators():
    return operator_sweep(4)


@pytest.fixture
def operator_run():
    pytest.importorskip("torch")
    from forerun.data.collectors.workloads.torch_run import operator_run

    return operator_run


@pytest.mark.parametrize("sweep", [operator_sweep(4), dense_sweep(8)], ids=["sweep", "dense"])
def test_each_is_sound_and_has_a_name_of_its_own(sweep):
    assert len({op.name for op in sweep}) == len(sweep)
    for op in sweep:
        assert graph_of(OperatorGraph((op,)).to_json()).operators == (op,)


def test_it_covers_what_networks_are_made_of_and_the_reference_operators(operators):
    kinds = {op.kind for op in operators}
    assert {"linear", "matmul", "conv", "attention", "elementwise"} <= kinds
    assert {"softmax", "layer_norm", "batch_norm", "reduce", "pool", "embedding", "copy"} <= kinds
    assert {op.name for op in reference_operators()} <= {op.name for op in operators}


def test_a_dense_sweep_holds_the_sweep():
    assert dense_sweep(8)[: len(operator_sweep(8))] == operator_sweep(8)
    assert all(touched(op) <= 2**20 for op in dense_sweep(8, largest=2**20))


def test_guessed_work_of_products_is_that_of_the_cost_model():
    for op in dense_sweep(4):
        if IS_GEMM[KIND_CODE[op.kind]]:
            assert flops(op) == pytest.approx(operator_cost(op).flops, rel=0.1)


def test_a_finer_step_gives_more_and_a_limit_gives_less(operators):
    assert len(operator_sweep(8)) < len(operators) < len(operator_sweep(2))
    small = operator_sweep(4, largest=2**20)
    assert small
    assert all(touched(op) <= 2**20 for op in small)


def test_sizes_are_spaced_by_a_factor_and_end_at_the_highest():
    assert spaced(1, 100, 4) == (1, 4, 16, 64, 100)
    with pytest.raises(ValueError, match="factor"):
        operator_sweep(1)


def test_there_are_enough_of_them():
    assert len(reference_operators()) >= 15


def test_they_cover_the_classes_that_networks_spend_their_time_in():
    class_of = {kind.name: kind.op_class for kind in KINDS}
    classes = {class_of[op.kind] for op in reference_operators()}
    assert {"linear", "bmm", "conv", "softmax", "norm", "elementwise"} <= classes


def test_they_span_three_orders_of_magnitude_on_one_device():
    device = DeviceCatalog.load().get("l4")
    queries = [Query(Kernel(op), device) for op in reference_operators()]
    times = Roofline().predict(queries).values["latency_ms"]
    assert times.max() / times.min() > 1_000


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
def test_torch_gives_the_output_that_the_operator_says(operator, precision, operator_run):
    output = operator_run(operator, precision, "cpu")()
    assert tuple(output.shape) == operator.output_shapes[0]
    assert str(output.dtype) == {"fp32": "torch.float32", "bf16": "torch.bfloat16"}[precision]


def test_every_operator_of_the_sweeps_can_be_run(operator_run):
    """All by torch, those of the common sweep, with which the dense one begins, by onnxruntime."""
    for op in operator_sweep(8):
        if touched(op) < 2**17:
            model_of(op)
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


def test_what_cannot_be_run_says_so(operator_run):
    with pytest.raises(NotRunnable, match="recurrent"):
        model_of(Operator("recurrent", "lstm", ((1, 2, 3),), ((1, 2, 3),)))
    with pytest.raises(NotRunnable, match="fp8"):
        operator_run(rows("softmax", 4, 8), "fp8", "cpu")
    with pytest.raises(NotRunnable, match="padding"):
        padding_of(Operator("conv", "odd", ((1, 1, 8, 8),), ((1, 1, 2, 8),), 9, {"kernel": 3}))
