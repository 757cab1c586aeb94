"""Counts of matrices agree with the models that transformers builds of the same configurations."""

import pytest

from forerun.features.readers.language_model.reader import read_language_model
from forerun.features.readers.torchvision_operators import declare_operators
from tests.zoo import needs_zoo

SMALL = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 704,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "pad_token_id": None,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 48}
MIXTURE = {**GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
LATENT = {
    **{name: value for name, value in SMALL.items() if name != "head_dim"},
    **{"num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32},
    **{"qk_rope_head_dim": 16, "v_head_dim": 40, "n_routed_experts": 8, "n_shared_experts": 2},
    **{"num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 1},
    **{"n_group": 1, "topk_group": 1},
}
DELTA = {
    **MIXTURE,
    **{"num_experts": 8, "shared_expert_intermediate_size": 160, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 24},
    **{"linear_conv_kernel_dim": 4},
}
OLDER = {"n_embd": 256, "n_layer": 3, "n_head": 8, "vocab_size": 1024}
CONFIGURATIONS = [
    {"model_type": "llama", **GROUPED},
    {"model_type": "mistral", **GROUPED, "sliding_window": 128},
    {"model_type": "qwen2", **SMALL, "num_key_value_heads": 4},
    {"model_type": "qwen3", **GROUPED, "tie_word_embeddings": True},
    {"model_type": "phi3", **SMALL, "num_key_value_heads": 4},
    {"model_type": "gemma2", **GROUPED, "sliding_window": 64},
    {"model_type": "gemma3_text", **GROUPED},
    {"model_type": "granite", **SMALL, "num_key_value_heads": 4},
    {"model_type": "olmo2", **SMALL, "num_key_value_heads": 4},
    {"model_type": "mixtral", **GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    {
        "model_type": "qwen2_moe",
        **MIXTURE,
        "num_experts": 8,
        "shared_expert_intermediate_size": 160,
    },
    {"model_type": "qwen3_moe", **MIXTURE, "num_experts": 8, "mlp_only_layers": [1]},
    {"model_type": "gpt_oss", **GROUPED, "num_local_experts": 8, "num_experts_per_tok": 2},
    {"model_type": "glm4_moe", **MIXTURE, "n_routed_experts": 8, "n_shared_experts": 1}
    | {"first_k_dense_replace": 2, "n_group": 1, "topk_group": 1},
    {"model_type": "deepseek_v3", **LATENT},
    {"model_type": "deepseek_v3", **LATENT, "q_lora_rank": None},
    {"model_type": "qwen3_next", **DELTA},
    {"model_type": "gpt2", **OLDER},
    {"model_type": "gpt_neox", **SMALL},
    {"model_type": "bloom", "hidden_size": 256, "n_layer": 3, "n_head": 8, "vocab_size": 1024},
    {"model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 3, "vocab_size": 1024}
    | {"num_attention_heads": 8, "multi_query": True, "new_decoder_architecture": False},
]


def counted(configuration):
    """Elements of the matrices of the model that transformers builds, without positions."""
    import torch

    declare_operators()  # those of a torchvision that was built for another torch
    from transformers import AutoConfig, AutoModelForCausalLM

    given = dict(configuration)
    name = given.pop("model_type")
    try:
        made = AutoConfig.for_model(name, **given)
    except ValueError:
        pytest.skip(f"this transformers has no {name}")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made)
    return made, sum(
        tensor.numel()
        for path, tensor in model.named_parameters()
        if tensor.dim() > 1 and "wpe" not in path and not path.endswith("bias")
    )


@needs_zoo
@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c["model_type"])
def test_as_many_weights_as_transformers_builds(configuration):
    made, matrices = counted(configuration)
    described = read_language_model({**made.to_dict(), **configuration})
    assert described.parameters() == pytest.approx(matrices, rel=1e-3)
    assert described.unread_fields == ()
