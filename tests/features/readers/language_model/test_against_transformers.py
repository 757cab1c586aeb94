"""Counts of matrices agree with the models that transformers builds of the same configurations."""

import pytest

from forerun.features.readers.language_model.reader import read_language_model
from forerun.features.readers.torch_trace import declare_operators
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
T5 = {
    **{"d_model": 256, "d_kv": 48, "d_ff": 704, "num_layers": 3, "num_heads": 8},
    **{"vocab_size": 1024},
}
BART = {
    **{"d_model": 256, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 704},
    **{"decoder_ffn_dim": 704, "encoder_attention_heads": 8, "decoder_attention_heads": 4},
    **{"vocab_size": 1024, "pad_token_id": 1},
    **{"bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2},
    **{"forced_eos_token_id": 2},
}
HYBRID = {
    **{"num_key_value_heads": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 320},
    **{"mamba_n_heads": 16, "mamba_d_head": 32, "mamba_d_state": 64, "mamba_n_groups": 1},
    "layer_types": ["mamba", "mamba", "attention", "mamba"],
}
OLDER = {"n_embd": 256, "n_layer": 3, "n_head": 8, "vocab_size": 1024}
SEQUENCES = {"t5", "mt5", "umt5", "bart", "mbart", "m2m_100", "marian", "pegasus", "blenderbot"}
VECTORS = ("wpe", "embed_positions", "relative_attention_bias")
"""Parts of the names of positions, which are not counted; nor are biases."""
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
    {"model_type": "gemma", **SMALL, "num_key_value_heads": 2},
    {"model_type": "gemma2", **SMALL, "num_key_value_heads": 2},
    {"model_type": "olmo", **SMALL, "num_key_value_heads": 4},
    {"model_type": "olmoe", **SMALL, "num_experts": 8, "num_experts_per_tok": 2},
    {"model_type": "granitemoe", **SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
    {"model_type": "phimoe", **SMALL, "num_key_value_heads": 4, "num_local_experts": 4}
    | {"num_experts_per_tok": 2},
    {"model_type": "stablelm", **SMALL, "num_key_value_heads": 4},
    {"model_type": "cohere", **SMALL, "num_key_value_heads": 4},
    {"model_type": "cohere2", **SMALL, "num_key_value_heads": 4},
    {"model_type": "ernie4_5", **SMALL, "num_key_value_heads": 4},
    {"model_type": "ernie4_5_moe", **SMALL, "num_key_value_heads": 4, "moe_num_experts": 8}
    | {"moe_k": 2, "moe_intermediate_size": 96, "moe_num_shared_experts": 2},
    {"model_type": "ernie4_5_moe", **SMALL, "moe_num_experts": 8, "moe_intermediate_size": 96}
    | {"moe_layer_start_index": 1, "moe_layer_end_index": 2},
    {"model_type": "hunyuan_v1_dense", **GROUPED},
    {"model_type": "lfm2", **SMALL, "num_key_value_heads": 4}
    | {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    {"model_type": "granitemoehybrid", **SMALL, **HYBRID, "num_local_experts": 8},
    {"model_type": "granitemoehybrid", **SMALL, **HYBRID, "num_local_experts": 0},
    {"model_type": "starcoder2", **SMALL, "num_key_value_heads": 2, "bos_token_id": None}
    | {"eos_token_id": None},
    {"model_type": "nemotron", **SMALL, "num_key_value_heads": 4},
    {"model_type": "persimmon", **SMALL},
    {"model_type": "phi", **SMALL},
    {"model_type": "gptj", **OLDER, "bos_token_id": None, "eos_token_id": None},
    {"model_type": "codegen", **OLDER, "bos_token_id": None, "eos_token_id": None},
    {"model_type": "mpt", "d_model": 256, "n_layers": 3, "n_heads": 8, "vocab_size": 1024},
    {"model_type": "t5", **T5},
    {"model_type": "mt5", **T5, "feed_forward_proj": "gated-gelu"},
    {"model_type": "umt5", **T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 2},
    {"model_type": "bart", **BART},
    {"model_type": "mbart", **BART},
    {"model_type": "m2m_100", **BART, "decoder_layers": 4, "decoder_ffn_dim": 512},
    {"model_type": "marian", **BART},
    {"model_type": "pegasus", **BART},
    {"model_type": "blenderbot", **BART},
    {"model_type": "whisper", **BART, "num_mel_bins": 80, "max_source_positions": 50},
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
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSpeechSeq2Seq,
    )

    given = dict(configuration)
    name = given.pop("model_type")
    try:
        made = AutoConfig.for_model(name, **given)
    except ValueError:
        pytest.skip(f"this transformers has no {name}")
    with torch.device("meta"):
        kind = AutoModelForSeq2SeqLM if name in SEQUENCES else AutoModelForCausalLM
        kind = AutoModelForSpeechSeq2Seq if name == "whisper" else kind
        model = kind.from_config(made)
    return made, sum(
        tensor.numel()
        for path, tensor in model.named_parameters()
        if tensor.dim() > 1
        and not path.endswith("bias")
        and not any(word in path for word in VECTORS)
    )


@needs_zoo
@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c["model_type"])
def test_as_many_weights_as_transformers_builds(configuration):
    made, matrices = counted(configuration)
    described = read_language_model({**made.to_dict(), **configuration})
    assert described.parameters() == pytest.approx(matrices, rel=1e-3)
    assert described.unread_fields == ()
