"""Convolutional classifiers, and SSD, of NVIDIA's examples and of YOLOv5's tables."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from forerun.features.published.modules import ssd300, wide_squeeze_efficientnet
from forerun.features.published.sources import EXAMPLES, Built, Entry
from forerun.features.readers.model_zoo import build

_CLASSIFIERS: Final = "ultralytics/yolov5, README.md: classification checkpoints of torchvision"
_ULTRALYTICS: Final = (
    *("resnet18", "resnet34", "resnet101"),
    *("efficientnet_b1", "efficientnet_b2", "efficientnet_b3"),
)
"""Networks of torchvision that YOLOv5 times as classifiers, all at 224 pixels."""


def convolutional() -> Iterator[Entry]:
    """Classifiers and SSD of NVIDIA's examples."""
    where = f"{EXAMPLES}/Classification/ConvNets/image_classification/models"
    for name, timm_name, side in (
        ("resnet50", "resnet50", 224),
        ("seresnext101_32x4d", "seresnext101_32x4d", 224),
        ("efficientnet_b0", "efficientnet_b0", 224),
        ("efficientnet_b4", "efficientnet_b4", 380),
        *((name, name, 224) for name in _ULTRALYTICS),
    ):
        yield (
            f"{name}-{side}",
            Built(
                f"{_CLASSIFIERS if name in _ULTRALYTICS else where}; timm {timm_name}",
                partial(build, timm_name, side),
                (1, 3, side, side),
            ),
        )
    for size, width, depth, side in (("b0", 1.0, 1.0, 224), ("b4", 1.4, 1.8, 380)):
        yield (
            f"efficientnet_widese_{size}-{side}",
            Built(
                f"{where}/efficientnet.py: squeeze width a quarter of the expanded one",
                partial(wide_squeeze_efficientnet, width, depth),
                (1, 3, side, side),
            ),
        )
    yield "ssd300_resnet50-300", Built(f"{EXAMPLES}/Detection/SSD", ssd300, (1, 3, 300, 300))
