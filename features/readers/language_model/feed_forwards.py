"""What each token passes alone, layer by layer, as each family writes it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import FeedForward
from forerun.features.readers.language_model.fields import MOST, Fields, short

FeedForwards = Callable[[Fields, int], Sequence[tuple[FeedForward, ...]]]
"""Fields of the decoder and its number of layers -> the feed-forward networks of each layer."""

WIDTHS: Final = ("hidden_size", "n_embd", "d_model", "n_embed")
"""Names of the width of a token between layers."""
_EXPERTS: Final = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_PER_TOKEN: Final = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"),
    *("moe_top_k", "moe_k"),
)
_OWN_WIDTH: Final = frozenset(
    (
        *("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_5_moe_text", "qwen3_next"),
        *("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_linear"),
        *("glm4_moe", "glm_moe_dsa", "step3p7", "mimo_v2_flash", "ernie4_5_moe"),
    )
)
"""Families whose experts have an inner width of their own, which is not `intermediate_size`."""
_SHARED_WIDTHS: Final = (
    *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
    *("shared_intermediate_size", "share_expert_dim"),
)


def gated(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """One gated network in every layer."""
    return [(Dense(fields.integer("intermediate_size")),)] * layers


def plain(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """One network without a gate in every layer, four times as wide as a token unless said."""
    hidden = fields.integer(*WIDTHS)
    names = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    multiple = fields.integer("expansion_ratio", default=4)
    return [(Dense(fields.maybe_integer(*names) or multiple * hidden, gated=False),)] * layers


def halved(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """Qwen of the first generation: the field counts the two halves of a gated network together."""
    width = fields.integer("intermediate_size")
    if width % 2:
        raise fields.bad("intermediate_size", f"is {width}, which is odd")
    return [(Dense(width // 2),)] * layers


def nested(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """DBRX: experts, in an object of their own."""
    part = fields.part("ffn_config")
    if part is None:
        raise fields.bad("ffn_config", "is missing")
    number, chosen = part.integer("moe_num_experts"), part.integer("moe_top_k")
    if chosen > number:
        raise part.bad("moe_top_k", f"is {chosen}, more than {number} experts")
    return [(Experts(number, chosen, part.integer("ffn_hidden_size")),)] * layers


def experts(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """Experts in most layers, a dense network in those that the fields name."""
    mixture = _experts(fields)
    sparse = _sparse_layers(fields, layers)
    if all(sparse):
        fields.skip("intermediate_size")
        return [(mixture,)] * layers
    width = fields.maybe_integer("dense_intermediate_size", "intermediate_size_mlp")
    dense = Dense(width or fields.integer("intermediate_size"))
    fields.skip("intermediate_size")
    return [(mixture,) if routed else (dense,) for routed in sparse]


def interleaved(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """Llama 4: experts in every n-th layer, with a shared one as wide as they are."""
    mixture = _experts(fields)
    mixture = replace(mixture, shared_width=mixture.width)
    step = fields.integer("interleave_moe_layer_step", default=1)
    dense = Dense(fields.integer("intermediate_size_mlp"))
    named = fields.raw("moe_layers")
    if named is not None and named != [n for n in range(layers) if (n + 1) % step == 0]:
        raise fields.bad("moe_layers", "contradicts interleave_moe_layer_step")
    return [(mixture,) if (n + 1) % step == 0 else (dense,) for n in range(layers)]


def between(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """ERNIE 4.5: experts in every n-th layer of those from a first to a last one."""
    mixture, dense = _experts(fields), Dense(fields.integer("intermediate_size"))
    first = fields.integer("moe_layer_start_index", default=0, least=0)
    last = fields.integer("moe_layer_end_index", default=-1, least=-1)
    step = fields.integer("moe_layer_interval", default=1)
    last = layers - 1 if last < 0 else last
    return [
        (mixture,) if first <= n <= last and (n + 1) % step == 0 else (dense,)
        for n in range(layers)
    ]


def numbered(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """Hunyuan-A13B: experts in every layer, whose numbers may differ by layer."""
    names = ("num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert")
    usual = (None, None, fields.integer("intermediate_size"), 1)
    columns = [
        _of_each(fields, name, layers, default) for name, default in zip(names, usual, strict=True)
    ]
    if fields.integer("moe_layer_num_skipped", default=0, least=0):
        raise fields.bad("moe_layer_num_skipped", "is not 0, and such layers are not supported yet")
    for number, chosen, _, _ in zip(*columns, strict=True):
        if chosen > number:
            raise fields.bad("moe_topk", f"holds {chosen}, more than {number} experts")
    return [
        (Experts(number, chosen, width, shared_width=shared * width),)
        for number, chosen, width, shared in zip(*columns, strict=True)
    ]


def hybrid(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """Granite 4: experts and a shared network in every layer, or the shared network alone."""
    if fields.integer("num_local_experts", default=0, least=0):
        return [(_experts(fields),)] * layers
    fields.skip("num_experts_per_tok", "intermediate_size")
    return [(Dense(fields.integer("shared_intermediate_size")),)] * layers


def adjusted(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """LFM2: two thirds of the stated width, rounded up, unless the fields say otherwise."""
    width = fields.integer("intermediate_size", "block_ff_dim")
    multiple = fields.number("block_ffn_dim_multiplier", least=0.0, most=64.0)
    step = fields.integer("block_multiple_of", default=256)
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        width = int((1.0 if multiple is None else multiple) * int(2 * width / 3))
        width = -(-width // step) * step
    return [(Dense(width),)] * layers


def both(fields: Fields, layers: int) -> list[tuple[FeedForward, ...]]:
    """Gemma 4: a dense network in every layer, and experts after it where there are any."""
    dense = Dense(fields.integer("intermediate_size"))
    if fields.flag("use_double_wide_mlp"):
        raise fields.bad("use_double_wide_mlp", "is set, and such layers are not supported yet")
    if not fields.flag("enable_moe_block"):
        fields.skip(*_EXPERTS, *_PER_TOKEN, "moe_intermediate_size")
        return [(dense,)] * layers
    return [(dense, _experts(fields))] * layers


def in_own_layers(fields: Fields, kinds: Sequence[str]) -> list[tuple[FeedForward, ...]]:
    """Nemotron-H: layers that are nothing but a feed-forward network, without a gate."""
    made: dict[str, tuple[FeedForward, ...]] = {}
    if "mlp" in kinds:
        made["mlp"] = (Dense(fields.integer("intermediate_size"), gated=False),)
    if "moe" in kinds:
        mixture = _experts(fields)
        latent = fields.maybe_integer("moe_latent_size")
        made["moe"] = (replace(mixture, gated=False, latent_size=latent),)
    fields.skip("intermediate_size")
    return [made.get(kind, ()) for kind in kinds]


def _of_each(fields: Fields, name: str, layers: int, default: int | None) -> list[int]:
    """A number for each layer, which may be one for all."""
    if not isinstance(fields.raw(name), list):
        return [fields.integer(name, default=default)] * layers
    listed = fields.listed(name, layers) or ()
    for position, value in enumerate(listed):
        if type(value) is not int or not 0 < value <= MOST:
            raise fields.bad(name, f"holds {short(value)}, not a positive number", (position,))
    return list(listed)


def _experts(fields: Fields) -> Experts:
    number, chosen = fields.integer(*_EXPERTS), fields.integer(*_PER_TOKEN)
    if chosen > number:
        raise fields.bad(_PER_TOKEN[0], f"is {chosen}, more than {number} experts")
    width = fields.maybe_integer("moe_intermediate_size")
    if width is None and fields.text("model_type") in _OWN_WIDTH:
        raise fields.bad("moe_intermediate_size", "is missing")
    width = width or fields.integer("intermediate_size")
    return Experts(
        experts=number,
        per_token=chosen,
        width=width,
        shared_width=_shared_width(fields, width),
        latent_size=fields.maybe_integer("routed_expert_hidden_size"),
    )


def _shared_width(fields: Fields, width: int) -> int:
    """Inner width of all shared experts: as the fields say, or as wide as so many routed ones."""
    names = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    count = fields.maybe_integer(*names, least=0)
    given = fields.maybe_integer(*_SHARED_WIDTHS, least=0)
    if given is not None:
        return given * (1 if count is None else count)
    return (count or 0) * width


def _sparse_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Whether each layer has experts."""
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    first = fields.integer("first_k_dense_replace", default=0, least=0)
    step = fields.integer("decoder_sparse_step", default=1)
    dense = set(fields.whole_numbers("mlp_only_layers"))
    frequency = fields.raw("moe_layer_freq")
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    if isinstance(frequency, list):
        return fields.switches("moe_layer_freq", layers) or ()
    every = fields.integer("moe_layer_freq", default=1)
    return tuple(
        n >= first and n % every == 0 and n not in dense and (n + 1) % step == 0
        for n in range(layers)
    )
