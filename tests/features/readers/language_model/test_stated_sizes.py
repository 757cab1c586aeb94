"""Families whose fields have names of their own: sizes by model cards, and mistakes in lists."""

import json

import pytest

from forerun.data.errors import UnreadableModel
from forerun.features.readers.language_model.reader import model_files, read_language_model

WRITTEN = [
    (
        {"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128167}
        | {"intermediate_size": 3072, "num_experts": 64, "moe_topk": [8] * 32}
        | {"moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32}
        | {"tie_word_embeddings": True},
        (80.0, 13.0),
    ),
    (
        {"model_type": "ernie4_5_moe", "hidden_size": 2560, "num_hidden_layers": 28}
        | {"num_attention_heads": 20, "num_key_value_heads": 4, "vocab_size": 103424}
        | {"intermediate_size": 12288, "moe_num_experts": 64, "moe_k": 6}
        | {"moe_intermediate_size": 1536, "moe_num_shared_experts": 2, "moe_layer_start_index": 1},
        (21.8, 3.0),
    ),
    (
        {"model_type": "granitemoehybrid", "hidden_size": 1536, "num_hidden_layers": 40}
        | {"num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100352}
        | {"intermediate_size": 512, "num_local_experts": 64, "num_experts_per_tok": 6}
        | {"shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_head": 64}
        | {"mamba_d_state": 128, "mamba_d_conv": 4, "tie_word_embeddings": True}
        | {"layer_types": [("mamba", "attention")[n in (5, 15, 25, 35)] for n in range(40)]},
        (7.0, None),
    ),
    (
        {"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 65536}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288}
        | {"block_ffn_dim_multiplier": 1.0, "conv_L_cache": 3, "conv_dim": 2048}
        | {"full_attn_idxs": [2, 5, 8, 10, 12, 14]},
        (1.17, None),
    ),
]
"""Fields of a `config.json`; billions of parameters by the model card: all, and active ones."""


@pytest.mark.parametrize(("written", "stated"), WRITTEN, ids=lambda x: str(x)[:40])
def test_families_that_write_experts_their_own_way_have_the_sizes_that_their_makers_state(
    written, stated
):
    model = read_language_model(written)
    assert model.parameters() / 1e9 == pytest.approx(stated[0], rel=0.01)
    if stated[1] is not None:
        assert model.active_parameters() / 1e9 == pytest.approx(stated[1], rel=0.15)


PARAMS = {"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32} | {
    "n_kv_heads": 8,
    "norm_eps": 1e-5,
    "rope_theta": 1e8,
    "vocab_size": 131072,
}
"""`params.json` of Mistral Small 3 (24 billion parameters by its card)."""


def test_params_json_of_mistral_is_read_as_its_config_json():
    model = read_language_model(PARAMS)
    assert model.parameters() / 1e9 == pytest.approx(23.6, rel=0.01)
    assert model.unread_fields == ()
    moe = {"num_experts": 8, "num_experts_per_tok": 2}
    sizes = {"dim": 4096, "n_layers": 32, "hidden_dim": 14336, "vocab_size": 32000}
    mixtral = read_language_model({**PARAMS, **sizes, "moe": moe})
    assert mixtral.parameters() / 1e9 == pytest.approx(46.7, rel=0.01)
    quantised = {"qformat_weight": "fp8_e4m3"}
    others = ("q_lora_rank", 1536), ("moe", {**moe, "num_shared_experts": 1})
    for name, value in (*others, ("quantization", quantised)):
        with pytest.raises(UnreadableModel, match=r"give the config\.json"):
            read_language_model({**PARAMS, name: value})


def test_a_folder_may_hold_params_json_alone(tmp_path):
    (tmp_path / "params.json").write_text(json.dumps(PARAMS))
    assert model_files(tmp_path)["config"] == PARAMS
    (tmp_path / "config.json").write_text(json.dumps(WRITTEN[0][0]))
    assert model_files(tmp_path)["config"] != PARAMS


def test_numbers_of_each_layer_are_checked():
    written, _ = WRITTEN[0]
    for name, value in (("moe_topk", [8] * 31), ("moe_topk", [65] * 32), ("num_experts", "many")):
        with pytest.raises(UnreadableModel, match=name):
            read_language_model({**written, name: value})
