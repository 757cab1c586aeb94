"""Recurrent layers: one law of dependent steps for files and traces, judged on GPUs held out."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from scipy.optimize import minimize
from scipy.special import huber

import forerun
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.operators.costs import operator_cost
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph
from forerun.models.kernel_experts.recurrent_law import HELD_OUT_REACH, LAW, StepLaw
from tests.devices import CATALOG

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(width, steps, batch, cell="LSTM", directions=1):
    """An ONNX file of one recurrent layer as wide as its input."""
    rows = GATES[cell] * width
    shapes = {
        "w": (directions, rows, width),
        "r": (directions, rows, width),
        "b": (directions, 2 * rows),
    }
    stored = [
        TensorProto(
            name=name, dims=dims, data_type=TensorProto.FLOAT,
            data_location=TensorProto.EXTERNAL,
        )
        for name, dims in shapes.items()
    ]  # fmt: skip
    attributes = {"hidden_size": width, "direction": "bidirectional"} if directions > 1 else {}
    made = helper.make_node(cell, ["x", *shapes], ["y"], **{"hidden_size": width, **attributes})
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, width])],
        [helper.make_empty_tensor_value_info("y")],
        stored,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset).SerializeToString()


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
def test_a_file_and_a_traced_layer_cost_the_same(cell, directions):
    torch = pytest.importorskip("torch")
    from forerun.features.readers.torch_trace import trace_module

    made = getattr(torch.nn, cell)(64, 64, batch_first=True, bidirectional=directions == 2)
    traced = trace_module(made, (torch.zeros(4, 9, 64),), {}, batch_size=4)
    read = read_graph(layer(64, 9, 4, cell, directions))
    (one,), (other,) = (
        [op for op in graph.operators if op.kind == "recurrent"] for graph in (traced, read)
    )
    expected, found = operator_cost(one), operator_cost(other)
    assert found.steps == 9 * directions
    assert found._replace(in_elements=0, out_elements=0) == expected._replace(
        in_elements=0, out_elements=0
    )


@pytest.mark.parametrize(
    ("width", "steps", "batch", "measured_ms"),
    [(256, 150, 16, 4.54), (1536, 50, 8, 5.10), (1024, 25, 16, 1.92), (512, 25, 16, 1.10)],
)
def test_a_layer_takes_what_deepbench_measured_on_a_v100(width, steps, batch, measured_ms):
    """The table is of layers that skip the product of their input, which takes a few percent."""
    answer = forerun.predict(layer(width, steps, batch), device="v100-sxm2-16gb")
    latency = answer.latency_ms
    assert latency.value == pytest.approx(measured_ms, rel=0.25)
    assert latency.low < measured_ms < latency.high
    assert latency.grade == "B"
    assert f"{steps} sequential steps" in latency.grade_reason


def test_the_rest_of_a_network_is_answered_as_without_the_layer():
    """A classifier behind a recurrent layer: both keep their times, but for corrections."""
    linear = Operator("linear", "aten.linear", ((4096, 1024),), ((4096, 8192),), 2**23)
    state = (1, 16, 1024)
    recurrent = Operator("recurrent", "aten.lstm", ((256, 16, 1024), state), (state,), 2**23)
    both = OperatorGraph((recurrent, linear), 16)
    alone = OperatorGraph((linear,), 16)
    parts = [forerun.predict(g, device="v100-sxm2-16gb", precision="fp16") for g in (both, alone)]
    found, expected = (answer.breakdown_ms for answer in parts)
    assert found["linear"] == pytest.approx(expected["linear"], rel=0.03)
    law = LAW.seconds(OperatorTable.of([recurrent]), CATALOG.get("v100-sxm2-16gb"), "fp16")
    assert found["recurrent"] == pytest.approx(1e3 * law[0], rel=0.03)


def test_steps_add_up_and_a_larger_batch_takes_no_less():
    device = CATALOG.get("a100-sxm-80gb")

    def seconds(steps, batch):
        op = Operator(
            "recurrent",
            "LSTM",
            ((steps, batch, 512), (1, batch, 512)),
            ((steps, batch, 512),),
            2**21,
        )
        return LAW.seconds(OperatorTable.of([op]), device, "fp16")[0]

    assert seconds(200, 8) == pytest.approx(2 * seconds(100, 8), rel=0.02)
    times = [seconds(100, batch) for batch in (1, 8, 64, 512)]
    assert times == sorted(times)
    assert times[-1] > 1.5 * times[0]


def fitted(parts):
    """The law with the least Huber loss of log times; every part has equal weight."""
    prior = np.log([3e7, 1.0, 1.0])

    def loss(logs):
        law = StepLaw(*np.exp(logs))
        errors = [np.log(law.seconds(*part) / measured) for part, measured in parts]
        return 1e-3 * np.square(logs - prior).sum() + np.mean(
            [huber(0.2, own).mean() / 0.2 for own in errors]
        )

    return StepLaw(*np.exp(minimize(loss, prior, method="L-BFGS-B").x))


@pytest.mark.slow
def test_the_law_holds_on_a_gpu_that_was_left_out(reference):
    """Each GPU of deepbench in turn; the interval covers the stated share of its layers."""
    import pandas as pd

    from forerun.features.tables.deepbench import deepbench_formats, deepbench_recurrent

    table = pd.read_csv(reference / "deepbench" / "rnn.csv")
    table = table[table["fwd_ms"].notna()].reset_index(drop=True)
    rows: dict = {}
    for op, precision, name, ms in zip(
        deepbench_recurrent(table), deepbench_formats(table), table["device"], table["fwd_ms"],
        strict=True,
    ):  # fmt: skip
        if op is not None and precision is not None:
            rows.setdefault((CATALOG.get(name), precision), []).append((op, ms / 1e3))
    parts = [
        ((OperatorTable.of([op for op, _ in own]), *key), np.array([s for _, s in own]))
        for key, own in rows.items()
    ]
    errors = []
    for out in {device.name for device, _ in rows}:
        kept = [part for part in parts if part[0][1].name != out]
        law = fitted(kept)
        own = [(part, s) for part, s in parts if part[1].name == out]
        errors.append(np.concatenate([np.log(law.seconds(*part) / s) for part, s in own]))
    medians = [float(np.median(np.abs(np.expm1(own)))) for own in errors]
    covered = [float(np.mean(np.abs(own) < HELD_OUT_REACH)) for own in errors]
    assert np.median(medians) < 0.27
    assert max(medians) < 0.5
    assert np.mean(covered) > 0.88
