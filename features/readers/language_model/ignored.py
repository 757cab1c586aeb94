"""Fields of configurations that change neither a size nor the cost of a token, by reason."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

DESCRIPTION: Final = (
    *("architectures", "auto_map", "model_type", "name_or_path", "_name_or_path", "_commit_hash"),
    *("transformers_version", "torch_dtype", "dtype", "use_bfloat16", "id2label", "label2id"),
    *("initializer_range", "initializer_factor", "problem_type", "tokenizer_class", "torchscript"),
    *("_attn_implementation", "task_specific_params", "finetuning_task", "pruned_heads", "_*"),
)
"""What the file is, and how weights were drawn at the start."""

GENERATION: Final = (
    *("*_token_id", "*_token_index", "temperature", "top_k", "top_p", "typical_p", "num_beams"),
    *("num_beam_groups", "diversity_penalty", "repetition_penalty", "length_penalty", "max_length"),
    *("min_length", "early_stopping", "do_sample", "no_repeat_ngram_size", "suppress_tokens"),
    *("encoder_no_repeat_ngram_size", "begin_suppress_tokens", "bad_words_ids", "output_scores"),
    *("forced_*", "num_return_sequences", "remove_invalid_values", "return_dict*", "prefix"),
    *("exponential_decay_length_penalty", "output_attentions", "output_hidden_states", "use_cache"),
    *("sep_token_id", "*_placeholder", "is_decoder", "cross_attention_hidden_size"),
    *("tf_legacy_loss", "chunk_size_feed_forward", "add_cross_attention", "tie_encoder_decoder"),
    *("summary_*", "is_encoder_decoder", "num_logits_to_keep", "num_reward_heads", "ignore_index"),
    *("median_filter_width", "max_source_positions", "extra_pos_embeddings", "static_position_*"),
)
"""How tokens are drawn, and what a library returns."""

TRAINING: Final = (
    *("*_dropout", "*_dropout_prob", "*dropout", "*pdrop", "*aux_loss*", "output_router_logits"),
    *("mask_*", "apply_spec_augment", "classifier_*", "dropout_rate", "init_std", "*layerdrop"),
    *("pretraining_tp", "ep_size", "router_jitter_noise", "seq_aux", "rescale_prenorm_residual"),
    *("time_step_*", "moe_router_force_load_balancing", "gradient_checkpointing"),
)
"""What matters in training alone."""

SCALES: Final = (
    *("rms_norm_eps", "layer_norm_eps*", "layernorm_epsilon", "norm_eps", "hc_eps", "hidden_act"),
    *("activation_function", "hidden_activation", "*_hidden_act", "activation_situ_*", "rope_*"),
    *("*rope_theta", "rotary_*", "partial_rotary_factor", "swiglu_*", "attention_bias", "mlp_bias"),
    *(
        "use_bias",
        "qkv_bias",
        "*_bias",
        "use_qk_norm",
        "qk_norm*",
        "use_gemma_norm",
        "norm_topk_prob",
    ),
    *(
        "scoring_func",
        "topk_method",
        "topk_group",
        "n_group",
        "num_expert_group",
        "use_grouped_topk",
    ),
    *(
        "routed_scaling_factor",
        "moe_renormalize",
        "moe_router_*",
        "moe_norm_min",
        "position_embedding_type",
        "latent_moe_use_norm",
        "*softcap*",
    ),
    *("attention_value_scale", "final_logit_softcapping", "query_pre_attn_scalar", "*_multiplier"),
    *("mla_use_nope", "mrope*", "use_mrope", "nope*", "no_rope*", "attn_scale", "floor_scale"),
    *("attn_temperature_tuning", "indexer_rope_interleave", "max_window_layers", "norm_type"),
    *(
        "use_routing_bias",
        "use_moe_router_bias",
        "initial_context_length",
        "original_max_position*",
    ),
    *("norm_epsilon", "qk_layernorm", "logit_scale", "learned_pos_emb", "embedding_fraction"),
    *("decoder_vocab_size", "share_encoder_decoder_embeddings"),
    *("relative_attention_*", "dense_act_fn", "normalize_before", "normalize_embedding"),
    *("add_bias_logits", "add_final_layer_norm", "normalize_*"),
    *("use_parallel_residual", "parallel_attn", "alibi", "activation", "slow_but_exact"),
    *("embd_layer_norm", "apply_residual_*", "scale_*", "logits_scaling", "tie_word_embeddings"),
)
"""Scales, rotations, biases and normalisations: vectors at most, of no matrix."""

KERNELS: Final = (
    *("block_*init*", "block_norm_eps", "block_use_*", "conv_bias", "conv_use_*", "use_pos_enc"),
    *("mamba_chunk_size", "mamba_conv_bias", "use_mixed_mlp_moe", "use_cla"),
    *("use_mamba_kernels", "chunk_size", "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "expand"),
    *("moe_shared_expert_overlap", "use_conv_bias", "mamba_proj_bias", "hidden_dropout"),
    *("num_hash_layers", "hc_sinkhorn_iters", "time_step_rank", "qk_head_dim", "output_gate_type"),
    *("index_topk*", "index_share_for_mtp_iteration", "index_skip_topk_offset", "compress_rope_*"),
    *("attn_config", "init_device", "no_bias", "use_weighted_layer_sum", "encoder_layers"),
    *("attn_type_list", "sliding_window_size", "gate_lower_bound"),
)
"""How kernels do the same work, or what other fields say already."""

IMAGES: Final = (
    *("image_*", "video_*", "vision_*", "media_*", "audio_*", "img_token_compression_config"),
    *("process_image_mode", "projector_*", "multimodal_projector_bias", "language_model_only"),
    *("use_unified_vision_chunk", "use_bidirectional_attention"),
)
"""How images become tokens; the tower itself is read from its own object."""

PATTERNS: Final = (*DESCRIPTION, *GENERATION, *TRAINING, *SCALES, *KERNELS, *IMAGES)
"""Names and patterns of names of all those fields."""


def of_meaning(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the fields that may change a size or a cost."""
    return tuple(
        name
        for name in names
        if not any(fnmatchcase(name.rpartition(".")[2], pattern) for pattern in PATTERNS)
    )
