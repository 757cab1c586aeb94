"""DETR and its kin, and segmenters by mask, on the image of transformers' benchmark."""

from collections.abc import Iterator
from typing import Any, Final

from forerun.features.published.sources import HUB, Entry, Transformer

COCO_IMAGE: Final = (800, 1066)
"""Height and width of COCO image 000000039769 (640 x 480), which transformers' benchmark runs,
after its shorter side is scaled to 800."""


def detection() -> Iterator[Entry]:
    """DETR and its kin, on the image of transformers' benchmark."""
    inputs = {"pixel_values": (1, 3, *COCO_IMAGE), "pixel_mask": (1, *COCO_IMAGE)}
    for name, architecture, config, backbone, queries in (
        ("detr_resnet50", "DetrForObjectDetection", "DetrConfig", "resnet50", 100),
        ("detr_resnet101", "DetrForObjectDetection", "DetrConfig", "resnet101", 100),
        (
            *("conditional_detr_resnet50", "ConditionalDetrForObjectDetection"),
            *("ConditionalDetrConfig", "resnet50", 300),
        ),
    ):
        fields: dict[str, Any] = {"backbone_config": None, "use_timm_backbone": True}
        fields |= {"backbone": backbone}
        fields |= {"use_pretrained_backbone": False, "num_labels": 91, "num_queries": queries}
        source = Transformer(
            f"{HUB} {name.replace('_', '-')}; image of perf_torch_compile.md",
            *(architecture, config, inputs, "eager", fields),
        )
        yield f"{name}-{COCO_IMAGE[0]}x{COCO_IMAGE[1]}", source
    base: dict[str, Any] = {"embed_dim": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]}
    base |= {"window_size": 12, "image_size": 384, "model_type": "swin"}
    base["out_features"] = [f"stage{level}" for level in (1, 2, 3, 4)]
    # The image's shorter side becomes 640, and both sides are padded to multiples of 32.
    height, width = 640, 864
    padded = {"pixel_values": (1, 3, height, width), "pixel_mask": (1, height, width)}
    yield (
        f"maskformer_swin_base-{height}x{width}",
        Transformer(
            f"{HUB} facebook/maskformer-swin-base-ade; image of perf_torch_compile.md",
            *("MaskFormerForInstanceSegmentation", "MaskFormerConfig", padded, "eager"),
            {"backbone_config": base, "num_labels": 150},
        ),
    )
