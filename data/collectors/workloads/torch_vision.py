"""Networks over images, from their papers' tables."""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from forerun.data.collectors.workloads.torch_blocks import (
    around,
    classifier,
    conv,
    embedded,
    joined,
    squeeze,
    sum_of,
    swapped,
)
from forerun.data.collectors.workloads.torch_language import encoder_block

if TYPE_CHECKING:
    from torch import nn


def resnet(
    depths: Sequence[int], group_width: int = 64, groups: int = 1, deep: bool = True
) -> "nn.Module":
    """Residual networks: plain (`deep` is False) or with bottlenecks, of groups or wide ones."""
    from torch import nn

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
            layers.append(sum_of()(body, path, after=nn.ReLU()))
            width = out
    return nn.Sequential(*layers, *classifier(width))


def vgg(depths: Sequence[int]) -> "nn.Module":
    """VGG without batch normalisation; 2, 2, 3, 3, 3 convolutions make VGG-16."""
    from torch import nn

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
    from torch import nn

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
    from torch import nn

    def fire(width: int, inner: int, out: int) -> nn.Module:
        one = nn.Sequential(nn.Conv2d(inner, out, 1), nn.ReLU())
        three = nn.Sequential(nn.Conv2d(inner, out, 3, padding=1), nn.ReLU())
        return nn.Sequential(nn.Conv2d(width, inner, 1), nn.ReLU(), joined()(one, three))

    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(fire(64, 16, 64), fire(128, 16, 64), nn.MaxPool2d(3, 2)),
        *(fire(128, 32, 128), fire(256, 32, 128), nn.MaxPool2d(3, 2)),
        *(fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256)),
        *(nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


def densenet(depths: Sequence[int], growth: int = 32) -> "nn.Module":
    """DenseNets; 6, 12, 24, 16 layers make DenseNet-121."""
    from torch import nn

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
            layers.append(joined()(nn.Identity(), new))
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
    from torch import nn

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
            layers.append(sum_of()(body, nn.Identity()) if same else body)
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
    from torch import nn

    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), nn.GroupNorm(1, width)]
    for stage, depth in enumerate(depths):
        if stage:
            layers += [nn.GroupNorm(1, width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        for _ in range(depth):
            spatial = nn.Conv2d(width, width, 7, padding=3, groups=width)
            mixing = (nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))
            body = nn.Sequential(spatial, nn.GroupNorm(1, width), *mixing)
            layers.append(sum_of()(nn.Identity(), body))
    return nn.Sequential(*layers, *classifier(width))


def unet() -> "nn.Module":
    """A U-Net of five levels, 64 channels at the top."""
    from torch import nn

    def double(width: int, out: int) -> nn.Module:
        return nn.Sequential(conv(width, out, act=nn.ReLU), conv(out, out, act=nn.ReLU))

    level = double(512, 1024)
    for width in (512, 256, 128, 64):
        up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        below = nn.Sequential(nn.MaxPool2d(2), level, up)
        level = around()(
            double(3 if width == 64 else width // 2, width), below, double(2 * width, width)
        )
    return nn.Sequential(level, nn.Conv2d(64, 2, 1))


def vit(width: int, depth: int, heads: int, patch: int = 16) -> "nn.Module":
    """Vision transformer with the mean of its patches in place of a class token."""
    from torch import nn

    patches = embedded()(nn.Conv2d(3, width, patch, patch), (224 // patch) ** 2, width)
    blocks = (encoder_block(width, heads) for _ in range(depth))
    pooled = swapped()(nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten()), back=False)
    return nn.Sequential(patches, *blocks, nn.LayerNorm(width), pooled, nn.Linear(width, 1000))


def mixer(width: int, depth: int, patch: int = 16) -> "nn.Module":
    """MLP-Mixer."""
    from torch import nn

    count = (224 // patch) ** 2

    def mlp(size: int, inner: int) -> nn.Module:
        return nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Linear(inner, size))

    def block() -> nn.Module:
        across = nn.Sequential(nn.LayerNorm(width), swapped()(mlp(count, width // 2)))
        within = nn.Sequential(nn.LayerNorm(width), mlp(width, 4 * width))
        both = (sum_of()(nn.Identity(), across), sum_of()(nn.Identity(), within))
        return nn.Sequential(*both)

    patches = embedded()(nn.Conv2d(3, width, patch, patch), count, width)
    pooled = swapped()(nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten()), back=False)
    blocks = (block() for _ in range(depth))
    return nn.Sequential(patches, *blocks, nn.LayerNorm(width), pooled, nn.Linear(width, 1000))
