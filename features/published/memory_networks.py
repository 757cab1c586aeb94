"""Networks of published memory tables without latencies: BERT's classifier, Llama, ViT, ViViT."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from forerun.features.published.language import bert, decoders
from forerun.features.published.modules import with_summed_logits
from forerun.features.published.sources import HUB, Built, Entry, Inputs, Transformer

_LARGE: Final = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_LLAMA_3: Final = {"vocab_size": 128256, "num_key_value_heads": 8, "rope_theta": 500000.0}
LLAMAS: Final = {
    "llama_3.2_3b": (
        "meta-llama/Llama-3.2-3B",
        {
            **_LLAMA_3,
            **{"hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24},
            **{"head_dim": 128, "intermediate_size": 8192, "tie_word_embeddings": True},
        },
    ),
    "llama_3.1_8b": (
        "meta-llama/Llama-3.1-8B",
        {
            **_LLAMA_3,
            **{"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
            "intermediate_size": 14336,
        },
    ),
    "llama_3.1_70b": (
        "meta-llama/Llama-3.1-70B",
        {
            **_LLAMA_3,
            **{"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64},
            "intermediate_size": 28672,
        },
    ),
}
"""Name -> checkpoint and fields of its configuration."""

LENGTHS: Final = (
    ("llama_3.2_3b", 768),
    ("llama_3.2_3b", 4096),
    ("llama_3.1_8b", 4096),
    ("llama_3.1_70b", 8192),
)
"""Llama and tokens of a sequence in the tables."""


SUMMED: Final = re.compile(r"(?:bert_base_mlm-(?:256|512)|biogpt-(?:128|256))-sdpa")
"""Networks trained without a loss: the gradient was that of the sum of their logits, since their
peaks leave no room for a cross-entropy."""


def without_loss() -> Iterator[Entry]:
    """BERT and BioGPT that end in the sum of their logits."""
    for name, source in (*bert(), *decoders()):
        if SUMMED.fullmatch(name) and isinstance(source, Transformer):
            summed = replace(source, wrap=with_summed_logits)
            yield name.replace("-sdpa", "-sum"), summed


def encoders() -> Iterator[Entry]:
    """BERT large with a classifier on 512 tokens, and ViViT on 32 frames of 224 pixels."""
    words: Inputs = {"input_ids": (1, 512), "attention_mask": (1, 512)}
    yield (
        "bert_large_classification-512",
        Transformer(
            f"{HUB} google-bert/bert-large-uncased",
            *("BertForSequenceClassification", "BertConfig", words, "sdpa", _LARGE),
        ),
    )
    frames: Inputs = {"pixel_values": (1, 32, 3, 224, 224)}
    yield (
        "vivit_b-32x224-sdpa",
        Transformer(
            f"{HUB} google/vivit-b-16x2-kinetics400",
            *("VivitForVideoClassification", "VivitConfig", frames, "sdpa"),
            {"num_labels": 400},
        ),
    )


def llamas() -> Iterator[Entry]:
    """Llama over whole sequences, with fused attention."""
    for name, length in LENGTHS:
        hub, fields = LLAMAS[name]
        tokens: Inputs = {"input_ids": (1, length)}
        source = Transformer(
            f"{HUB} {hub}", "LlamaForCausalLM", "LlamaConfig", tokens, "sdpa", fields
        )
        yield f"{name}-{length}", source


def large_vision() -> Iterator[Entry]:
    """Timm's largest ViTs, with the 45 classes of RESISC45."""
    for name, model, fields in (
        ("vit_huge_patch14-224", "vit_huge_patch14_224", {}),
        ("vit_giant_patch14-224", "vit_giant_patch14_dinov2", {"img_size": 224}),
    ):
        where = f"timm {model} with 45 classes (torchao/benchmarks/benchmark_low_bit_adam.py)"
        yield name, Built(where, partial(_timm, model, fields), (1, 3, 224, 224))


def _timm(model: str, fields: dict[str, Any]) -> Any:
    import timm

    return timm.create_model(model, pretrained=False, num_classes=45, **fields)
