"""Networks for measurements of a processor: common building blocks at other sizes than published.

None is a published network, since predictions are queried for and evaluated on those. Blocks
follow the named papers; widths, depths and image sizes were chosen to span those in use. Networks
are built layer by layer with random weights, by the onnx package alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from forerun.data.facts import facts_of

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
        bias: bool = True,
    ) -> str:
        """A square convolution, padded so that stride alone shrinks the image."""
        source, height, width = self.shapes[x]
        pads, size = [kernel // 2] * 4, (-(-height // stride), -(-width // stride))
        inputs = [x, self.weight(channels, source // groups, kernel, kernel)]
        if bias and not norm:
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

    def linear(self, x: str, width: int, activation: str = "", bias: bool = True) -> str:
        """A fully connected layer over the last dimension."""
        *rest, source = self.shapes[x]
        shape = (*rest, width)
        if bias and not rest:
            inputs = [x, self.weight(width, source), self.weight(width, scale=0.1)]
            return self.activate(self.node("Gemm", inputs, shape, transB=1), activation)
        made = self.node("MatMul", [x, self.weight(source, width, scale=1 / sqrt(source))], shape)
        if bias:
            made = self.node("Add", [made, self.weight(width, scale=0.1)], shape)
        return self.activate(made, activation)

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

    def attention(self, x: str, heads: int, bias: bool = True) -> str:
        """Self-attention with its four layers, as exporters write it: products and softmax."""
        length, width = self.shapes[x]
        each = width // heads
        query, key, value = (
            self.reshape(self.linear(x, width, bias=bias), length, heads, each) for _ in range(3)
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
        joined = self.reshape(self.transpose(mixed, 2, 1, 3), length, width)
        return self.linear(joined, width, bias=bias)

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


Stages = tuple[tuple[int, int], ...]
"""Channels and blocks of each stage; the image is halved from one to the next."""


def residual(
    side: int, stages: Stages, bottleneck: bool = False, groups: int = 1, norm: bool = False
) -> bytes:
    """Blocks of two 3x3 convolutions, or of 1x1, (grouped) 3x3 and 1x1 (ResNet, ResNeXt)."""
    net = NetworkBuilder((3, side, side))
    x = net.conv("x", stages[0][0], 7, 2, activation="relu", norm=norm)
    x = net.pool(x, 3, 2)
    for stage, (width, blocks) in enumerate(stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            outer = 4 * width if bottleneck else width
            if bottleneck:
                y = net.conv(x, width, activation="relu", norm=norm)
                y = net.conv(y, width, 3, stride, groups, activation="relu", norm=norm)
                y = net.conv(y, outer, norm=norm)
            else:
                y = net.conv(x, width, 3, stride, activation="relu", norm=norm)
                y = net.conv(y, outer, 3, norm=norm)
            if net.shapes[x] != net.shapes[y]:
                x = net.conv(x, outer, 1, stride, norm=norm)
            x = net.activate(net.add(y, x), "relu")
    return net.model(net.linear(net.mean(x), 1000))


def plain(side: int, stages: Stages, hidden: int) -> bytes:
    """3x3 convolutions with maxima between, then two wide layers (VGG)."""
    net, x = NetworkBuilder((3, side, side)), "x"
    for width, blocks in stages:
        for _ in range(blocks):
            x = net.conv(x, width, 3, activation="relu")
        x = net.pool(x, 2, 2)
    channels, height, width = net.shapes[x]
    x = net.node("Flatten", [x], (channels * height * width,))
    x = net.linear(net.linear(x, hidden, "relu"), hidden, "relu")
    return net.model(net.linear(x, 1000))


def strided(side: int, widths: tuple[int, ...], hidden: int) -> bytes:
    """Large strided convolutions, normalised over neighbouring channels, wide layers (AlexNet)."""
    net = NetworkBuilder((3, side, side))
    x = net.conv("x", widths[0], 11, 4, activation="relu")
    for width in widths[1:]:
        x = net.node("LRN", [x], net.shapes[x], size=5)
        x = net.conv(net.pool(x, 3, 2), width, 3, activation="relu")
    channels, height, across = net.shapes[x]
    x = net.node("Flatten", [x], (channels * height * across,))
    return net.model(net.linear(net.linear(x, hidden, "relu"), 1000))


def inverted(
    side: int,
    stages: Stages,
    expand: int = 6,
    kernel: int = 3,
    activation: str = "relu6",
    squeeze: str = "",
) -> bytes:
    """Inverted residual blocks of 1x1, depthwise and 1x1 convolutions (MobileNet, EfficientNet)."""
    net = NetworkBuilder((3, side, side))
    x = net.conv("x", stages[0][0], 3, 2, activation=activation)
    for width, blocks in stages:
        for block in range(blocks):
            source = net.shapes[x][0]
            y = net.conv(x, expand * source, activation=activation)
            stride = 1 if block else 2
            y = net.conv(y, expand * source, kernel, stride, expand * source, activation)
            if squeeze:
                y = net.squeeze(y, max(8, source // 4), squeeze)
            y = net.conv(y, width)
            x = net.add(y, x) if net.shapes[x] == net.shapes[y] else y
    x = net.conv(x, 4 * stages[-1][0], activation=activation)
    return net.model(net.linear(net.mean(x), 1000))


def dense(side: int, width: int, growth: int, blocks: tuple[int, ...]) -> bytes:
    """Every layer reads all that came before it in its block (DenseNet)."""
    net = NetworkBuilder((3, side, side))
    x = net.pool(net.conv("x", width, 7, 2, activation="relu", norm=True), 3, 2)
    for number, layers in enumerate(blocks):
        for _ in range(layers):
            y = net.conv(net.activate(net.batch_norm(x), "relu"), 4 * growth, norm=True)
            x = net.concat([x, net.conv(net.activate(y, "relu"), growth, 3)])
        if number + 1 < len(blocks):
            x = net.activate(net.batch_norm(x), "relu")
            x = net.pool(net.conv(x, net.shapes[x][0] // 2), 2, 2, "AveragePool")
    return net.model(net.linear(net.mean(x), 1000))


def branches(side: int, width: int, modules: int) -> bytes:
    """Modules of 1x1, 3x3 and 5x5 branches and a pool, joined (Inception)."""
    net = NetworkBuilder((3, side, side))
    x = net.pool(net.conv("x", width, 7, 2, activation="relu"), 3, 2)
    for module in range(modules):
        if module and module % 2 == 0:
            x, width = net.pool(x, 3, 2), width * 3 // 2
        parts = [net.conv(x, width, activation="relu")]
        for kernel, share in ((3, 2), (5, 4)):
            inner = net.conv(x, width // share * 2 // 3 * 2, activation="relu")
            parts.append(net.conv(inner, 2 * width // share, kernel, activation="relu"))
        parts.append(net.conv(net.pool(x, 3, 1), width // 2, activation="relu"))
        x = net.concat(parts)
    return net.model(net.linear(net.mean(x), 1000))


def shuffled(side: int, stages: Stages, groups: int) -> bytes:
    """Grouped 1x1 convolutions whose channels are dealt anew between (ShuffleNet)."""
    net = NetworkBuilder((3, side, side))
    x = net.pool(net.conv("x", 24, 3, 2, activation="relu"), 3, 2)
    for width, blocks in stages:
        for block in range(blocks):
            first = groups if net.shapes[x][0] % groups == 0 else 1
            y = net.conv(x, width // 4, 1, 1, first, "relu")
            channels, height, across = net.shapes[y]
            y = net.reshape(y, groups, channels // groups, height, across)
            y = net.reshape(net.transpose(y, 2, 1, 3, 4), channels, height, across)
            y = net.conv(y, width // 4, 3, 1 if block else 2, width // 4)
            y = net.conv(y, width, 1, 1, groups)
            x = net.activate(net.add(y, x) if block else y, "relu")
    return net.model(net.linear(net.mean(x), 1000))


def modern(side: int, stages: Stages, kernel: int = 7) -> bytes:
    """Depthwise convolutions, layer normalisation and wide layers with GELU (ConvNeXt)."""
    net = NetworkBuilder((3, side, side))
    x = net.conv("x", stages[0][0], 4, 4)
    for stage, (width, blocks) in enumerate(stages):
        if stage:
            x = net.conv(x, width, 2, 2)
        for _ in range(blocks):
            y = net.transpose(net.conv(x, width, kernel, 1, width), 2, 3, 1)
            y = net.linear(net.linear(net.layer_norm(y), 4 * width, "gelu"), width)
            x = net.add(net.transpose(y, 3, 1, 2), x)
    return net.model(net.linear(net.mean(x), 1000))


def _encoder(net: NetworkBuilder, x: str, layers: int, heads: int, first: bool) -> str:
    """Transformer layers; `first`: whether they normalise before, or after they add."""
    for _ in range(layers):
        width = net.shapes[x][-1]
        if first:
            x = net.add(x, net.attention(net.layer_norm(x), heads))
            x = net.add(x, net.linear(net.linear(net.layer_norm(x), 4 * width, "gelu"), width))
        else:
            x = net.layer_norm(net.add(x, net.attention(x, heads)))
            x = net.layer_norm(net.add(x, net.linear(net.linear(x, 4 * width, "gelu"), width)))
    return x


def text(length: int, width: int, layers: int, heads: int, first: bool = False) -> bytes:
    """A transformer over words (BERT, GPT)."""
    entries = 8000
    net = NetworkBuilder((length,), entries)
    x = net.layer_norm(net.embed(entries, width))
    return net.model(_encoder(net, x, layers, heads, first))


def patches(side: int, patch: int, width: int, layers: int, heads: int) -> bytes:
    """A transformer over patches of an image (ViT)."""
    net = NetworkBuilder((3, side, side))
    x = net.conv("x", width, patch, patch)
    _, height, across = net.shapes[x]
    x = net.transpose(net.reshape(x, width, height * across), 2, 1)
    x = net.layer_norm(_encoder(net, x, layers, heads, first=True))
    return net.model(net.linear(x, 1000))


def mixed(side: int, patch: int, width: int, layers: int) -> bytes:
    """Layers along patches and along channels in turn (MLP-Mixer)."""
    net = NetworkBuilder((3, side, side))
    x = net.conv("x", width, patch, patch)
    _, height, across = net.shapes[x]
    count = height * across
    x = net.transpose(net.reshape(x, width, count), 2, 1)
    for _ in range(layers):
        y = net.transpose(net.layer_norm(x), 2, 1)
        y = net.linear(net.linear(y, width // 2, "gelu"), count)
        x = net.add(x, net.transpose(y, 2, 1))
        x = net.add(x, net.linear(net.linear(net.layer_norm(x), 4 * width, "gelu"), width))
    return net.model(x)


def pyramid(side: int, width: int, levels: int) -> bytes:
    """Down and up again, each level joined with what it came from (U-Net)."""
    net = NetworkBuilder((3, side, side))
    x, skipped = net.conv("x", width, 3, activation="relu"), []
    for _ in range(levels):
        skipped.append(x)
        x = net.conv(net.pool(x, 2, 2), 2 * net.shapes[x][0], 3, activation="relu")
    for skip in reversed(skipped):
        channels, height, across = net.shapes[x]
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        x = net.node("Resize", [x, "", scales], (channels, 2 * height, 2 * across), mode="nearest")
        x = net.concat([x, skip])
        x = net.conv(x, net.shapes[skip][0], 3, activation="relu")
    return net.model(net.conv(x, 8))


def perceptron(width: int, hidden: int, layers: int) -> bytes:
    """Fully connected layers over a vector."""
    net, x = NetworkBuilder((width,)), "x"
    for _ in range(layers):
        x = net.linear(x, hidden, "relu")
    return net.model(net.linear(x, 10))


@dataclass(frozen=True, slots=True)
class OnnxDefinition:
    """A network that can be built.

    Attributes:
        build: makes the ONNX file; its batch is free.
        quick: whether the two-minute collection measures it.
    """

    build: Callable[[], bytes]
    quick: bool = False


_BUILDERS: Final[Mapping[str, Callable[..., bytes]]] = {
    build.__name__: build
    for build in (
        *(residual, plain, strided, inverted, dense, branches, shuffled, modern, text, patches),
        *(mixed, pyramid, perceptron),
    )
}
NETWORKS: Mapping[str, OnnxDefinition] = {
    name: OnnxDefinition(
        partial(_BUILDERS[one["make"]], *one["given"], **one.get("named", {})), title == "quick"
    )
    for title, networks in facts_of(__file__).items()
    for name, one in networks.items()
}
"""Name -> network."""
