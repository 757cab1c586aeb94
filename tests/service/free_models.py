"""Small ONNX files: one with free dimensions, one of an operator without a price."""

from onnx import TensorProto, helper


def free_onnx() -> bytes:
    """A convolution on images of any number and size."""
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, "H", "W"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64, "H", "W"])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 3, 3, 3], [0.0] * 1728)
    node = helper.make_node("Conv", ["images", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", [images], [result], [weight])
    return helper.make_model(graph).SerializeToString()


def trees_onnx() -> bytes:
    """A regression by trees, here a single leaf."""
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 20])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    leaf = {f"nodes_{name}": [0] for name in ("treeids", "nodeids", "featureids")}
    leaf |= {f"nodes_{name}": [0] for name in ("truenodeids", "falsenodeids")}
    target = {f"target_{name}": [0] for name in ("treeids", "nodeids", "ids")}
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_values=[0.0],
        nodes_modes=["LEAF"],
        target_weights=[1.0],
        **leaf,
        **target,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", [rows], [result])
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()
