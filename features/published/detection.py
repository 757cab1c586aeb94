"""DETR and its kin, and segmenters by mask, on the image of transformers' benchmark."""

from collections.abc import Iterator
from typing import Final

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
        fields = {"backbone_config": None, "use_timm_backbone": True, "backbone": backbone}
        fields |= {"use_pretrained_backbone": False, "num_labels": 91, "num_queries": queries}
        source = Transformer(
            f"{HUB} {name.replace('_', '-')}; image of perf_torch_compile.md",
            *(architecture, config, inputs, "eager", fields),
        )
        yield f"{name}-{COCO_IMAGE[0]}x{COCO_IMAGE[1]}", source
    base = {"embed_dim": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]}
    tiny = {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]}
    stages = {"out_features": [f"stage{level}" for level in (1, 2, 3, 4)], "model_type": "swin"}
    # The shorter side of the image becomes 640 and 800; both sides are padded to multiples of 32.
    for name, architecture, config, swin, labels, sides, hub in (
        (
            *("maskformer_swin_base", "MaskFormerForInstanceSegmentation", "MaskFormerConfig"),
            *(base | {"window_size": 12, "image_size": 384}, 150, (640, 864)),
            "facebook/maskformer-swin-base-ade",
        ),
        (
            *("mask2former_swin_tiny", "Mask2FormerForUniversalSegmentation", "Mask2FormerConfig"),
            *(tiny | {"window_size": 7}, 133, (800, 1088)),
            "facebook/mask2former-swin-tiny-coco-panoptic",
        ),
    ):
        padded = {"pixel_values": (1, 3, *sides), "pixel_mask": (1, *sides)}
        fields = {"backbone_config": stages | swin, "num_labels": labels}
        where = f"{HUB} {hub}; image of perf_torch_compile.md"
        source = Transformer(where, architecture, config, padded, "eager", fields)
        yield f"{name}-{sides[0]}x{sides[1]}", source
