"""Attention with a cache of keys and values: kernels of prompts, and of decoding."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.weights import BYTES
from forerun.features.llm_kernels.chip import Chip
from forerun.features.llm_kernels.gemm import LAUNCH_S
from forerun.features.llm_kernels.table import LAUNCH_CLOCK_HZ, KernelTable

AttentionFormat = Literal["bf16", "fp8"]

DECODE_FEATURES: Final = (
    "log_sequences_and_heads",
    "log_attended",
    "log_group",
    "head_dim",
    "log_bound",
    "log_bytes_over_l2",
    "log_waves",
    "last_wave",
    "log_split_waves",
    "log_intensity_over_ridge",
    "window_over_context",
    "log_chain_over_bound",
)
PREFILL_FEATURES: Final = (
    "log_tokens",
    "log_context",
    "log_sequences",
    "log_heads",
    "log_group",
    "head_dim",
    "log_bound",
    "log_bytes_over_l2",
    "log_waves",
    "last_wave",
    "tile_fill",
    "log_intensity_over_ridge",
    "window_over_context",
    "log_chain_over_bound",
)
_SPLIT_TOKENS = 256.0
"""Fewest tokens of a cache for which decoding uses a compute unit of its own."""
_QUERY_TILE = 128.0
_ACTIVATION_BYTES = BYTES["bf16"]


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of attention in n kernels, on one device.

    Attributes:
        query, key_value: (n,) number of heads of queries, and of keys and values.
        width: (n,) width of a head.
        window: (n,) most tokens that a token attends to; infinite for all.
    """

    query: Column
    key_value: Column
    width: Column
    window: Column

    @property
    def site(self) -> Column:
        """(n,) keys; equal where all but the window is."""
        return np.asarray(self.query * 2.0**40 + self.key_value * 2.0**20 + self.width)


def decode_table(
    sequences: Column,
    context: Column,
    heads: Heads,
    cache_format: AttentionFormat,
    device: Device,
) -> KernelTable:
    """Attention of one new token in each of several sequences, on one device.

    The bound reads the cache once for each head of keys and values.

    Args:
        sequences: (n,) number of sequences.
        context: (n,) tokens of each, the new one included.
        heads: heads of the n kernels.
        cache_format: number format of keys and values.
        device: where it runs.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    query_heads, key_value_heads = heads.query, heads.key_value
    head_dim, window = heads.width, heads.window
    attended, group = np.minimum(context, window), query_heads / key_value_heads
    blocks = sequences * key_value_heads
    cached = 2.0 * blocks * attended * head_dim * BYTES[cache_format]
    moved = cached + 2.0 * sequences * query_heads * head_dim * _ACTIVATION_BYTES
    compute_s = 4.0 * sequences * query_heads * attended * head_dim / chip.flops
    memory_s = moved / chip.bandwidth
    bound = np.maximum(compute_s, memory_s)
    splits = np.clip(chip.units / blocks, 1.0, np.ceil(attended / _SPLIT_TOKENS))
    waves = blocks * splits / chip.units
    chain_s = np.ceil(waves) * attended / splits / chip.clock_hz
    cached_s = chip.memory_s(moved, moved)
    features = [
        np.log2(blocks),
        np.log2(attended),
        np.log2(group),
        head_dim,
        np.log(bound * 1e6),
        np.log(moved / chip.l2_bytes),
        np.log(blocks / chip.units),
        waves / np.ceil(waves),
        np.log(waves),
        np.log(compute_s / memory_s),
        attended / context,
        np.log(chain_s / bound),
    ]
    launch = np.full(len(bound), LAUNCH_CLOCK_HZ / chip.clock_hz)
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([np.where(splits > 1.0, 1e-6, 0.0) * launch]),
        parallel_s=np.column_stack([compute_s, cached_s, chain_s]),
        launch=launch,
        least_s=np.full(len(bound), LAUNCH_S),
        site=heads.site,
    )


def prefill_table(
    sequences: Column,
    tokens: Column,
    context: Column,
    heads: Heads,
    product_format: AttentionFormat,
    cache_format: AttentionFormat,
    device: Device,
) -> KernelTable:
    """Causal attention of the tokens of prompts, on one device.

    Args:
        sequences: (n,) number of prompts.
        tokens: (n,) tokens of each that attend.
        context: (n,) tokens of each that were in the cache before.
        heads: heads of the n kernels.
        product_format: number format of the products.
        cache_format: number format of keys and values.
        device: where it runs.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    query_heads, key_value_heads, head_dim = heads.query, heads.key_value, heads.width
    length = tokens + context
    attended = np.minimum(length, heads.window + tokens - 1.0)
    pairs = attended_pairs(tokens, context, heads.window)
    flops = 4.0 * sequences * query_heads * head_dim * pairs
    cached = 2.0 * sequences * key_value_heads * attended * head_dim * BYTES[cache_format]
    moved = cached + 2.0 * sequences * tokens * query_heads * head_dim * _ACTIVATION_BYTES
    compute_s = flops / (device.peak(product_format, matrix=True) * 1e12)
    memory_s = moved / chip.bandwidth
    bound = np.maximum(compute_s, memory_s)
    tiles = np.ceil(tokens / _QUERY_TILE)
    waves = sequences * query_heads * tiles / chip.units
    fill = tokens / (tiles * _QUERY_TILE)
    chain_s = np.ceil(waves) * pairs / tokens / chip.clock_hz
    features = [
        *map(np.log2, (tokens, length, sequences, query_heads, query_heads / key_value_heads)),
        head_dim,
        np.log(bound * 1e6),
        np.log(moved / chip.l2_bytes),
        np.log(waves),
        waves / np.ceil(waves),
        fill,
        np.log(compute_s / memory_s),
        np.minimum(heads.window, length) / length,
        np.log(chain_s / bound),
    ]
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([memory_s]),
        parallel_s=np.column_stack([compute_s / np.maximum(fill, 0.125), memory_s, chain_s]),
        launch=np.full(len(bound), LAUNCH_CLOCK_HZ / chip.clock_hz),
        least_s=np.maximum(compute_s, LAUNCH_S),
        site=heads.site,
    )


def attended_pairs(tokens: Column, context: Column, window: Column) -> Column:
    """Pairs of a token of one prompt and a token that it attends to, itself included, shape (n,).

    Args:
        tokens: (n,) tokens that attend.
        context: (n,) tokens before them.
        window: (n,) most tokens that a token attends to; infinite for all.
    """
    growing = np.clip(window - context, 0.0, tokens)
    whole = growing * context + growing * (growing + 1.0) / 2.0
    limited = np.where(np.isfinite(window), window, 0.0) * (tokens - growing)
    return np.asarray(whole + limited)
