"""Networks that published tables time, built on the meta device and traced, each under a name.

A name says network, input and, for transformers, head and attention: `bert_base_mlm-256-sdpa`.
Every entry says where its configuration stands; what is not certain is not here.

    python -m forerun.features.published_zoo FILE.parquet

traces all of them anew (minutes; needs the `zoo` and `train` extras) and writes the table that
comes with the dataset `published_networks`.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.features.model_zoo import build, is_installed
from forerun.features.published_modules import (
    einsum_as_products,
    ssd300,
    wide_squeeze_efficientnet,
    with_dense_head,
    with_stored_positions,
)
from forerun.features.readers.torch_trace import trace_module
from forerun.features.readers.torchvision_operators import declare_operators

if TYPE_CHECKING:
    import pandas as pd

COCO_IMAGE: Final = (800, 1066)
"""Height and width of COCO image 000000039769 (640 x 480), which transformers' benchmark runs,
after its shorter side is scaled to 800."""

_EXAMPLES: Final = "NVIDIA/DeepLearningExamples, PyTorch"
_CLASSIFIERS: Final = "ultralytics/yolov5, README.md: classification checkpoints of torchvision"
_HUB: Final = "config.json on huggingface.co of"

Inputs = Mapping[str, tuple[int, ...]]
"""Keyword argument of `forward` -> shape at batch 1; `*_ids` and masks are integers."""


@dataclass(frozen=True)
class Built:
    """A network made by a function.

    Attributes:
        configuration: where the configuration stands.
        make: returns the module, on whatever device is the default.
        shape: of its one input, at batch 1.
    """

    configuration: str
    make: Callable[[], Any]
    shape: tuple[int, ...]

    def traced(self) -> OperatorGraph:
        """The graph at batch 1."""
        import torch

        with torch.device("meta"):
            module = self.make()
        return trace_module(module, (torch.empty(self.shape, device="meta"),))


@dataclass(frozen=True)
class Transformer:
    """A network of transformers, from fields of its configuration.

    Attributes:
        configuration: where the configuration stands.
        architecture: class of the network.
        config: class of its configuration.
        inputs: of `forward`.
        attention: `eager` (matrix products and a softmax) or `sdpa` (one fused operator).
        fields: of the configuration, where they are not the class's defaults.
        wrap: puts a head or the like around the network.
    """

    configuration: str
    architecture: str
    config: str
    inputs: Inputs
    attention: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] | None = None

    def traced(self) -> OperatorGraph:
        """The graph at batch 1."""
        import torch
        import transformers

        config = getattr(transformers, self.config)(**self.fields)
        config._attn_implementation = self.attention
        config.use_cache = False
        with torch.device("meta"):
            module = getattr(transformers, self.architecture)(config)
            module = self.wrap(module) if self.wrap else module
        given = {
            name: torch.empty(
                shape,
                dtype=torch.int64 if name.endswith(("_ids", "_mask")) else torch.float32,
                device="meta",
            )
            for name, shape in self.inputs.items()
        }
        with einsum_as_products():
            return trace_module(module, (), given)


Source = Built | Transformer


def published_graph(name: str) -> OperatorGraph:
    """The graph of a published network at batch 1, traced anew.

    Args:
        name: a key of `networks()`.

    Raises:
        MissingExtra: torch, torchvision, timm or transformers is not installed.
        UnreadableModel: there is no such network, or it cannot be traced.
    """
    if not is_installed():
        raise MissingExtra("Building a published network", "zoo")
    known = networks()
    if name not in known:
        raise UnreadableModel(name, f"there are {', '.join(sorted(known))}.")
    declare_operators()
    return known[name].traced()


def networks() -> dict[str, Source]:
    """All published networks that can be traced, by name."""
    return dict((*_convolutional(), *_bert(), *_language(), *_vision(), *_detection()))


def graph_table(names: Sequence[str] = ()) -> "pd.DataFrame":
    """One row a network: `graph`, `configuration`, `operators` and `content` (the graph's JSON).

    Args:
        names: networks to trace; all when empty.

    Raises:
        MissingExtra, UnreadableModel: as in `published_graph`.
    """
    import pandas as pd

    rows = []
    for name, source in networks().items():
        if names and name not in names:
            continue
        graph = published_graph(name)
        content = json.dumps(graph.to_json(), sort_keys=True, separators=(",", ":"))
        row = {"graph": name, "configuration": source.configuration}
        rows.append({**row, "operators": len(graph), "content": content})
    return pd.DataFrame(rows)


def read_graphs(table: "pd.DataFrame") -> dict[str, OperatorGraph]:
    """Graphs of a table as `graph_table` writes it, by name.

    Raises:
        KeyError, ValueError: it is no such table.
    """
    contents = zip(table["graph"], table["content"], strict=True)
    return {str(name): OperatorGraph.from_json(json.loads(text)) for name, text in contents}


Entry = tuple[str, Source]


_ULTRALYTICS: Final = (
    *("resnet18", "resnet34", "resnet101"),
    *("efficientnet_b1", "efficientnet_b2", "efficientnet_b3"),
)
"""Networks of torchvision that YOLOv5 times as classifiers, all at 224 pixels."""


def _convolutional() -> Iterator[Entry]:
    """Classifiers and SSD of NVIDIA's examples."""
    where = f"{_EXAMPLES}/Classification/ConvNets/image_classification/models"
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
                lambda timm_name=timm_name, side=side: build(timm_name, side),
                (1, 3, side, side),
            ),
        )
    for size, width, depth, side in (("b0", 1.0, 1.0, 224), ("b4", 1.4, 1.8, 380)):
        yield (
            f"efficientnet_widese_{size}-{side}",
            Built(
                f"{where}/efficientnet.py: squeeze width a quarter of the expanded one",
                lambda width=width, depth=depth: wide_squeeze_efficientnet(width, depth),
                (1, 3, side, side),
            ),
        )
    yield "ssd300_resnet50-300", Built(f"{_EXAMPLES}/Detection/SSD", ssd300, (1, 3, 300, 300))


_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


def _bert() -> Iterator[Entry]:
    """BERT: NVIDIA's large one, transformers' base one; ALBERT."""
    where = f"{_EXAMPLES}/LanguageModeling/BERT/bert_configs/large.json"
    yield (
        "bert_large_squad-384-eager",
        Transformer(
            f"{where}; run_squad.py: max_seq_length 384",
            *("BertForQuestionAnswering", "BertConfig", _masked_tokens(384), "eager", _LARGE),
        ),
    )
    for length, positions in ((128, 20), (512, 80)):
        yield (
            f"bert_large_pretraining-{length}-eager",
            Transformer(
                f"{where}; run_pretraining.sh: {positions} masked positions of {length}, and the "
                "head runs on these alone",
                *("BertForPreTraining", "BertConfig", _masked_tokens(length), "eager", _LARGE),
                wrap=lambda module, positions=positions: with_dense_head(module, positions),
            ),
        )
    albert = {
        **{"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        **{"embedding_size": 128, "vocab_size": 30000},
    }
    for attention in ("eager", "sdpa"):
        for length in (128, 256, 512):
            tokens = _masked_tokens(length)
            for name, architecture, config, fields, hub in (
                ("bert_base", "BertModel", "BertConfig", {}, "google-bert/bert-base-uncased"),
                ("bert_base_mlm", "BertForMaskedLM", "BertConfig", {}, "bert-base-uncased"),
                (
                    *("albert_base", "AlbertForSequenceClassification", "AlbertConfig"),
                    *(albert, "albert/albert-base-v2"),
                ),
                (
                    *("albert_base_mlm", "AlbertForMaskedLM", "AlbertConfig"),
                    *(albert, "albert/albert-base-v2"),
                ),
            ):
                source = Transformer(
                    f"{_HUB} {hub}; heads of the authors' scripts: sequence classification or none "
                    "for inference, masked tokens for training",
                    *(architecture, config, tokens, attention, fields),
                )
                yield f"{name}-{length}-{attention}", source


def _language() -> Iterator[Entry]:
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
                    f"{_HUB} microsoft/biogpt, the defaults of BioGptConfig",
                    *("BioGptForCausalLM", "BioGptConfig", _masked_tokens(length), attention),
                ),
            )
        for length in (128, 256, 512, 1024, 2048):
            yield (
                f"pythia_410m-{length}-{attention}",
                Transformer(
                    f"{_HUB} EleutherAI/pythia-410m-deduped",
                    *("GPTNeoXForCausalLM", "GPTNeoXConfig", _masked_tokens(length), attention),
                    pythia,
                ),
            )


_BEIT = {
    **{"use_relative_position_bias": True, "use_mean_pooling": True},
    **{"use_absolute_position_embeddings": False, "layer_scale_init_value": 0.1},
}


def _vision() -> Iterator[Entry]:
    """Classifiers and segmenters of transformers."""
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
        (
            *("deit_base_distilled", "DeiTForImageClassificationWithTeacher", "DeiTConfig"),
            *({"num_labels": 1000}, "facebook/deit-base-distilled-patch16-224"),
        ),
        ("vit_msn_base", "ViTMSNModel", "ViTMSNConfig", {}, "facebook/vit-msn-base"),
    ):
        for attention in ("eager", "sdpa"):
            wrap = with_stored_positions if name == "beit_base_22k" else None
            yield (
                f"{name}-224-{attention}",
                Transformer(f"{_HUB} {hub}", architecture, config, image, attention, fields, wrap),
            )
    yield from _speech_and_video()
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
        source = Transformer(f"{_HUB} {hub}", architecture, config, pixels, "eager", fields)
        yield f"{name}-{side}", source


def _speech_and_video() -> Iterator[Entry]:
    """Transformers over patches of spectrograms and of clips; SAM's image encoder."""
    for attention in ("eager", "sdpa"):
        yield (
            f"ast_base-1024-{attention}",
            Transformer(
                f"{_HUB} MIT/ast-finetuned-audioset-10-10-0.4593",
                *("ASTForAudioClassification", "ASTConfig", {"input_values": (1, 1024, 128)}),
                *(attention, {"num_labels": 527}),
            ),
        )
        yield (
            f"videomae_base-16x224-{attention}",
            Transformer(
                f"{_HUB} MCG-NJU/videomae-base-finetuned-kinetics",
                *("VideoMAEForVideoClassification", "VideoMAEConfig"),
                *({"pixel_values": (1, 16, 3, 224, 224)}, attention),
                {"num_labels": 400, "use_mean_pooling": True},
            ),
        )
    huge = {
        **{"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16},
        "global_attn_indexes": [7, 15, 23, 31],
    }
    for size, fields in (("b", {}), ("h", huge)):
        yield (
            f"sam_vit_{size}_encoder-1024",
            Transformer(
                f"{_HUB} facebook/sam-vit-{'base' if size == 'b' else 'huge'}: the image encoder; "
                "the decoder is some per cent of it",
                *("SamVisionModel", "SamVisionConfig", {"pixel_values": (1, 3, 1024, 1024)}),
                *("eager", fields),
            ),
        )


def _detection() -> Iterator[Entry]:
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
            f"{_HUB} {name.replace('_', '-')}; image of perf_torch_compile.md",
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
        where = f"{_HUB} {hub}; image of perf_torch_compile.md"
        source = Transformer(where, architecture, config, padded, "eager", fields)
        yield f"{name}-{sides[0]}x{sides[1]}", source


def _masked_tokens(length: int) -> Inputs:
    return {"input_ids": (1, length), "attention_mask": (1, length)}


if __name__ == "__main__":
    graph_table().to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
