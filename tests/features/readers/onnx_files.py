"""ONNX files made of nodes, and the graphs that are read from them."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from forerun.features.readers import read_graph

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
untyped = helper.make_empty_tensor_value_info
"""A tensor of which a graph says only the name."""


def value(name, shape, elem_type=FLOAT):
    return helper.make_tensor_value_info(name, elem_type, shape)


def stored(name, array):
    """A weight or another constant of a graph."""
    return numpy_helper.from_array(np.asarray(array), name)


def onnx_file(nodes, weights=(), shape=("N", 8), *, inputs=(), results=("y",), functions=()):
    """The bytes of a model with these results, which reads `x` where no inputs are given."""
    graph = helper.make_graph(
        nodes, "g", inputs or [value("x", shape)], [untyped(name) for name in results], weights
    )
    domains = {"": 17, **{one.domain: 1 for one in (*nodes, *functions) if one.domain}}
    opsets = [helper.make_opsetid(name, version) for name, version in domains.items()]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    return model.SerializeToString()


def read(nodes, weights=(), shape=("N", 8), *, inputs=(), **options):
    """The graph of such a file."""
    return read_graph(onnx_file(nodes, weights, shape, inputs=inputs), **options)
