"""Networks that collectors build by name: a zoo in plain torch, and those of the package timm.

The zoo has shapes from the papers' tables, random weights, and no download. Its names end in the
image's side or the sequence's length where it is not 224 pixels. Of timm there is one network of
each of many architecture families, none of them in the zoo, so that both together show how far a
device's times carry from one family to another (architectures as timm builds them by these names,
Apache-2.0).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil, floor, log2
from typing import Any, Final, Literal

from forerun.data.facts import facts_of
from forerun.data.lazy import nn, torch

Activation = Callable[[], "nn.Module"]


@cache
def _class_of(forward: Callable[..., Any]) -> Any:
    """The class of modules that compute `forward(self, x)`; torch is imported for the first."""
    return type(forward.__name__.strip("_"), (nn.Module,), {"forward": forward})


def _module(forward: Callable[..., Any], **parts: Any) -> "nn.Module":
    """A module that computes `forward(self, x)`, with parts as its attributes."""
    made: nn.Module = _class_of(forward)()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def _sum(self: Any, x: "torch.Tensor") -> "torch.Tensor":
    total = self.paths[0](x)
    for path in self.paths[1:]:
        total = total + path(x)
    made: torch.Tensor = self.after(total)
    return made


def sum_of(*paths: "nn.Module", after: "nn.Module | None" = None) -> "nn.Module":
    """The sum of what several paths make of one input; no path is the input itself."""
    return _module(_sum, paths=nn.ModuleList(paths), after=after or nn.Identity())


def _joined(self: Any, x: "torch.Tensor") -> "torch.Tensor":
    return torch.cat([path(x) for path in self.paths], 1)


def joined(*paths: "nn.Module") -> "nn.Module":
    """What several paths make of one input, side by side in channels."""
    return _module(_joined, paths=nn.ModuleList(paths))


def _scaled(self: Any, x: "torch.Tensor") -> Any:
    return self.value(x) * self.gate(x)


def scaled_by(gate: "nn.Module", value: "nn.Module | None" = None) -> "nn.Module":
    """The input times what a path makes of it (squeeze and excitation, gates)."""
    return _module(_scaled, gate=gate, value=value or nn.Identity())


def _turned(self: Any, x: "torch.Tensor") -> Any:
    return self.body(x.transpose(-1, -2))


def _swapped(self: Any, x: "torch.Tensor") -> Any:
    return self.body(x.transpose(-1, -2)).transpose(-1, -2)


def _attended(self: Any, x: "torch.Tensor") -> Any:
    batch, length, width = x.shape
    parts = self.enter(x).split(self.widths, -1)
    q, k, v = (p.view(batch, length, -1, self.size).transpose(1, 2) for p in parts)
    if self.kept < self.heads:
        share = self.heads // self.kept
        k, v = (p.repeat_interleave(share, dim=1) for p in (k, v))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
    return self.leave(y.transpose(1, 2).reshape(batch, length, width))


def self_attention(
    width: int, heads: int, kept: int = 0, causal: bool = False, bias: bool = True
) -> "nn.Module":
    """Multi-head self-attention; fewer `kept` heads for keys and values share them."""
    kept, size = kept or heads, width // heads
    widths = [width, kept * size, kept * size]
    enter, leave = nn.Linear(width, sum(widths), bias), nn.Linear(width, width, bias)
    own = {"heads": heads, "kept": kept, "causal": causal, "size": size, "widths": widths}
    return _module(_attended, **own, enter=enter, leave=leave)


def _embedded(self: Any, x: "torch.Tensor") -> Any:
    made = self.source(x)
    if made.dim() == 4:
        made = made.flatten(2).transpose(1, 2)
    return made + self.places


def embedded(source: "nn.Module", length: int, width: int) -> "nn.Module":
    """Tokens or patches with learned positions; patches are convolved from images."""
    return _module(_embedded, source=source, places=nn.Parameter(torch.zeros(length, width)))


def _outputs(self: Any, x: "torch.Tensor") -> Any:
    return self.cells(x)[0]


def _around(self: Any, x: "torch.Tensor") -> Any:
    kept = self.before(x)
    return self.after(torch.cat([kept, self.below(kept)], 1))


def conv(
    width: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1,
    act: Activation | None = None,
) -> "nn.Module":  # fmt: skip
    """Convolution, batch normalisation, and an activation where one is given."""
    parts: list[nn.Module] = [
        nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    ]
    return nn.Sequential(*parts, *([act()] if act else []))


def squeeze(width: int, inner: int, act: Activation) -> "nn.Module":
    """Squeeze and excitation."""
    gate = (nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), act())
    return scaled_by(nn.Sequential(*gate, nn.Conv2d(inner, width, 1), nn.Sigmoid()))


def classifier(width: int) -> Sequence["nn.Module"]:
    """Mean over the image, then one linear layer for 1000 classes."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)


BERT_ENTRIES, GPT_ENTRIES, LLAMA_ENTRIES, LSTM_ENTRIES = 30522, 50257, 32000, 10000


def added(*layers: "nn.Module", after: "nn.Module | None" = None) -> "nn.Module":
    """The input plus what layers make of it one after another, and then a last layer."""
    return sum_of(nn.Identity(), nn.Sequential(*layers), after=after)


def mlp(width: int, inner: int) -> "nn.Module":
    """A perceptron of two layers."""
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


def encoder_block(width: int, heads: int, causal: bool = False) -> "nn.Module":
    """Attention and a perceptron of four times the width, each normalised before."""
    attend = added(nn.LayerNorm(width), self_attention(width, heads, causal=causal))
    return nn.Sequential(attend, added(nn.LayerNorm(width), mlp(width, 4 * width)))


def bert(width: int, depth: int, heads: int, length: int) -> "nn.Module":
    """BERT as an encoder, its normalisation after each sum, without a head."""

    def block() -> nn.Module:
        attend = added(self_attention(width, heads), after=nn.LayerNorm(width))
        return nn.Sequential(attend, added(mlp(width, 4 * width), after=nn.LayerNorm(width)))

    tokens = embedded(nn.Embedding(BERT_ENTRIES, width), length, width)
    return nn.Sequential(tokens, nn.LayerNorm(width), *(block() for _ in range(depth)))


def gpt(width: int, depth: int, heads: int, length: int) -> "nn.Module":
    """GPT-2 reading a prompt: logits of every position."""
    tokens = embedded(nn.Embedding(GPT_ENTRIES, width), length, width)
    blocks = (encoder_block(width, heads, causal=True) for _ in range(depth))
    last = nn.Linear(width, GPT_ENTRIES, bias=False)
    return nn.Sequential(tokens, *blocks, nn.LayerNorm(width), last)


def llama(width: int, depth: int, heads: int, kept: int, inner: int, length: int) -> "nn.Module":
    """Llama's shapes reading a prompt: RMS norms, gated perceptrons, shared keys and values.

    Positions are learned embeddings, not rotary ones: two small kernels fewer per layer.
    """

    def norm() -> nn.Module:
        return nn.RMSNorm(width)

    def block() -> nn.Module:
        attend = self_attention(width, heads, kept, causal=True, bias=False)
        gate = nn.Sequential(nn.Linear(width, inner, bias=False), nn.SiLU())
        think = scaled_by(gate, nn.Linear(width, inner, bias=False))
        down = nn.Linear(inner, width, bias=False)
        return nn.Sequential(added(norm(), attend), added(norm(), think, down))

    tokens = embedded(nn.Embedding(LLAMA_ENTRIES, width), length, width)
    last = nn.Linear(width, LLAMA_ENTRIES, bias=False)
    return nn.Sequential(tokens, *(block() for _ in range(depth)), norm(), last)


def lstm(width: int, depth: int, length: int) -> "nn.Module":
    """A language model of LSTM layers."""
    tokens = embedded(nn.Embedding(LSTM_ENTRIES, width), length, width)
    cells = nn.LSTM(width, width, depth, batch_first=True)
    return nn.Sequential(tokens, _module(_outputs, cells=cells), nn.Linear(width, LSTM_ENTRIES))


def resnet(
    depths: Sequence[int], group_width: int = 64, groups: int = 1, deep: bool = True
) -> "nn.Module":
    """Residual networks: plain (`deep` is False) or with bottlenecks, of groups or wide ones."""
    width, layers = 64, [conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    for stage, depth in enumerate(depths):
        inner = group_width * groups * 2**stage if deep else 64 * 2**stage
        out = 256 * 2**stage if deep else inner
        for place in range(depth):
            stride = 2 if stage and not place else 1
            plain = (conv(width, inner, 3, stride, act=nn.ReLU), conv(inner, inner))
            bottle = (
                conv(width, inner, 1, act=nn.ReLU),
                conv(inner, inner, 3, stride, groups, nn.ReLU),
                conv(inner, out, 1),
            )
            body = nn.Sequential(*(bottle if deep else plain))
            same = width == out and stride == 1
            path = nn.Identity() if same else conv(width, out, 1, stride)
            layers.append(sum_of(body, path, after=nn.ReLU()))
            width = out
    return nn.Sequential(*layers, *classifier(width))


def vgg(depths: Sequence[int]) -> "nn.Module":
    """VGG without batch normalisation; 2, 2, 3, 3, 3 convolutions make VGG-16."""
    width, layers = 3, []
    for out, depth in zip((64, 128, 256, 512, 512), depths, strict=True):
        for _ in range(depth):
            layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU()]
            width = out
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, *head, nn.Linear(4096, 1000))


def alexnet() -> "nn.Module":
    """AlexNet in one column."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten()),
        *(nn.Linear(256 * 36, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()),
        nn.Linear(4096, 1000),
    )


def squeezenet() -> "nn.Module":
    """SqueezeNet 1.1."""

    def fire(width: int, inner: int, out: int) -> nn.Module:
        one = nn.Sequential(nn.Conv2d(inner, out, 1), nn.ReLU())
        three = nn.Sequential(nn.Conv2d(inner, out, 3, padding=1), nn.ReLU())
        return nn.Sequential(nn.Conv2d(width, inner, 1), nn.ReLU(), joined(one, three))

    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(fire(64, 16, 64), fire(128, 16, 64), nn.MaxPool2d(3, 2)),
        *(fire(128, 32, 128), fire(256, 32, 128), nn.MaxPool2d(3, 2)),
        *(fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256)),
        *(nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


def densenet(depths: Sequence[int], growth: int = 32) -> "nn.Module":
    """DenseNets; 6, 12, 24, 16 layers make DenseNet-121."""
    width = 2 * growth
    layers = [conv(3, width, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    for depth in depths:
        if width > 2 * growth:
            halved = nn.Conv2d(width, width // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(width), nn.ReLU(), halved, nn.AvgPool2d(2)]
            width //= 2
        for _ in range(depth):
            enter = conv(width, 4 * growth, 1, act=nn.ReLU)
            new = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), enter)
            new.append(nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))
            layers.append(joined(nn.Identity(), new))
            width += growth
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), *classifier(width))


Stage = tuple[int, int, int, int, int]
"""Expansion, width, depth, stride, kernel."""


def eighths(width: float) -> int:
    """The multiple of 8 that is nearest, or the next where that takes off more than a tenth."""
    near = max(8, int(width + 4) // 8 * 8)
    return near if near >= 0.9 * width else near + 8


def _inverted(
    stages: Sequence[Stage], squeezed: bool, wider: float, deeper: float, last: int
) -> "nn.Module":
    """Inverted residuals: MobileNet v2, and EfficientNet where they are `squeezed`."""
    act = nn.SiLU if squeezed else nn.ReLU6
    width = eighths(32 * wider)
    layers = [conv(3, width, 3, 2, act=act)]
    for expansion, plain, depth, stride, kernel in stages:
        out = eighths(plain * wider)
        for place in range(ceil(depth * deeper)):
            inner, step = width * expansion, 1 if place else stride
            body = nn.Sequential()
            if expansion > 1:
                body.append(conv(width, inner, 1, act=act))
            body.append(conv(inner, inner, kernel, step, inner, act))
            if squeezed:
                body.append(squeeze(inner, max(1, width // 4), act))
            body.append(conv(inner, out, 1))
            same = step == 1 and width == out
            layers.append(sum_of(body, nn.Identity()) if same else body)
            width = out
    return nn.Sequential(*layers, conv(width, last, 1, act=act), *classifier(last))


def mobilenet_v2(wider: float = 1.0) -> "nn.Module":
    """MobileNet v2."""
    stages: list[Stage] = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)]
    stages += [(6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)]
    return _inverted(stages, False, wider, 1.0, eighths(1280 * max(1.0, wider)))


def efficientnet(wider: float = 1.0, deeper: float = 1.0) -> "nn.Module":
    """EfficientNets: B0 where nothing is wider or deeper."""
    stages: list[Stage] = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)]
    stages += [(6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    return _inverted(stages, True, wider, deeper, eighths(1280 * wider))


def convnext(width: int, depths: Sequence[int]) -> "nn.Module":
    """ConvNeXts, with layer normalisation over channels as a group of one."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), nn.GroupNorm(1, width)]
    for stage, depth in enumerate(depths):
        if stage:
            layers += [nn.GroupNorm(1, width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        for _ in range(depth):
            spatial = nn.Conv2d(width, width, 7, padding=3, groups=width)
            mixing = (nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))
            layers.append(added(spatial, nn.GroupNorm(1, width), *mixing))
    return nn.Sequential(*layers, *classifier(width))


def unet() -> "nn.Module":
    """A U-Net of five levels, 64 channels at the top."""

    def double(width: int, out: int) -> nn.Module:
        return nn.Sequential(conv(width, out, act=nn.ReLU), conv(out, out, act=nn.ReLU))

    level = double(512, 1024)
    for width in (512, 256, 128, 64):
        up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        below = nn.Sequential(nn.MaxPool2d(2), level, up)
        before = double(3 if width == 64 else width // 2, width)
        level = _module(_around, before=before, below=below, after=double(2 * width, width))
    return nn.Sequential(level, nn.Conv2d(64, 2, 1))


def _pooled(width: int) -> Sequence["nn.Module"]:
    """Mean over the patches, then one linear layer for 1000 classes."""
    mean = _module(_turned, body=nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten()))
    return nn.LayerNorm(width), mean, nn.Linear(width, 1000)


def vit(width: int, depth: int, heads: int, patch: int = 16) -> "nn.Module":
    """Vision transformer with the mean of its patches in place of a class token."""
    patches = embedded(nn.Conv2d(3, width, patch, patch), (224 // patch) ** 2, width)
    blocks = (encoder_block(width, heads) for _ in range(depth))
    return nn.Sequential(patches, *blocks, *_pooled(width))


def mixer(width: int, depth: int, patch: int = 16) -> "nn.Module":
    """MLP-Mixer."""
    count = (224 // patch) ** 2

    def block() -> nn.Module:
        across = added(nn.LayerNorm(width), _module(_swapped, body=mlp(count, width // 2)))
        return nn.Sequential(across, added(nn.LayerNorm(width), mlp(width, 4 * width)))

    patches = embedded(nn.Conv2d(3, width, patch, patch), count, width)
    return nn.Sequential(patches, *(block() for _ in range(depth)), *_pooled(width))


IMAGE = (3, 224, 224)
QUICK_GFLOPS = 2000.0
"""Most work of a forward pass that takes a large GPU some tens of milliseconds at most."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A network that can be built.

    Attributes:
        build: makes the module on torch's default device.
        shape: shape of one input, without the batch dimension.
        entries: tokens to choose from; 0 where the input is an image.
        gflops: GFLOPs of a forward pass at batch size 1; a multiply-add counts as two.
    """

    build: Callable[[], "nn.Module"]
    shape: tuple[int, ...] = IMAGE
    entries: int = 0
    gflops: float = 1.0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Batch sizes to measure: 1, the largest that is quick on a GPU, and one between."""
        doublings = min(8, max(2, floor(log2(QUICK_GFLOPS / self.gflops))))
        return 1, 1 << round(doublings / 2), 1 << doublings

    def example(self, batch_size: int, device: str, dtype: Any = None) -> "torch.Tensor":
        """A random input of `batch_size` samples."""
        shape = (batch_size, *self.shape)
        if self.entries:
            return torch.randint(self.entries, shape, device=device)
        return torch.randn(shape, device=device, dtype=dtype)


_TABLE: Final = facts_of(__file__)
_MAKERS: Final[Mapping[str, Callable[..., "nn.Module"]]] = {
    make.__name__: make
    for make in (
        *(resnet, vgg, alexnet, squeezenet, densenet, mobilenet_v2, efficientnet, convnext, unet),
        *(vit, mixer, bert, gpt, llama, lstm),
    )
}


def _timm(name: str) -> "nn.Module":
    from timm import create_model

    network: nn.Module = create_model(name)
    return network


NETWORKS: Mapping[str, Definition] = {
    name: Definition(
        partial(_MAKERS[one["make"]], *one["given"]),
        tuple(one.get("shape", IMAGE)),
        one.get("entries", 0),
        one["gflops"],
    )
    for name, one in _TABLE["forerun"].items()
}
"""Name -> network."""
TIMM_NETWORKS: Mapping[str, Definition] = {
    name: Definition(partial(_timm, name), (3, side, side), gflops=gflops)
    for name, (side, gflops) in _TABLE["timm"].items()
}
"""Name in timm -> network, which is built only where timm is installed."""

Zoo = Literal["forerun", "timm"]
ZOOS: Mapping[Zoo, Mapping[str, Definition]] = {"forerun": NETWORKS, "timm": TIMM_NETWORKS}
"""Whose networks -> the networks by name; no name is in two of them."""


def definition_of(name: str) -> Definition | None:
    """A network of any zoo by its name; None where there is none."""
    return next((zoo[name] for zoo in ZOOS.values() if name in zoo), None)
