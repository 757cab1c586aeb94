"""`params.json`, Mistral's own description of a model, in the names of a `config.json`."""

from collections.abc import Mapping
from typing import Any, Final

from forerun.data.errors import UnreadableModel

NAMES: Final[Mapping[str, str]] = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "norm_eps": "rms_norm_eps",
    "tied_embeddings": "tie_word_embeddings",
    "max_seq_len": "max_position_embeddings",
}
"""Name in `params.json` -> name in `config.json`; others are alike."""
_TELLING: Final = frozenset({"dim", "n_layers", "n_heads", "hidden_dim"})
_APART: Final = ("moe", "quantization")
_MIXTURE: Final[Mapping[str, str]] = {
    "num_experts": "num_local_experts",
    "num_experts_per_tok": "num_experts_per_tok",
}


def as_configuration(fields: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The fields as those of a `config.json`; unchanged where they are none of `params.json`.

    Args:
        fields: the object of a file.
        where: what the file is called in errors.

    Raises:
        UnreadableModel: its layers or weights are of a kind that is only read from a `config.json`.
    """
    if "model_type" in fields or not fields.keys() >= _TELLING:
        return fields
    mixture = fields.get("moe")
    others = mixture.keys() - _MIXTURE.keys() if isinstance(mixture, Mapping) else set()
    if others or "q_lora_rank" in fields:
        raise UnreadableModel(
            where, "it is a params.json with layers of another kind; give the config.json."
        )
    if fields.get("quantization"):
        raise UnreadableModel(
            where, "it is a params.json with quantised weights; give the config.json."
        )
    found = {NAMES.get(name, name): value for name, value in fields.items() if name not in _APART}
    if isinstance(mixture, Mapping):
        found |= {_MIXTURE[name]: value for name, value in mixture.items()}
    return {"model_type": "mixtral" if mixture else "mistral", **found}
