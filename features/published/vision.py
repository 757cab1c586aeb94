"""Transformers' vision networks: classifiers, segmenters, and SAM's image encoder."""

from collections.abc import Iterator

from forerun.features.published.modules import with_stored_positions
from forerun.features.published.sources import HUB, Entry, Transformer

_BEIT = {
    **{"use_relative_position_bias": True, "use_mean_pooling": True},
    **{"use_absolute_position_embeddings": False, "layer_scale_init_value": 0.1},
}


def vision() -> Iterator[Entry]:
    """Vision transformers of patches of 16 pixels, with attention in parts and fused."""
    image = {"pixel_values": (1, 3, 224, 224)}
    for name, architecture, config, fields, hub in (
        (
            *("vit_base", "ViTForImageClassification", "ViTConfig"),
            *({"num_labels": 1000}, "google/vit-base-patch16-224"),
        ),
        (
            *("beit_base_22k", "BeitForImageClassification", "BeitConfig"),
            *(_BEIT | {"num_labels": 21841}, "microsoft/beit-base-patch16-224-pt22k-ft22k"),
        ),
        (
            *("beit_base", "BeitForImageClassification", "BeitConfig"),
            *(_BEIT | {"num_labels": 1000}, "microsoft/beit-base-patch16-224"),
        ),
        (
            *("data2vec_base", "Data2VecVisionForImageClassification", "Data2VecVisionConfig"),
            *(_BEIT | {"num_labels": 2}, "facebook/data2vec-vision-base"),
        ),
    ):
        # The tables of torch.compile are older than fused attention.
        old = name in ("vit_base", "beit_base_22k")
        wrap = with_stored_positions if name == "beit_base_22k" else None
        for attention in ("eager",) if old else ("eager", "sdpa"):
            yield (
                f"{name}-224-{attention}",
                Transformer(f"{HUB} {hub}", architecture, config, image, attention, fields, wrap),
            )


def without_attention() -> Iterator[Entry]:
    """Networks that have no choice of attention: convolutional ones and SegFormer."""
    convnext = {"depths": [3, 3, 27, 3], "hidden_sizes": [192, 384, 768, 1536], "num_labels": 1000}
    mobile = {"image_size": 513, "output_stride": 8, "num_labels": 21}
    for name, side, architecture, config, fields, hub in (
        (
            *("resnet50_hf", 224, "ResNetForImageClassification", "ResNetConfig"),
            *({"num_labels": 1000}, "microsoft/resnet-50"),
        ),
        (
            *("convnext_large", 224, "ConvNextForImageClassification", "ConvNextConfig"),
            *(convnext, "facebook/convnext-large-224"),
        ),
        (
            *("segformer_b0", 512, "SegformerForSemanticSegmentation", "SegformerConfig"),
            *({"num_labels": 150}, "nvidia/segformer-b0-finetuned-ade-512-512"),
        ),
        (
            *("deeplabv3_mobilenet_v2", 513, "MobileNetV2ForSemanticSegmentation"),
            *("MobileNetV2Config", mobile, "google/deeplabv3_mobilenet_v2_1.0_513"),
        ),
    ):
        pixels = {"pixel_values": (1, 3, side, side)}
        source = Transformer(f"{HUB} {hub}", architecture, config, pixels, "eager", fields)
        yield f"{name}-{side}", source


def segment_anything() -> Iterator[Entry]:
    """SAM's image encoders."""
    huge = {
        **{"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16},
        "global_attn_indexes": [7, 15, 23, 31],
    }
    for size, fields in (("b", {}), ("h", huge)):
        yield (
            f"sam_vit_{size}_encoder-1024",
            Transformer(
                f"{HUB} facebook/sam-vit-{'base' if size == 'b' else 'huge'}: the image encoder; "
                "the decoder is some per cent of it",
                *("SamVisionModel", "SamVisionConfig", {"pixel_values": (1, 3, 1024, 1024)}),
                *("eager", fields),
            ),
        )
