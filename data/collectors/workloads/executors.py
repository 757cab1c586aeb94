"""Executors of trials on the processor, through onnxruntime or torch.

onnxruntime is timed on each operator alone, as an ONNX model of one node.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operators import NotRunnable, padding_of, pair, turned
from forerun.data.graph import Operator
from forerun.data.lazy import torch

Array = NDArray[Any]
OPSET, ATTENTION_OPSET = 20, 23
"""Attention became an operator of its own in opset 23."""
FUNCTIONS: Mapping[str, str] = {
    **{"relu": "Relu", "gelu": "Gelu", "tanh": "Tanh", "sigmoid": "Sigmoid", "exp": "Exp"},
    **{"sqrt": "Sqrt", "erf": "Erf", "add": "Add", "mul": "Mul", "sub": "Sub", "div": "Div"},
}
"""Function of an elementwise operator -> ONNX's name."""


def model_of(operator: Operator) -> bytes:
    """An ONNX model of one node in fp32 with the operator's shapes and weights.

    Raises:
        NotRunnable: the operator's kind or shapes are not among those known.
    """
    build = _BUILD.get(operator.kind)
    if build is None:
        raise NotRunnable(f"no ONNX node stands for an operator of kind {operator.kind}")
    node, weights, whole = build(operator)
    types = [TensorProto.INT64 if whole else TensorProto.FLOAT] * len(operator.input_shapes)
    inputs = [
        helper.make_tensor_value_info(f"x{place}", kind, shape)
        for place, (kind, shape) in enumerate(zip(types, operator.input_shapes, strict=True))
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, operator.output_shapes[0])
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "operator", inputs, [output], held)
    number = ATTENTION_OPSET if operator.kind == "attention" else OPSET
    opsets = [helper.make_opsetid("", number)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString())


Built = tuple[onnx.NodeProto, dict[str, Array], bool]
"""Node, weights by name, and whether inputs are indices."""


def _weights(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32) * np.float32(0.05)


def _linear(op: Operator) -> Built:
    k, n = op.input_shapes[0][-1], op.output_shapes[0][-1]
    if op.parameter_elements not in (k * n, k * n + n):
        raise NotRunnable(f"{op.parameter_elements} weights do not make a layer of {k} to {n}")
    weights = {"w": _weights(k, n)}
    if len(op.input_shapes[0]) == 2:
        if op.parameter_elements > k * n:
            weights["b"] = _weights(n)
        return helper.make_node("Gemm", ["x0", *weights], ["y"]), weights, False
    return helper.make_node("MatMul", ["x0", "w"], ["y"]), weights, False


def _matmul(op: Operator) -> Built:
    return helper.make_node("MatMul", ["x0", "x1"], ["y"]), {}, False


def _attention(op: Operator) -> Built:
    return helper.make_node("Attention", ["x0", "x1", "x2"], ["y"]), {}, False


def _conv(op: Operator) -> Built:
    kernel, stride, padding = padding_of(op)
    (groups,) = pair(op.attributes.get("groups", 1), 1)
    source, target = op.input_shapes[0], op.output_shapes[0]
    weights = {"w": _weights(target[1], source[1] // groups, *kernel)}
    node = helper.make_node(
        "Conv", ["x0", "w"], ["y"], strides=stride, pads=padding * 2, group=groups
    )
    return node, weights, False


def _pool(op: Operator) -> Built:
    kernel, stride, padding = padding_of(op)
    how = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2}
    return helper.make_node("MaxPool", ["x0"], ["y"], **how), {}, False


def _softmax(op: Operator) -> Built:
    return helper.make_node("Softmax", ["x0"], ["y"], axis=-1), {}, False


def _layer_norm(op: Operator) -> Built:
    width = op.input_shapes[0][-1]
    weights = {"scale": _weights(width), "bias": _weights(width)}
    return helper.make_node("LayerNormalization", ["x0", *weights], ["y"], axis=-1), weights, False


def _batch_norm(op: Operator) -> Built:
    width = op.input_shapes[0][1]
    named = ("scale", "bias", "mean", "var")
    weights = {name: np.abs(_weights(width)) + np.float32(0.5) for name in named}
    return helper.make_node("BatchNormalization", ["x0", *weights], ["y"]), weights, False


def _elementwise(op: Operator) -> Built:
    function = str(op.attributes.get("function", ""))
    if function not in FUNCTIONS:
        raise NotRunnable(f"no ONNX node stands for {function!r}")
    inputs = [f"x{place}" for place in range(len(op.input_shapes))]
    return helper.make_node(FUNCTIONS[function], inputs, ["y"]), {}, False


def _reduce(op: Operator) -> Built:
    kept = len(op.output_shapes[0]) == len(op.input_shapes[0])
    axes = {"axes": np.array([-1], np.int64)}
    return helper.make_node("ReduceMean", ["x0", "axes"], ["y"], keepdims=int(kept)), axes, False


def _embedding(op: Operator) -> Built:
    width = op.output_shapes[0][-1]
    table = {"w": _weights(op.parameter_elements // width, width)}
    return helper.make_node("Gather", ["w", "x0"], ["y"]), table, True


def _copy(op: Operator) -> Built:
    source, target = op.input_shapes[0], op.output_shapes[0]
    return helper.make_node("Transpose", ["x0"], ["y"], perm=turned(source, target)), {}, False


_BUILD: Mapping[str, Callable[[Operator], Built]] = {
    **{"linear": _linear, "matmul": _matmul, "conv": _conv, "pool": _pool, "copy": _copy},
    **{"softmax": _softmax, "layer_norm": _layer_norm, "batch_norm": _batch_norm},
    "attention": _attention,
    **{"elementwise": _elementwise, "reduce": _reduce, "embedding": _embedding},
}


Run = Callable[[], object]
Prepare = Callable[[], Run]
"""Makes inputs and weights; imports made before it do not count as a workload's memory."""


_TYPES = {
    **{name: name for name in ("bool", "int8", "uint8", "int16", "int32", "int64")},
    **{"float": "float32", "float16": "float16", "double": "float64"},
}
"""Element type of ONNX -> that of NumPy."""


class NoMemory(Exception):
    """The runtime could not allocate."""


def prepare(trial: Trial, threads: int) -> Prepare:
    """Import the trial's runtime; returns a function that builds the workload and returns its run.

    Raises:
        NotRunnable: the runtime cannot run it.
        ImportError: the runtime is not installed.
    """
    if trial.framework == "onnxruntime":
        return _onnxruntime(trial, threads)
    return _torch(trial, threads)


def _onnxruntime(trial: Trial, threads: int) -> Prepare:
    import onnxruntime

    if trial.precision != "fp32" or trial.phase != "inference":
        raise NotRunnable("onnxruntime is measured in fp32 inference")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    subject = trial.subject
    model: bytes | str
    if isinstance(subject, Source) and not subject.file:
        from forerun.data.collectors.workloads.onnx_networks import NETWORKS

        model = NETWORKS[subject.name].build()
    elif isinstance(subject, Source):
        model = _content(Path(subject.file))
    else:
        from forerun.data.collectors.workloads.executors import model_of

        model = model_of(subject)

    def made() -> Run:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        shapes = subject.shapes if isinstance(subject, Source) else {}
        feeds = {
            node.name: _input(node, shapes.get(node.name), trial.batch_size, rng)
            for node in session.get_inputs()
        }
        return lambda: session.run(None, feeds)

    return made


def _content(file: Path) -> bytes | str:
    """The content of an ONNX file; its path where weights lie in files next to it."""
    import onnx

    weights = onnx.load(file, load_external_data=False).graph.initializer
    apart = any(weight.data_location == onnx.TensorProto.EXTERNAL for weight in weights)
    return str(file) if apart else file.read_bytes()


def _input(node: Any, given: Sequence[int] | None, batch_size: int, rng: Any) -> Any:
    """An input of a given shape, or of the one that a model declares at a batch size.

    Of a declared shape, the first dimension is the batch where it is free.
    """
    if given is not None:
        return _values(node.type, given, rng)
    shape = [size if isinstance(size, int) and size > 0 else None for size in node.shape]
    bound = [batch_size if size is None and place == 0 else size or 1
             for place, size in enumerate(shape)]  # fmt: skip
    if shape and shape[0] is not None and batch_size not in (1, shape[0]):
        raise NotRunnable(f"the file is fixed at batch size {shape[0]}")
    return _values(node.type, bound, rng)


def _values(type_name: str, shape: Sequence[int], rng: Any) -> Any:
    """Values of an ONNX type such as `tensor(float)`: zeros for indices and flags."""
    kind = _TYPES.get(type_name.removeprefix("tensor(").removesuffix(")"), "float32")
    if kind.startswith("float"):
        return rng.standard_normal(shape, np.float32).astype(kind)
    return np.zeros(shape, kind)


def _torch(trial: Trial, threads: int) -> Prepare:

    from forerun.data.collectors.workloads.torch_run import torch_run

    torch.set_num_threads(threads)

    def made() -> Run:
        try:
            return torch_run(trial, "cpu")
        except RuntimeError as error:
            if "allocate" in str(error):
                raise NoMemory(str(error)) from None
            raise

    return made
