"""What exchanges information between tokens, layer by layer, as each family writes it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.model import Mixer
from forerun.data.language_models.recurrent import (
    GatedDeltaNet,
    KimiDeltaAttention,
    ShortConvolution,
    StateSpace,
)
from forerun.features.readers.language_model.feed_forwards import WIDTHS
from forerun.features.readers.language_model.fields import Fields, short

Mixers = Callable[[Fields, int], Sequence[Mixer | None]]
"""Fields of the decoder and its number of layers -> the mixer of each layer."""

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
CHUNKED_LAYERS = 4
"""Of so many layers of Llama 4, all but the last attend to a chunk; the same in every release."""


def grouped(fields: Fields, layers: int) -> list[Attention]:
    """Attention whose heads of queries share heads of keys, with windows where fields name them."""
    one = _attention(fields)
    windows = _windows(fields, layers)
    return [replace(one, window=window) for window in windows]


def merged(fields: Fields, layers: int) -> list[Attention]:
    """Attention of older models: all heads have keys of their own, or share one (`multi_query`)."""
    heads = fields.integer("num_attention_heads", "n_head", "num_heads", "n_heads")
    several = fields.flag("new_decoder_architecture")
    shared = fields.flag("multi_query") and not several
    given = fields.maybe_integer("num_key_value_heads", "num_kv_heads")
    kept = 1 if shared else given or heads
    width = _head_dim(fields, heads)
    return [Attention(heads, kept, width, width)] * layers


def nested(fields: Fields, layers: int) -> list[Attention]:
    """DBRX: the heads of the keys stand in an object of their own."""
    heads, part = fields.integer("n_heads"), fields.part("attn_config")
    if part is None:
        raise fields.bad("attn_config", "is missing")
    kept = part.integer("kv_n_heads", default=heads)
    if heads % kept:
        raise part.bad("kv_n_heads", f"is {kept}, which does not divide {heads} heads")
    width = _head_dim(fields, heads)
    return [Attention(heads, kept, width, width)] * layers


def sized_by_kind(fields: Fields, layers: int) -> list[Attention]:
    """Gemma 4: layers without a window have heads of another size, and keys that are values."""
    near = _attention(fields)
    far = replace(
        near,
        head_dim=(wide := fields.integer("global_head_dim", default=near.head_dim)),
        value_head_dim=wide,
        key_value_heads=fields.integer("num_global_key_value_heads", default=near.key_value_heads),
        values_are_keys=fields.flag("attention_k_eq_v"),
    )
    for name in ("num_kv_shared_layers", "hidden_size_per_layer_input"):
        if fields.integer(name, default=0, least=0):
            raise fields.bad(name, "is not 0, and layers of that kind are not supported yet")
    fields.skip("vocab_size_per_layer_input")
    windows = _windows(fields, layers)
    return [far if window is None else replace(near, window=window) for window in windows]


def sized_by_pattern(fields: Fields, layers: int) -> list[Attention]:
    """MiMo-V2: a list says which layers have a window, and heads of a number of their own."""
    far = _attention(fields)
    near = Attention(
        query_heads=fields.integer("swa_num_attention_heads", default=far.query_heads),
        key_value_heads=fields.integer("swa_num_key_value_heads", default=far.key_value_heads),
        head_dim=fields.integer("swa_head_dim", default=far.head_dim),
        value_head_dim=fields.integer("swa_v_head_dim", default=far.value_head_dim),
        window=fields.integer("sliding_window"),
    )
    fields.skip("attention_chunk_size")
    pattern = fields.switches("hybrid_layer_pattern", layers)
    if pattern is None:
        raise fields.bad("hybrid_layer_pattern", "is missing")
    return [near if windowed else far for windowed in pattern]


def chunked(fields: Fields, layers: int) -> list[Attention]:
    """Llama 4: three of four layers attend to their chunk alone."""
    one, chunk = _attention(fields), fields.maybe_integer("attention_chunk_size")
    return [
        replace(one, window=None if (number + 1) % CHUNKED_LAYERS == 0 else chunk)
        for number in range(layers)
    ]


def selected(fields: Fields, layers: int) -> list[Attention]:
    """MiniMax-M3: in some layers an indexer selects the blocks of keys that are attended to."""
    one, sparse = _attention(fields), fields.part("sparse_attention_config")
    if sparse is None or not sparse.flag("use_sparse_attention", default=True):
        return [one] * layers
    chosen = replace(
        one,
        index_heads=sparse.integer("sparse_num_index_heads"),
        index_dim=sparse.integer("sparse_index_dim"),
    )
    where = sparse.switches("sparse_attention_freq", layers) or (True,) * layers
    return [chosen if indexed else one for indexed in where]


def latent(fields: Fields, layers: int) -> list[LatentAttention]:
    """Multi-head latent attention, with an indexer where the fields name one."""
    one = _latent(fields)
    kinds = fields.words("indexer_types", layers, ("full", "shared")) or ("full",) * layers
    kind = "deepseek_sparse_attention"
    fields.words("layer_types", layers, (FULL, kind))
    return [replace(one, own_indexer=kind == "full") for kind in kinds]


def compressed(fields: Fields, layers: int) -> list[CompressedAttention]:
    """DeepSeek-V4: blocks of 4 tokens, which an indexer selects, or of 128, which are all read."""
    draft = fields.integer("num_nextn_predict_layers", default=0, least=0)
    fields.skip("qk_rope_head_dim")
    if fields.integer("num_key_value_heads", default=1) != 1:
        raise fields.bad("num_key_value_heads", "is not 1")
    plain = CompressedAttention(
        query_heads=fields.integer("num_attention_heads"),
        head_dim=fields.integer("head_dim"),
        query_rank=fields.integer("q_lora_rank"),
        output_groups=fields.integer("o_groups"),
        output_rank=fields.integer("o_lora_rank"),
        window=fields.integer("sliding_window"),
    )
    ratios = fields.listed("compress_ratios", layers + draft) or [0] * layers
    heads, width = fields.integer("index_n_heads"), fields.integer("index_head_dim")
    made: list[CompressedAttention] = []
    for position, ratio in enumerate(ratios[:layers]):
        match ratio:
            case 0:
                made.append(plain)
            case 4:
                indexed = replace(plain, block_tokens=4, index_heads=heads, index_dim=width)
                made.append(indexed)
            case int() if 0 < ratio <= 1 << 20:
                made.append(replace(plain, block_tokens=ratio))
            case _:
                raise fields.bad("compress_ratios", f"holds {short(ratio)}", (position,))
    return made


def delta(fields: Fields, layers: int) -> list[Mixer]:
    """Qwen3-Next and Qwen3.5: gated delta nets, and gated attention in every fourth layer."""
    near = GatedDeltaNet(
        key_heads=fields.integer("linear_num_key_heads"),
        value_heads=fields.integer("linear_num_value_heads"),
        key_dim=fields.integer("linear_key_head_dim"),
        value_dim=fields.integer("linear_value_head_dim"),
        convolution=fields.integer("linear_conv_kernel_dim"),
    )
    far = replace(_attention(fields), gated=fields.flag("attn_output_gate", default=True))
    every = fields.integer("full_attention_interval", default=4)
    kinds = fields.words("layer_types", layers, (LINEAR, FULL)) or tuple(
        FULL if (number + 1) % every == 0 else LINEAR for number in range(layers)
    )
    return [far if kind == FULL else near for kind in kinds]


def kimi(fields: Fields, layers: int) -> list[Mixer]:
    """Kimi Linear: its own linear attention, and latent attention in the layers that are listed."""
    far = _latent(fields)
    part = fields.part("linear_attn_config")
    if part is None:
        raise fields.bad("linear_attn_config", "is missing")
    near = KimiDeltaAttention(
        heads=part.integer("num_heads"),
        head_dim=part.integer("head_dim"),
        convolution=part.integer("short_conv_kernel_size"),
        full_gate=part.flag("use_full_rank_gate"),
    )
    # Layers are counted from 1 here.
    whole = part.whole_numbers("full_attn_layers")
    linear = part.whole_numbers("kda_layers")
    if sorted([*whole, *linear]) != list(range(1, layers + 1)):
        raise part.bad("full_attn_layers", "and kda_layers do not name each layer once")
    return [far if number in set(whole) else near for number in range(1, layers + 1)]


def state_spaces(fields: Fields, kinds: Sequence[str]) -> list[Mixer | None]:
    """Nemotron-H: each layer is a state space, attention, or a feed-forward network alone."""
    space = StateSpace(
        heads=fields.integer("mamba_num_heads"),
        head_dim=fields.integer("mamba_head_dim"),
        groups=fields.integer("n_groups"),
        state_size=fields.integer("ssm_state_size"),
        convolution=fields.integer("conv_kernel"),
    )
    attention = _attention(fields)
    of_kind: dict[str, Mixer | None] = {"mamba": space, "attention": attention}
    return [of_kind.get(kind) for kind in kinds]


def spaces_and_attention(fields: Fields, layers: int) -> list[Mixer]:
    """Granite 4: a list says which layers are state spaces; all are where there is none."""
    heads = fields.integer("mamba_n_heads")
    inner = fields.integer("mamba_expand", default=2) * fields.integer("hidden_size")
    given = fields.raw("mamba_d_head")
    space = StateSpace(
        heads=heads,
        head_dim=inner // heads if given in (None, "auto") else fields.integer("mamba_d_head"),
        groups=fields.integer("mamba_n_groups", default=1),
        state_size=fields.integer("mamba_d_state"),
        convolution=fields.integer("mamba_d_conv"),
    )
    attention = _attention(fields)
    kinds = fields.words("layer_types", layers, ("mamba", "attention")) or ("mamba",) * layers
    return [space if kind == "mamba" else attention for kind in kinds]


def convolutions_and_attention(fields: Fields, layers: int) -> list[Mixer]:
    """LFM2: a list says which layers have attention, by kind or by number."""
    hidden = fields.integer("hidden_size")
    near = ShortConvolution(hidden, fields.integer("conv_L_cache", default=3))
    far = _attention(fields)
    kinds = fields.words("layer_types", layers, ("conv", FULL))
    numbers = fields.whole_numbers("full_attn_idxs")
    for name in ("conv_dim", "conv_dim_out"):
        if fields.integer(name, default=hidden) != hidden:
            raise fields.bad(name, "is not hidden_size")
    if kinds is None and not numbers:
        raise fields.bad("layer_types", "is missing")
    kinds = kinds or tuple(FULL if n in numbers else "conv" for n in range(layers))
    return [far if kind == FULL else near for kind in kinds]


def _attention(fields: Fields) -> Attention:
    heads = fields.integer("num_attention_heads")
    kept = fields.integer("num_key_value_heads", default=heads)
    if heads % kept:
        raise fields.bad("num_key_value_heads", f"is {kept}, which does not divide {heads} heads")
    width = _head_dim(fields, heads)
    return Attention(heads, kept, width, fields.integer("v_head_dim", default=width))


def _head_dim(fields: Fields, heads: int) -> int:
    given = fields.maybe_integer("head_dim", "attention_head_dim")
    if given is not None:
        return given
    hidden = fields.integer(*WIDTHS)
    if hidden % heads:
        raise fields.bad("hidden_size", f"is {hidden}, which {heads} heads do not divide")
    return hidden // heads


def _windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """The window of each layer, None where all tokens are attended to."""
    window = fields.maybe_integer("sliding_window", least=0) or None
    pattern = fields.maybe_integer("sliding_window_pattern")
    kinds = fields.words("layer_types", layers, (SLIDING, FULL))
    used = fields.flag("use_sliding_window", default=True)
    if kinds is None and pattern is not None:
        kinds = tuple(SLIDING if (n + 1) % pattern else FULL for n in range(layers))
    if window is None or not used:
        if kinds is not None and SLIDING in kinds and used:
            raise fields.bad("sliding_window", "is missing, but layer_types names such layers")
        return (None,) * layers
    return tuple(window if kind == SLIDING else None for kind in kinds or (SLIDING,) * layers)


def _latent(fields: Fields) -> LatentAttention:
    heads = fields.integer("num_attention_heads")
    if fields.integer("num_key_value_heads", default=heads) != heads:
        raise fields.bad("num_key_value_heads", "is not the number of heads")
    fields.skip("head_dim")
    return LatentAttention(
        query_heads=heads,
        query_rank=fields.maybe_integer("q_lora_rank"),
        key_value_rank=fields.integer("kv_lora_rank"),
        plain_dim=fields.integer("qk_nope_head_dim"),
        rotary_dim=fields.integer("qk_rope_head_dim", least=0),
        value_head_dim=fields.integer("v_head_dim"),
        gated=fields.flag("mla_use_output_gate"),
        index_heads=fields.integer("index_n_heads", default=0),
        index_dim=fields.integer("index_head_dim", default=0),
    )
