"""YOLO11 and YOLOv8 detection networks, built from the published tables of their layers and blocks.

Sources: Ultralytics' documentation (widths, depths and blocks) and its published numbers of
weights, which these networks match exactly. Names of blocks are those of the tables.
"""

from dataclasses import dataclass
from operator import add, getitem, mul, sub, truediv
from typing import Any, Final

from forerun.data.lazy import nn, torch

SIZES: Final = {
    "yolo11n": (0.50, 0.25, 1024),
    "yolo11s": (0.50, 0.50, 1024),
    "yolo11m": (0.50, 1.00, 512),
    "yolo11l": (1.00, 1.00, 512),
    "yolo11x": (1.00, 1.50, 512),
    "yolov8n": (0.33, 0.25, 1024),
    "yolov8s": (0.33, 0.50, 1024),
    "yolov8m": (0.67, 0.75, 768),
    "yolov8l": (1.00, 1.00, 512),
    "yolov8x": (1.00, 1.25, 512),
}
"""Name -> depth, width and maximum channels."""
PICTURE: Final = 640
"""Height and width of pictures, pixels."""
_CHANNELS_11: Final = (256, 512, 512, 1024, 512, 256, 512, 1024)
_CHANNELS_8: Final = (128, 256, 512, 1024, 512, 256, 512, 1024)
_REPEATS_8: Final = (3, 6, 6, 3, 3, 3, 3, 3)
"""Per stage: four of the backbone, four of the head."""
_NESTED: Final = (2, 3, 7)
"""Stages with nested blocks in YOLO11n and YOLO11s; larger networks have them in all stages."""
_STRIDES: Final = (8, 16, 32)
_CLASSES: Final = 80
_BINS: Final = 16
"""Bins of the distribution of each side of a box."""


@dataclass(frozen=True)
class _Value:
    """A node of the network, with the channels of its result."""

    node: Any
    channels: int


class _Network:
    """A network under construction: each method adds a block and returns its result."""

    def __init__(self) -> None:
        self.root, self.graph = nn.Module(), torch.fx.Graph()
        self.input = _Value(self.graph.placeholder("pictures"), 3)

    def layer(self, module: Any, x: _Value, channels: int) -> _Value:
        """A module of torch."""
        name = f"layer{len(self.root._modules)}"
        self.root.add_module(name, module)
        return _Value(self.graph.call_module(name, (x.node,)), channels)

    def call(self, function: Any, channels: int, *given: Any, **options: Any) -> _Value:
        """A function of torch, or a method of its first argument."""
        nodes = tuple(
            argument.node if isinstance(argument, _Value) else argument for argument in given
        )
        make = self.graph.call_method if isinstance(function, str) else self.graph.call_function
        return _Value(make(function, nodes, options), channels)

    def cat(self, *parts: _Value, axis: int = 1) -> _Value:
        """All parts concatenated along an axis, channels by default."""
        channels = sum(part.channels for part in parts)
        return self.call(torch.cat, channels, [part.node for part in parts], axis)

    def conv(
        self,
        x: _Value,
        out: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        act: bool = True,
        groups: int = 1,
    ) -> _Value:
        """Convolution, batch norm and SiLU."""
        padding = kernel // 2
        conv = nn.Conv2d(x.channels, out, kernel, stride, padding, groups=groups, bias=False)
        x = self.layer(nn.BatchNorm2d(out), self.layer(conv, x, out), out)
        return self.layer(nn.SiLU(inplace=True), x, out) if act else x

    def halves(self, x: _Value) -> tuple[_Value, _Value]:
        """Both halves of the channels."""
        half = x.channels // 2
        both = self.call("chunk", half, x, 2, 1)
        first, second = (self.call(getitem, half, both, place) for place in (0, 1))
        return first, second

    def bottleneck(self, x: _Value, hidden: int, *, residual: bool = True) -> _Value:
        """Two 3 x 3 convolutions, with a residual connection."""
        inner = self.conv(self.conv(x, hidden, 3), x.channels, 3)
        return self.call(add, x.channels, x, inner) if residual else inner

    def c3k(self, x: _Value) -> _Value:
        """Two bottlenecks on half of the channels, in parallel with a convolution."""
        half = x.channels // 2
        inner = self.conv(x, half)
        for _ in range(2):
            inner = self.bottleneck(inner, half)
        return self.conv(self.cat(inner, self.conv(x, half)), x.channels)

    def c3k2(self, x: _Value, out: int, blocks: int, share: float, *, nested: bool) -> _Value:
        """Blocks whose results are all concatenated."""
        width = int(out * share)
        parts = [*self.halves(self.conv(x, 2 * width))]
        for _ in range(blocks):
            last = parts[-1]
            parts.append(self.c3k(last) if nested else self.bottleneck(last, width // 2))
        return self.conv(self.cat(*parts), out)

    def c2f(self, x: _Value, out: int, blocks: int, *, residual: bool) -> _Value:
        """Bottlenecks as wide as their input, whose results are all concatenated."""
        parts = [*self.halves(self.conv(x, out))]
        for _ in range(blocks):
            parts.append(self.bottleneck(parts[-1], out // 2, residual=residual))
        return self.conv(self.cat(*parts), out)

    def sppf(self, x: _Value) -> _Value:
        """Three poolings in sequence, concatenated."""
        parts = [self.conv(x, x.channels // 2)]
        for _ in range(3):
            parts.append(self.layer(nn.MaxPool2d(5, 1, 2), parts[-1], parts[-1].channels))
        return self.conv(self.cat(*parts), x.channels)

    def c2psa(self, x: _Value, blocks: int, side: int) -> _Value:
        """Repeated attention and two convolutions, on half of the channels."""
        first, second = self.halves(self.conv(x, x.channels))
        width = second.channels
        for _ in range(blocks):
            second = self.call(add, width, second, self.attention(second, side))
            inner = self.conv(self.conv(second, 2 * width), width, act=False)
            second = self.call(add, width, second, inner)
        return self.conv(self.cat(first, second), x.channels)

    def attention(self, x: _Value, side: int) -> _Value:
        """Attention over positions, keys half as wide as values, plus a convolution of values."""
        width, heads, places = x.channels, x.channels // 64, side * side
        keys = 32
        qkv = self.conv(x, width + 2 * keys * heads, act=False)
        qkv = self.call("view", 0, qkv, -1, heads, 2 * keys + 64, places)
        parts = self.call("split", 0, qkv, [keys, keys, 64], dim=2)
        query, key, value = (self.call(getitem, 0, parts, place) for place in range(3))
        scores = self.call("matmul", 0, self.call("transpose", 0, query, -2, -1), key)
        scores = self.call("softmax", 0, self.call(mul, 0, scores, keys**-0.5), dim=-1)
        mixed = self.call("matmul", 0, value, self.call("transpose", 0, scores, -2, -1))
        shape = (-1, width, side, side)
        positions = self.conv(
            self.call("reshape", width, value, *shape), width, 3, act=False, groups=width
        )
        mixed = self.call(add, width, self.call("view", width, mixed, *shape), positions)
        return self.conv(mixed, width, act=False)

    def detect(self, levels: list[_Value], sides: list[int], *, by_channel: bool) -> _Value:
        """Boxes and scores at every position of every level: (batch, 4 + classes, positions).

        Scores come from depthwise and pointwise convolutions, or from 3 x 3 ones.
        """
        boxes, scores = max(16, levels[0].channels // 4, 4 * _BINS), levels[0].channels
        scores = max(scores, min(_CLASSES, 100))
        outputs = 4 * _BINS + _CLASSES
        found = []
        for x, side in zip(levels, sides, strict=True):
            box = self.conv(self.conv(x, boxes, 3), boxes, 3)
            box = self.layer(nn.Conv2d(boxes, 4 * _BINS, 1), box, 4 * _BINS)
            score = x
            for _ in range(2):
                if by_channel:
                    score = self.conv(score, score.channels, 3, groups=score.channels)
                score = self.conv(score, scores, 1 if by_channel else 3)
            score = self.layer(nn.Conv2d(scores, _CLASSES, 1), score, _CLASSES)
            both = self.cat(box, score)
            found.append(self.call("view", 0, both, -1, outputs, side * side))
        return self.decoded(self.cat(*found, axis=2), sides)

    def decoded(self, found: _Value, sides: list[int]) -> _Value:
        """Sides of boxes as the mean of their bins, converted to centres and sizes in pixels."""
        places = sum(side * side for side in sides)
        parts = self.call("split", 0, found, [4 * _BINS, _CLASSES], 1)
        bins, scores = (self.call(getitem, 0, parts, place) for place in (0, 1))
        bins = self.call("view", 0, bins, -1, 4, _BINS, places)
        bins = self.call("softmax", 0, self.call("transpose", 0, bins, 2, 1), 1)
        mean = self.layer(nn.Conv2d(_BINS, 1, 1, bias=False), bins, 1)
        near, far = self.halves(self.call("view", 4, mean, -1, 4, places))
        for name, rows in (("anchors", 2), ("strides", 1)):
            self.root.register_buffer(name, torch.zeros(rows, places))
        anchors, strides = (_Value(self.graph.get_attr(n), 0) for n in ("anchors", "strides"))
        near, far = self.call(sub, 2, anchors, near), self.call(add, 2, anchors, far)
        centres = self.call(truediv, 2, self.call(add, 2, near, far), 2)
        boxes = self.cat(centres, self.call(sub, 2, far, near))
        boxes = self.call(mul, 4, boxes, strides)
        return self.cat(boxes, self.call("sigmoid", _CLASSES, scores))


def detector(name: str) -> Any:
    """The network of a name in `SIZES`, as a module that reads (batch, 3, 640, 640)."""
    depth, width, most = SIZES[name]
    newer, sides = name.startswith("yolo11"), [PICTURE // stride for stride in _STRIDES]
    made = _Network()

    def wide(channels: int) -> int:
        return int(min(channels, most) * width)

    def half(x: _Value, channels: int) -> _Value:
        return made.conv(x, wide(channels), 3, 2)

    def doubled(x: _Value) -> _Value:
        return made.layer(nn.Upsample(scale_factor=2), x, x.channels)

    def stage(place: int, *parts: _Value) -> _Value:
        x = made.cat(*parts) if len(parts) > 1 else parts[0]
        if newer:
            nested = most <= 512 or place in _NESTED
            share, blocks = 0.25 if place < 2 else 0.5, max(1, round(2 * depth))
            return made.c3k2(x, wide(_CHANNELS_11[place]), blocks, share, nested=nested)
        blocks = max(1, round(_REPEATS_8[place] * depth))
        return made.c2f(x, wide(_CHANNELS_8[place]), blocks, residual=place < 4)

    x = stage(0, half(half(made.input, 64), 128))
    eighth = stage(1, half(x, 256))
    sixteenth = stage(2, half(eighth, 512))
    last = made.sppf(stage(3, half(sixteenth, 1024)))
    if newer:
        last = made.c2psa(last, max(1, round(2 * depth)), sides[2])
    middle = stage(4, doubled(last), sixteenth)
    fine = stage(5, doubled(middle), eighth)
    middle = stage(6, half(fine, 256), middle)
    coarse = stage(7, half(middle, 512), last)
    made.graph.output(made.detect([fine, middle, coarse], sides, by_channel=newer).node)
    return torch.fx.GraphModule(made.root, made.graph)
