"""A zoo of networks in plain torch: published shapes, random weights, no download.

Names end in the image's side or the sequence's length where it is not 224 pixels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, log2
from typing import TYPE_CHECKING, Any, Literal

from forerun.data.collectors.workloads import torch_language as language
from forerun.data.collectors.workloads import torch_vision as vision

if TYPE_CHECKING:
    from torch import Tensor, nn

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
    def family(self) -> Literal["vision", "language"]:
        """Kind of its input: images or text."""
        return "language" if self.entries else "vision"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Batch sizes to measure: 1, the largest that is quick on a GPU, and one between."""
        doublings = min(8, max(2, floor(log2(QUICK_GFLOPS / self.gflops))))
        return 1, 1 << round(doublings / 2), 1 << doublings

    def example(self, batch_size: int, device: str, dtype: Any = None) -> "Tensor":
        """A random input of `batch_size` samples."""
        import torch

        shape = (batch_size, *self.shape)
        if self.entries:
            return torch.randint(self.entries, shape, device=device)
        return torch.randn(shape, device=device, dtype=dtype)


def _text(build: Callable[[], "nn.Module"], length: int, entries: int, gflops: float) -> Definition:
    return Definition(build, (length,), entries, gflops)


def _image(build: Callable[[], "nn.Module"], side: int, gflops: float) -> Definition:
    return Definition(build, (3, side, side), gflops=gflops)


NETWORKS: Mapping[str, Definition] = {
    "resnet18": Definition(lambda: vision.resnet((2, 2, 2, 2), deep=False), gflops=3.6),
    "resnet34": Definition(lambda: vision.resnet((3, 4, 6, 3), deep=False), gflops=7.3),
    "resnet50": Definition(lambda: vision.resnet((3, 4, 6, 3)), gflops=8.2),
    "resnet101": Definition(lambda: vision.resnet((3, 4, 23, 3)), gflops=15.6),
    "resnet152": Definition(lambda: vision.resnet((3, 8, 36, 3)), gflops=23.0),
    "resnext50-32x4d": Definition(lambda: vision.resnet((3, 4, 6, 3), 4, 32), gflops=8.5),
    "resnext101-32x8d": Definition(lambda: vision.resnet((3, 4, 23, 3), 8, 32), gflops=32.8),
    "wide-resnet50": Definition(lambda: vision.resnet((3, 4, 6, 3), 128), gflops=22.8),
    "wide-resnet101": Definition(lambda: vision.resnet((3, 4, 23, 3), 128), gflops=45.5),
    "vgg11": Definition(lambda: vision.vgg((1, 1, 2, 2, 2)), gflops=15.2),
    "vgg16": Definition(lambda: vision.vgg((2, 2, 3, 3, 3)), gflops=31.0),
    "vgg19": Definition(lambda: vision.vgg((2, 2, 4, 4, 4)), gflops=39.3),
    "alexnet": Definition(vision.alexnet, gflops=1.4),
    "squeezenet": Definition(vision.squeezenet, gflops=0.7),
    "densenet121": Definition(lambda: vision.densenet((6, 12, 24, 16)), gflops=5.7),
    "densenet161": Definition(lambda: vision.densenet((6, 12, 36, 24), 48), gflops=15.5),
    "densenet169": Definition(lambda: vision.densenet((6, 12, 32, 32)), gflops=6.7),
    "mobilenet-v2": Definition(vision.mobilenet_v2, gflops=0.6),
    "mobilenet-v2-050": Definition(lambda: vision.mobilenet_v2(0.5), gflops=0.19),
    "mobilenet-v2-140": Definition(lambda: vision.mobilenet_v2(1.4), gflops=1.2),
    "efficientnet-b0": Definition(vision.efficientnet, gflops=0.8),
    "efficientnet-b1-240": _image(lambda: vision.efficientnet(1.0, 1.1), 240, 1.4),
    "efficientnet-b2-288": _image(lambda: vision.efficientnet(1.1, 1.2), 288, 2.2),
    "efficientnet-b3-300": _image(lambda: vision.efficientnet(1.2, 1.4), 300, 3.7),
    "convnext-tiny": Definition(lambda: vision.convnext(96, (3, 3, 9, 3)), gflops=8.9),
    "convnext-small": Definition(lambda: vision.convnext(96, (3, 3, 27, 3)), gflops=17.4),
    "convnext-base": Definition(lambda: vision.convnext(128, (3, 3, 27, 3)), gflops=30.7),
    "unet-128": _image(vision.unet, 128, 24.1),
    "unet-256": _image(vision.unet, 256, 96.0),
    "unet-512": _image(vision.unet, 512, 385.4),
    "vit-tiny": Definition(lambda: vision.vit(192, 12, 3), gflops=2.5),
    "vit-small": Definition(lambda: vision.vit(384, 12, 6), gflops=9.2),
    "vit-small-p32": Definition(lambda: vision.vit(384, 12, 6, 32), gflops=2.2),
    "vit-base": Definition(lambda: vision.vit(768, 12, 12), gflops=35.0),
    "vit-base-p8": Definition(lambda: vision.vit(768, 12, 12, 8), gflops=156.1),
    "vit-base-p32": Definition(lambda: vision.vit(768, 12, 12, 32), gflops=8.6),
    "vit-large": Definition(lambda: vision.vit(1024, 24, 16), gflops=123.0),
    "vit-huge-p14": Definition(lambda: vision.vit(1280, 32, 16, 14), gflops=333.2),
    "mixer-small": Definition(lambda: vision.mixer(512, 8), gflops=7.6),
    "mixer-base": Definition(lambda: vision.mixer(768, 12), gflops=25.0),
    "mixer-base-p32": Definition(lambda: vision.mixer(768, 12, 32), gflops=6.5),
    "mixer-large": Definition(lambda: vision.mixer(1024, 24), gflops=89.1),
    "bert-tiny-128": _text(lambda: language.bert(128, 2, 2, 128), 128, 30522, 0.12),
    "bert-mini-128": _text(lambda: language.bert(256, 4, 4, 128), 128, 30522, 0.87),
    "bert-small-128": _text(lambda: language.bert(512, 4, 8, 128), 128, 30522, 3.4),
    "bert-medium-512": _text(lambda: language.bert(512, 8, 8, 512), 512, 30522, 30.1),
    "bert-base-128": _text(lambda: language.bert(768, 12, 12, 128), 128, 30522, 22.0),
    "bert-base-512": _text(lambda: language.bert(768, 12, 12, 512), 512, 30522, 96.6),
    "bert-large-128": _text(lambda: language.bert(1024, 24, 16, 128), 128, 30522, 78.9),
    "bert-large-384": _text(lambda: language.bert(1024, 24, 16, 384), 384, 30522, 246.0),
    "gpt2-small-256": _text(lambda: language.gpt(768, 12, 12, 256), 256, 50257, 66.0),
    "gpt2-small-1024": _text(lambda: language.gpt(768, 12, 12, 1024), 1024, 50257, 291.6),
    "gpt2-medium-256": _text(lambda: language.gpt(1024, 24, 16, 256), 256, 50257, 187.4),
    "gpt2-medium-1024": _text(lambda: language.gpt(1024, 24, 16, 1024), 1024, 50257, 828.0),
    "gpt2-large-512": _text(lambda: language.gpt(1280, 36, 20, 512), 512, 50257, 839.0),
    "gpt2-xl-256": _text(lambda: language.gpt(1600, 48, 25, 256), 256, 50257, 816.3),
    "llama-1b-128": _text(lambda: language.llama(2048, 16, 32, 8, 8192, 128), 128, 32000, 268.0),
    "llama-1b-512": _text(lambda: language.llama(2048, 16, 32, 8, 8192, 512), 512, 32000, 1098.0),
    "llama-3b-256": _text(lambda: language.llama(3072, 28, 24, 8, 8192, 256), 256, 32000, 1516.0),
    "tinyllama-1b-256": _text(
        lambda: language.llama(2048, 22, 32, 4, 5632, 256), 256, 32000, 541.4
    ),
    "lstm-2x650-35": _text(lambda: language.lstm(650, 2, 35), 35, 10000, 0.93),
    "lstm-2x1024-64": _text(lambda: language.lstm(1024, 2, 64), 64, 10000, 3.5),
    "lstm-2x1500-35": _text(lambda: language.lstm(1500, 2, 35), 35, 10000, 3.6),
}
"""Name -> network."""
