"""Builds ONNX networks layer by layer with random weights; needs only the onnx package."""

from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
"""LayerNormalization became an operator in opset 17; exporters of today write 17 or newer."""
DRAWN = 2**18 + 1
"""Number of random weights; larger tensors repeat them, since times do not depend on them."""


class NetworkBuilder:
    """A network being built; every method adds a layer and returns the name of its output.

    Tensors are named by number. The batch is a free dimension. Shapes are those of one sample.

    Args:
        shape: shape of the input, without the batch dimension.
        tokens: entries of the vocabulary; 0 where the input is an image or a vector.
    """

    def __init__(self, shape: tuple[int, ...], tokens: int = 0) -> None:
        kind = TensorProto.INT64 if tokens else TensorProto.FLOAT
        self._input = helper.make_tensor_value_info("x", kind, ["N", *shape])
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0).standard_normal(DRAWN, np.float32)
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}

    def node(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        """Any node with one output of that shape."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        self.shapes[name] = shape
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal weights with a standard deviation of one over the root of an output's terms."""
        deviation = 1 / sqrt(max(1, prod(shape[1:]))) if scale is None else scale
        return self.constant(np.resize(self._random, shape) * np.float32(deviation))

    def constant(self, values: NDArray[Any]) -> str:
        """A tensor that does not depend on the input."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: str = "",
        norm: bool = False,
    ) -> str:
        """A square convolution, padded so that stride alone shrinks the image."""
        source, height, width = self.shapes[x]
        pads, size = [kernel // 2] * 4, (-(-height // stride), -(-width // stride))
        inputs = [x, self.weight(channels, source // groups, kernel, kernel)]
        if not norm:
            inputs.append(self.weight(channels, scale=0.1))
        if stride == kernel:
            pads = [0] * 4
        made = self.node(
            "Conv", inputs, (channels, *size), pads=pads, strides=[stride] * 2, group=groups,
            kernel_shape=[kernel] * 2,
        )  # fmt: skip
        if norm:
            made = self.batch_norm(made)
        return self.activate(made, activation)

    def batch_norm(self, x: str) -> str:
        """Batch normalisation with running means and variances."""
        width = self.shapes[x][0]
        ones = [self.constant(np.ones(width, np.float32)) for _ in range(2)]
        zeros = [self.constant(np.full(width, 0.1, np.float32)) for _ in range(2)]
        inputs = [x, ones[0], zeros[0], zeros[1], ones[1]]
        return self.node("BatchNormalization", inputs, self.shapes[x])

    def activate(self, x: str, function: str) -> str:
        """`relu`, `relu6`, `hardswish`, `silu`, `sigmoid`, `gelu` (written out) or none."""
        shape = self.shapes[x]
        if function == "relu6":
            ends = [self.constant(np.array(v, np.float32)) for v in (0.0, 6.0)]
            return self.node("Clip", [x, *ends], shape)
        if function == "silu":
            return self.node("Mul", [x, self.node("Sigmoid", [x], shape)], shape)
        if function == "gelu":
            return self._gelu(x)
        names = {"relu": "Relu", "hardswish": "HardSwish", "sigmoid": "Sigmoid", "tanh": "Tanh"}
        return self.node(names[function], [x], shape) if function else x

    def _gelu(self, x: str) -> str:
        shape = self.shapes[x]
        root, one, half = (self.constant(np.array(v, np.float32)) for v in (sqrt(2), 1.0, 0.5))
        erf = self.node("Erf", [self.node("Div", [x, root], shape)], shape)
        product = self.node("Mul", [x, self.node("Add", [erf, one], shape)], shape)
        return self.node("Mul", [product, half], shape)

    def pool(self, x: str, kernel: int, stride: int, kind: str = "MaxPool") -> str:
        """Pooling: maxima or means over windows."""
        channels, height, width = self.shapes[x]
        size = (-(-height // stride), -(-width // stride))
        pads = [0 if stride == kernel else kernel // 2] * 4
        how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        return self.node(kind, [x], (channels, *size), **how)

    def mean(self, x: str) -> str:
        """Mean of each channel of an image, as a vector."""
        width = self.shapes[x][0]
        return self.node("Flatten", [self.node("GlobalAveragePool", [x], (width, 1, 1))], (width,))

    def squeeze(self, x: str, width: int, gate: str = "hardsigmoid") -> str:
        """Channels scaled by a function of their means (squeeze and excitation)."""
        channels = self.shapes[x][0]
        means = self.node("GlobalAveragePool", [x], (channels, 1, 1))
        inner = self.conv(means, width, activation="relu")
        outer = self.conv(inner, channels)
        kind = "HardSigmoid" if gate == "hardsigmoid" else "Sigmoid"
        return self.node("Mul", [x, self.node(kind, [outer], (channels, 1, 1))], self.shapes[x])

    def add(self, x: str, y: str) -> str:
        """Elementwise sum."""
        return self.node("Add", [x, y], self.shapes[x])

    def concat(self, parts: list[str]) -> str:
        """Concatenation of channels."""
        channels = sum(self.shapes[part][0] for part in parts)
        return self.node("Concat", parts, (channels, *self.shapes[parts[0]][1:]), axis=1)

    def linear(self, x: str, width: int, activation: str = "") -> str:
        """A fully connected layer over the last dimension."""
        *rest, source = self.shapes[x]
        shape = (*rest, width)
        if not rest:
            inputs = [x, self.weight(width, source), self.weight(width, scale=0.1)]
            return self.activate(self.node("Gemm", inputs, shape, transB=1), activation)
        weights = self.weight(source, width, scale=1 / sqrt(source))
        product = self.node("MatMul", [x, weights], shape)
        return self.activate(
            self.node("Add", [product, self.weight(width, scale=0.1)], shape), activation
        )

    def layer_norm(self, x: str) -> str:
        """Layer normalisation over the last dimension."""
        width = self.shapes[x][-1]
        ones = self.constant(np.ones(width, np.float32))
        return self.node(
            "LayerNormalization", [x, ones, self.weight(width, scale=0.1)], self.shapes[x], axis=-1
        )

    def reshape(self, x: str, *shape: int) -> str:
        """Reshape every sample; the batch dimension stays."""
        target = self.constant(np.array([0, *shape], np.int64))
        return self.node("Reshape", [x, target], shape)

    def transpose(self, x: str, *order: int) -> str:
        """Dimensions of a sample in another order, counted from 1: the batch is 0."""
        shape = tuple(self.shapes[x][place - 1] for place in order)
        return self.node("Transpose", [x], shape, perm=[0, *order])

    def attention(self, x: str, heads: int) -> str:
        """Self-attention with its four layers, as exporters write it: products and softmax."""
        length, width = self.shapes[x]
        each = width // heads
        query, key, value = (
            self.reshape(self.linear(x, width), length, heads, each) for _ in range(3)
        )
        root = self.constant(np.array(1 / sqrt(each), np.float32))
        turned = self.transpose(key, 2, 3, 1)
        scores = self.node(
            "MatMul", [self.transpose(query, 2, 1, 3), turned], (heads, length, length)
        )
        scores = self.node("Mul", [scores, root], (heads, length, length))
        weights = self.node("Softmax", [scores], (heads, length, length), axis=-1)
        mixed = self.node(
            "MatMul", [weights, self.transpose(value, 2, 1, 3)], (heads, length, each)
        )
        return self.linear(self.reshape(self.transpose(mixed, 2, 1, 3), length, width), width)

    def embed(self, entries: int, width: int) -> str:
        """Token embeddings with positions."""
        (length,) = self.shapes["x"]
        words = self.node("Gather", [self.weight(entries, width, scale=0.1), "x"], (length, width))
        return self.node("Add", [words, self.weight(length, width, scale=0.1)], (length, width))

    def model(self, output: str) -> bytes:
        """Content of the ONNX file."""
        shape = ["N", *self.shapes[output]]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, "network", [self._input], [result], self._weights)
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return bytes(made.SerializeToString())
