"""Networks that questions name as `cases/NAME`: operator graphs of published configurations.

    python -m tests.public_cases.graphs

traces them anew from the fields below (needs the `train` extra); the files in `graphs` are operator
graphs at batch size 1, as the service reads them.
"""

import json
import lzma
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "graphs"

_BERT_LARGE: Final[Mapping[str, Any]] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_VIT: Final[Mapping[str, Any]] = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "num_labels": 1000,
    "image_size": 384,
}


def _bert(**fields: Any) -> dict[str, Any]:
    return {"model_type": "bert", "architectures": ["BertModel"], **fields}


def _llama(vocabulary: int, hidden: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }


def _gpt(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 2048}
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes}


_PHI: Final[Mapping[str, Any]] = {
    "model_type": "phi",
    "architectures": ["PhiForCausalLM"],
    "vocab_size": 51200,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "intermediate_size": 8192,
    "partial_rotary_factor": 0.5,
}

CONFIGURATIONS: Final[Mapping[str, tuple[Mapping[str, Any], int | None]]] = {
    "bert-base-384": (_bert(), 384),
    "bert-large-384": (_bert(**_BERT_LARGE), 384),
    "gpt3-125m-2048": (_gpt(768, 12, 12), 2048),
    "gpt3-1.3b-2048": (_gpt(2048, 24, 16), 2048),
    "llama-2-7b-1304": (_llama(32000, 4096, 32, 32, 11008), 1304),
    "llama-2-13b-1304": (_llama(32000, 5120, 40, 40, 13824), 1304),
    "phi-1.5-1044": (_PHI, 1044),
    "qwen-7b-256": (_llama(151936, 4096, 32, 32, 11008), 256),
    "qwen-7b-1024": (_llama(151936, 4096, 32, 32, 11008), 1024),
    "qwen-7b-2048": (_llama(151936, 4096, 32, 32, 11008), 2048),
    "qwen-7b-8192": (_llama(151936, 4096, 32, 32, 11008), 8192),
    "vit-base-384": (_VIT, None),
}
"""Name -> fields of `config.json`, tokens; Qwen-7B's layers are those of Llama."""


PIPELINES: Final = FOLDER.parent / "pipelines.json"
"""Name -> name of a file -> its content: pipelines of diffusers, by their published fields."""


def case_graph(name: str) -> dict[str, Any]:
    """The operator graph of one of `CONFIGURATIONS` or `PIPELINES`, as JSON.

    Raises:
        FileNotFoundError: none has that name.
    """
    content: dict[str, Any] = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    return content


def trace() -> None:
    """Write the files of all configurations."""
    from forerun.features.readers import read_graph

    for name, (fields, tokens) in CONFIGURATIONS.items():
        graph = read_graph(json.dumps(fields).encode(), sequence_length=tokens)
        content = json.dumps(graph.to_json(), separators=(",", ":")).encode()
        (FOLDER / f"{name}.json.xz").write_bytes(lzma.compress(content, preset=9))
    for name, files in json.loads(PIPELINES.read_text()).items():
        with tempfile.TemporaryDirectory() as folder:
            write_pipeline(Path(folder), files)
            content = read_graph(Path(folder)).to_text().encode()
        (FOLDER / f"{name}.json.xz").write_bytes(lzma.compress(content, preset=9))


def write_pipeline(folder: Path, files: Mapping[str, Any]) -> None:
    """Write the configurations of a pipeline as diffusers lays them out.

    Args:
        folder: an empty folder.
        files: name of a folder, or `model_index` -> the fields.
    """
    for name, fields in files.items():
        file = folder / (f"{name}.json" if name == "model_index" else f"{name}/config.json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(fields))


if __name__ == "__main__":
    trace()
