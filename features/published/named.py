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
from forerun.features.readers import read_graph
from forerun.features.readers.model_zoo import zoo_graph

SIDE: Final = 224
"""Height and width of pictures, pixels."""

VISION: Final[Mapping[str, str]] = {
    "convnext-tiny": "convnext_tiny",
    "densenet121": "densenet121",
    "efficientnet-b0": "efficientnet_b0",
    "mobilenet-v3": "mobilenetv3_large_100",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "swin-tiny": "swin_tiny_patch4_window7_224",
    "vit-base": "vit_base_patch16_224",
}
"""Name -> name of the architecture in timm."""

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
    "gpt2": (1024, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}),
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
    for name, architecture in VISION.items():
        yield name, zoo_graph(architecture, SIDE)
    for name, (tokens, configuration) in TEXT.items():
        content = json.dumps(configuration).encode()
        yield name, read_graph(content, sequence_length=tokens)


def main(folder: Path) -> None:
    """Write the graph of every network as `NAME.json.xz`."""
    for name, graph in named_networks():
        content = json.dumps(graph.to_json(), separators=(",", ":")).encode()
        (folder / f"{name}.json.xz").write_bytes(lzma.compress(content, preset=9))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
