"""A zoo of networks in plain torch: shapes as published, weights made up, no download.

Names end in the image's side or the sequence's length where it is not 224 pixels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from forerun.data.collectors import torch_language as language
from forerun.data.collectors import torch_vision as vision

if TYPE_CHECKING:
    from torch import Tensor, nn

IMAGE = (3, 224, 224)


@dataclass(frozen=True, slots=True)
class Definition:
    """A network that can be built.

    Attributes:
        build: makes the module on torch's default device.
        shape: of one input, without the batch.
        entries: tokens to choose from; 0 where the input is an image.
        gflops: of one forward pass at batch size 1, a multiply-add counting as two.
        sizes: batch sizes worth measuring.
    """

    build: Callable[[], "nn.Module"]
    shape: tuple[int, ...] = IMAGE
    entries: int = 0
    gflops: float = 1.0
    sizes: tuple[int, ...] = (1, 16, 64, 256)

    @property
    def family(self) -> Literal["vision", "language"]:
        """What the input is."""
        return "language" if self.entries else "vision"

    def example(self, batch_size: int, device: str, dtype: Any = None) -> "Tensor":
        """An input at a batch size."""
        import torch

        shape = (batch_size, *self.shape)
        if self.entries:
            return torch.randint(self.entries, shape, device=device)
        return torch.randn(shape, device=device, dtype=dtype)


def _text(build: Callable[[], "nn.Module"], length: int, entries: int, gflops: float) -> Definition:
    return Definition(build, (length,), entries, gflops, (1, 4, 16, 64))


NETWORKS: Mapping[str, Definition] = {
    "resnet18": Definition(lambda: vision.resnet((2, 2, 2, 2), deep=False), gflops=3.6),
    "resnet50": Definition(lambda: vision.resnet((3, 4, 6, 3)), gflops=8.2),
    "resnext50-32x4d": Definition(lambda: vision.resnet((3, 4, 6, 3), 4, 32), gflops=8.5),
    "wide-resnet50": Definition(lambda: vision.resnet((3, 4, 6, 3), 128), gflops=22.8),
    "vgg16": Definition(vision.vgg16, gflops=31.0, sizes=(1, 16, 64)),
    "alexnet": Definition(vision.alexnet, gflops=1.4),
    "squeezenet": Definition(vision.squeezenet, gflops=0.7),
    "densenet121": Definition(vision.densenet121, gflops=5.7),
    "mobilenet-v2": Definition(vision.mobilenet_v2, gflops=0.6),
    "efficientnet-b0": Definition(vision.efficientnet_b0, gflops=0.8),
    "convnext-tiny": Definition(vision.convnext_tiny, gflops=8.9),
    "unet-256": Definition(vision.unet, (3, 256, 256), gflops=96.0, sizes=(1, 4, 16)),
    "vit-small": Definition(lambda: vision.vit(384, 12, 6), gflops=9.2),
    "vit-base": Definition(lambda: vision.vit(768, 12, 12), gflops=35.0),
    "vit-large": Definition(lambda: vision.vit(1024, 24, 16), gflops=123.0, sizes=(1, 8, 64)),
    "mixer-base": Definition(lambda: vision.mixer(768, 12), gflops=25.0),
    "bert-base-128": _text(lambda: language.bert(768, 12, 12, 128), 128, 30522, 22.0),
    "bert-large-384": _text(lambda: language.bert(1024, 24, 16, 384), 384, 30522, 246.0),
    "gpt2-small-256": _text(lambda: language.gpt(768, 12, 12, 256), 256, 50257, 66.0),
    "gpt2-medium-1024": _text(lambda: language.gpt(1024, 24, 16, 1024), 1024, 50257, 828.0),
    "llama-1b-512": _text(lambda: language.llama(2048, 16, 32, 8, 8192, 512), 512, 32000, 1098.0),
    "lstm-2x1024-64": _text(lambda: language.lstm(1024, 2, 64), 64, 10000, 3.5),
}
"""Name -> network."""
