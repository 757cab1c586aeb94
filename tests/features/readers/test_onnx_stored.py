"""Weights of ONNX files: what is stored counts, in its own format, and nothing that is computed."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.memory.liveness import inference_requests
from forerun.features.readers import read_graph
from forerun.features.readers.onnx_graph.file import parse
from forerun.models.processors.latency import CpuMemory
from tests.features.readers.onnx_files import FLOAT, node, onnx_file, read, stored


def test_each_format_is_counted_in_its_own_bytes():
    weights = [
        stored("w", np.ones((8, 8), np.float32)),
        stored("unread", np.ones((3, 5), np.float16)),
        helper.make_tensor("four_bits", TensorProto.INT4, [3, 3], np.ones(9, np.int8)),
        stored("q", np.ones((7,), np.int8)),
        stored("index", np.arange(4)),
        stored("scalar", np.float32(1)),
        helper.make_tensor("in_another_file", TensorProto.DOUBLE, [5, 2], np.ones(10)),
    ]
    weights[-1].ClearField("double_data")
    weights[-1].data_location = TensorProto.EXTERNAL
    constant = node("Constant", [], ["c"], value=stored("", np.ones(8, np.float32)))
    nodes = [constant, node("MatMul", ["x", "w"], ["z"]), node("Add", ["z", "c"], ["y"])]
    graph = read(nodes, weights)
    expected = {"float32": 4 * 64 + 4 + 32, "float16": 30, "int4": 5, "int8": 7, "int64": 32}
    expected["float64"] = 80
    assert graph.stored_bytes == expected
    assert graph.parameter_elements == 64 + 15 + 9 + 7 + 8 + 10
    again = read_graph(json.dumps(graph.to_json()).encode())
    assert (again.stored_bytes, again.digest) == (expected, graph.digest)


def test_an_initial_state_and_computed_constants_are_no_weights():
    """A state of zeros, sines of stored numbers, and a buffer that is scattered into."""
    weights = [
        stored("W", np.ones((1, 16, 8), np.float32)),
        stored("R", np.ones((1, 16, 4), np.float32)),
        stored("shape", np.array([1, 1, 4])),
        stored("buffer", np.array([64])),
        stored("places", np.arange(8)),
        stored("phases", np.ones(8, np.float32)),
        stored("steps", np.array([0])),
    ]
    nodes = [
        node("ConstantOfShape", ["shape"], ["state"]),
        node("Unsqueeze", ["x", "steps"], ["sequence"]),
        node("LSTM", ["sequence", "W", "R", "", "", "state", "state"], ["h"], hidden_size=4),
        node("Sin", ["phases"], ["waves"]),
        node("Add", ["x", "waves"], ["a"]),
        node("ConstantOfShape", ["buffer"], ["empty"]),
        node("ScatterElements", ["empty", "places", "waves"], ["scattered"]),
        node("Concat", ["scattered", "scattered"], ["y"], axis=0),
    ]
    graph = read(nodes, weights)
    assert graph.parameter_elements == 16 * 8 + 16 * 4 + 8


def test_a_weight_that_was_left_out_of_the_file_counts_at_its_stored_shape():
    nodes = [node("ConstantOfShape", ["shape"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    assert read(nodes, [stored("shape", [8, 16])]).parameter_elements == 128


def quantised(array):
    """A product with weights of eight bits, and with the same weights as floats."""
    weights = [stored("w", array), stored("z", np.array(0, array.dtype))]
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "zero"]),
        node("MatMulInteger", ["q", "w", "zero", "z"], ["i"]),
        node("Cast", ["i"], ["y"], to=FLOAT),
    ]
    floats = [stored("w", array.astype(np.float32))]
    plain = [node("MatMul", ["x", "w"], ["y"])]
    return read(nodes, weights, ("N", 512)), read(plain, floats, ("N", 512))


@pytest.mark.parametrize("elem_type", [np.int8, np.uint8])
def test_quantised_weights_take_their_own_bytes_in_memory(elem_type):
    narrow, wide = quantised(np.ones((512, 1024), elem_type))
    found = [inference_requests(graph) for graph in (narrow, wide)]
    sizes = [one.peak_parts(one.sizes(1.0))["weights"] for one in found]
    assert sizes == [pytest.approx(512 * 1024, rel=0.001), 4 * 512 * 1024]
    device = DeviceCatalog.load().get("epyc-7763")
    asked = [
        Query(Network(graph, 1, "fp32"), device, Software(runtime="onnxruntime"))
        for graph in (narrow, wide)
    ]
    memory = CpuMemory().predict(asked).values["peak_memory_mib"]
    assert memory[0] < memory[1]


def test_floats_of_fewer_bits_follow_the_precision_of_the_question():
    weights = [stored("w", np.ones((8, 8), np.float16))]
    nodes = [node("Cast", ["w"], ["f"], to=FLOAT), node("MatMul", ["x", "f"], ["y"])]
    graph = read(nodes, weights)
    assert graph.stored_bytes == {"float16": 128}
    assert graph.narrowed(4.0) == 1.0


def trees(leaves, labels):
    ones = [1.0] * leaves
    return node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_values=ones,
        nodes_treeids=[0] * leaves,
        nodes_modes=["LEAF"] * leaves,
        class_weights=ones,
        **labels,
    )


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [1, 2, 3]}, {"classlabels_strings": ["a", "b", "c"]}]
)
def test_a_classifier_gives_a_label_and_a_score_of_each_class(labels):
    nodes = [
        trees(2, labels),
        node("Identity", ["label"], ["kept"]),
        node("Identity", ["scores"], ["named"]),
        node("Neg", ["named"], ["y"]),
    ]
    graph = read(nodes, batch_size=5)
    assert graph.operators[0].output_shapes == ((5,), (5, 3))
    assert graph.operators[-1].output_shapes == ((5, 3),)
    assert not graph.assumptions


def test_trees_are_counted_alike_however_long_their_lists_are():
    """Lists of millions of nodes would be copied at every step; only their lengths are kept."""
    for leaves in (10, 10_000):
        content = onnx_file([trees(leaves, {"classlabels_int64s": [0, 1]})])
        graph = read_graph(content)
        assert graph.stored_bytes == {"float32": 8 * leaves}
        assert graph.parameter_elements == 2 * leaves
    assert parse(content, "trees").ByteSize() < 1000


def test_large_constants_are_not_carried_along():
    constant = node("Constant", [], ["w"], value=stored("", np.ones((8, 4096), np.float32)))
    content = onnx_file([constant, node("MatMul", ["x", "w"], ["y"])])
    assert parse(content, "constants").ByteSize() < 1000
    assert read_graph(content).parameter_elements == 8 * 4096
