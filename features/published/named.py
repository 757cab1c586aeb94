"""Networks that requests may name: traced on the meta device, without weights.

    python -m forerun.features.published.named FOLDER

traces all of them anew (a minute; needs the `zoo` and `train` extras) and writes the files that
come with the package in `data/named/network_graphs`.
"""

import json
import lzma
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from forerun.data.graph import OperatorGraph
from forerun.data.named.networks import DIGESTS
from forerun.features.readers import read_graph
from forerun.features.readers.model_zoo import zoo_graph
from forerun.features.readers.torch_trace import trace_module

SIDE: Final = 224
"""Height and width of pictures, pixels."""

TIMM: Final[Mapping[str, str]] = {
    "convnext-tiny": "convnext_tiny",
    "convnext-small": "convnext_small",
    "convnext-base": "convnext_base",
    "densenet121": "densenet121",
    "densenet161": "densenet161",
    "densenet169": "densenet169",
    "densenet201": "densenet201",
    "efficientnet-b0": "efficientnet_b0",
    "mobilenet-v2": "mobilenetv2_100",
    "mobilenet-v3": "mobilenetv3_large_100",
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "resnext50-32x4d": "resnext50_32x4d",
    "resnext101-32x8d": "resnext101_32x8d",
    "swin-tiny": "swin_tiny_patch4_window7_224",
    "swin-small": "swin_small_patch4_window7_224",
    "swin-base": "swin_base_patch4_window7_224",
    "vgg11": "vgg11",
    "vgg16": "vgg16",
    "vgg19": "vgg19",
    "vit-small": "vit_small_patch16_224",
    "vit-base": "vit_base_patch16_224",
    "vit-large": "vit_large_patch16_224",
    "wide-resnet50-2": "wide_resnet50_2",
    "wide-resnet101-2": "wide_resnet101_2",
}
"""Name -> name of the architecture in timm."""
TORCHVISION: Final = ("alexnet", "googlenet", "shufflenet-v2-x1-0", "squeezenet1-1")
"""Networks that timm does not have, by their names in torchvision with hyphens."""

_GPT2: Final[Mapping[str, Any]] = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
_LLAMA: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
}
TEXT: Final[Mapping[str, tuple[int, Mapping[str, Any]]]] = {
    "bert-base": (128, {"model_type": "bert", "architectures": ["BertModel"]}),
    "bert-large": (
        128,
        {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
    "distilbert": (128, {"model_type": "distilbert", "architectures": ["DistilBertModel"]}),
    "roberta-base": (
        128,
        {"model_type": "roberta", "architectures": ["RobertaModel"], "vocab_size": 50265},
    ),
    "gpt2": (1024, _GPT2),
    "gpt2-medium": (1024, {**_GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": (1024, {**_GPT2, "n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "gpt2-xl": (1024, {**_GPT2, "n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "llama-3-8b": (
        2048,
        {
            **_LLAMA,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "head_dim": 128,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
    ),
    "llama-3.2-1b": (
        2048,
        {
            **_LLAMA,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
    ),
    "t5-small": (
        128,
        {
            "model_type": "t5",
            "architectures": ["T5EncoderModel"],
            "d_model": 512,
            "d_ff": 2048,
            "num_layers": 6,
            "num_heads": 8,
            "d_kv": 64,
        },
    ),
}
"""Name -> tokens of the input, and the published `config.json` as far as it differs from the
defaults of transformers."""


def named_networks() -> Iterator[tuple[str, OperatorGraph]]:
    """Name and graph of every network, at batch size 1."""
    for name, architecture in TIMM.items():
        yield name, zoo_graph(architecture, SIDE)
    for name in TORCHVISION:
        yield name, _of_torchvision(name.replace("-", "_"))
    for name, (tokens, configuration) in TEXT.items():
        content = json.dumps(configuration).encode()
        yield name, read_graph(content, sequence_length=tokens)


def _of_torchvision(name: str) -> OperatorGraph:
    import torch
    from torchvision.models import get_model

    auxiliary = {"aux_logits": False} if name == "googlenet" else {}
    with torch.device("meta"):
        module = get_model(name, weights=None, **auxiliary).eval()
        return trace_module(module, (torch.empty(1, 3, SIDE, SIDE),))


def main(folder: Path) -> None:
    """Write the graph of every network as `NAME.json.xz`, and the digests of all."""
    digests = {}
    for name, graph in named_networks():
        content = json.dumps(graph.to_json(), separators=(",", ":")).encode()
        (folder / f"{name}.json.xz").write_bytes(lzma.compress(content, preset=9))
        digests[name] = graph.digest
    text = json.dumps(digests, indent=1, sort_keys=True) + "\n"
    (folder / DIGESTS).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
