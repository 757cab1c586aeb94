"""Graphs of networks whose latency published tables list, each under a name.

A name says network, input and, for transformers, head and attention: `bert_base_mlm-256-sdpa`.
Every entry says where its configuration is published; uncertain networks are left out.

    python -m forerun.features.published.zoo FILE.parquet

traces all of them anew (minutes; needs the `zoo` and `train` extras) and writes the table that
comes with the dataset `published_networks`.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forerun.data.errors import MissingExtra
from forerun.data.graph import OperatorGraph
from forerun.features.published.sources import (
    EXAMPLES,
    HUB,
    Built,
    Entry,
    Inputs,
    Source,
    Transformer,
    ssd300,
    wide_squeeze_efficientnet,
    with_dense_head,
    with_stored_positions,
)
from forerun.features.readers.model_zoo import build, is_installed
from forerun.features.readers.torch_trace import declare_operators

if TYPE_CHECKING:
    import pandas as pd

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


_HEADS: Final = (
    "heads of the authors' scripts: sequence classification or none for inference, masked tokens "
    "for training"
)
_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


def bert() -> Iterator[Entry]:
    """BERT: NVIDIA's large one, transformers' base one; ALBERT."""
    where = f"{EXAMPLES}/LanguageModeling/BERT/bert_configs/large.json"
    yield (
        "bert_large_squad-384-eager",
        Transformer(
            f"{where}; run_squad.py: max_seq_length 384",
            *("BertForQuestionAnswering", "BertConfig", _masked_tokens(384), "eager", _LARGE),
        ),
    )
    # 20 of the 128 positions are masked, and the vocabulary's head runs on these alone.
    yield (
        "bert_large_pretraining-128-eager",
        Transformer(
            f"{where}; run_pretraining.sh: max_predictions_per_seq 20",
            *("BertForPreTraining", "BertConfig", _masked_tokens(128), "eager", _LARGE),
            wrap=partial(with_dense_head, positions=20),
        ),
    )
    albert = {
        **{"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        **{"embedding_size": 128, "vocab_size": 30000},
    }
    for name, architecture, config, fields, lengths, hub in (
        ("bert_base", "BertModel", "BertConfig", {}, (128, 256), "google-bert/bert-base-uncased"),
        (
            *("bert_base_mlm", "BertForMaskedLM", "BertConfig", {}, (256, 512)),
            "google-bert/bert-base-uncased",
        ),
        (
            *("albert_base", "AlbertForSequenceClassification", "AlbertConfig", albert),
            *((128, 256, 512), "albert/albert-base-v2"),
        ),
        (
            *("albert_base_mlm", "AlbertForMaskedLM", "AlbertConfig", albert),
            *((256, 512), "albert/albert-base-v2"),
        ),
    ):
        where = f"{HUB} {hub}; {_HEADS}"
        for length, attention in product(lengths, ("eager", "sdpa")):
            inputs = _masked_tokens(length)
            source = Transformer(where, architecture, config, inputs, attention, fields)
            yield f"{name}-{length}-{attention}", source


def decoders() -> Iterator[Entry]:
    """Decoders, whole forward passes over a prompt."""
    pythia = {
        **{"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
        **{"intermediate_size": 4096, "vocab_size": 50304, "rotary_pct": 0.25},
        "max_position_embeddings": 2048,
    }
    for attention in ("eager", "sdpa"):
        for length in (64, 128, 256):
            yield (
                f"biogpt-{length}-{attention}",
                Transformer(
                    f"{HUB} microsoft/biogpt, the defaults of BioGptConfig",
                    *("BioGptForCausalLM", "BioGptConfig", _masked_tokens(length), attention),
                ),
            )
        for length in (128, 256, 512, 1024, 2048):
            yield (
                f"pythia_410m-{length}-{attention}",
                Transformer(
                    f"{HUB} EleutherAI/pythia-410m-deduped",
                    *("GPTNeoXForCausalLM", "GPTNeoXConfig", _masked_tokens(length), attention),
                    pythia,
                ),
            )


def _masked_tokens(length: int) -> Inputs:
    return {"input_ids": (1, length), "attention_mask": (1, length)}


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


def networks() -> dict[str, Source]:
    """All published networks that can be traced, by name."""
    return dict(
        (
            *convolutional(),
            *bert(),
            *decoders(),
            *vision(),
            *without_attention(),
            *segment_anything(),
            *detection(),
        )
    )


def graph_table(
    names: Sequence[str] = (),
    sources: Mapping[str, Source] | None = None,
    *,
    marks: bool = False,
) -> "pd.DataFrame":
    """One row per network: `graph`, `configuration`, `operators` and `content` (the graph's JSON).

    Args:
        names: networks to trace; all when empty.
        sources: networks by name; those of `networks()` when None.
        marks: whether operators get the attributes that the memory of training needs.

    Raises:
        MissingExtra: torch, torchvision, timm or transformers is not installed.
        UnreadableModel: a network cannot be traced.
    """
    import pandas as pd

    if not is_installed():
        raise MissingExtra("Building a published network", "zoo")
    declare_operators()
    rows, known = [], networks() if sources is None else sources
    for name, source in known.items():
        if names and name not in names:
            continue
        graph = source.traced(marks=marks)
        content = json.dumps(graph.to_json(), sort_keys=True, separators=(",", ":"))
        row = {"graph": name, "configuration": source.configuration}
        rows.append({**row, "operators": len(graph), "content": content})
    return pd.DataFrame(rows)


def read_graphs(table: "pd.DataFrame") -> dict[str, OperatorGraph]:
    """Graphs of a table as `graph_table` writes it, by name.

    Raises:
        KeyError, ValueError: it is not such a table.
    """
    contents = zip(table["graph"], table["content"], strict=True)
    return {str(name): OperatorGraph.from_json(json.loads(text)) for name, text in contents}


if __name__ == "__main__":
    graph_table().to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
