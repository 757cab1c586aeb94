"""Roofline bounds, time terms and features of language-model kernels, by family.

Families are matrix products; collectives, with a latency and a bandwidth term; memory-bound
elementwise operations; routed experts, with their load distribution; and prefill and decode
attention with a KV cache. `kernel_groups` groups queries by device and family.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod
from typing import Final, Literal

import numpy as np

from forerun.data.columns import Column, groups_of
from forerun.data.device import Device
from forerun.data.language_models.kernel import (
    AttentionKernel,
    CollectiveKernel,
    CollectiveName,
    ElementwiseKernel,
    ElementwiseName,
    ExpertsKernel,
    GemmKernel,
    KernelShape,
    LlmKernel,
    ProductFormat,
)
from forerun.data.number_formats import FORMATS, PRODUCTS
from forerun.data.query import Query
from forerun.data.workload import Kernel, NumberFormat, Workload
from forerun.features.llm_kernels.table import (
    LAUNCH_CLOCK_HZ,
    Chip,
    KernelGroup,
    KernelTable,
)
from forerun.features.operators.kinds import CLASS_CODE, CLASS_OF_NAME

TILES: Final = ((256, 128), (128, 128), (64, 128), (64, 64))
"""Output tile sizes (rows, columns) of one compute unit in common libraries."""
COPIES: Final = 6
"""Sets of operands that AIConfigurator's benchmark cycles through, so that the L2 cache rarely
holds the next one (`outside_loop_count` of its collector)."""
_RESULT_BYTES = 2.0

PRODUCT_SIZES: Final = ("log_m", "log_n", "log_k")
GEMM_FEATURES: Final = (
    *PRODUCT_SIZES,
    "log_bound",
    "log_intensity_over_ridge",
    *(f"log_waves_{rows}x{columns}" for rows, columns in TILES),
    *(f"last_wave_{rows}x{columns}" for rows, columns in TILES),
    "log_weights_over_l2",
    "log_activations_over_l2",
    "log_result_over_l2",
    "log_bytes_over_l2",
    "m_fill_64",
    "m_fill_128",
    "m_alignment",
    "n_alignment",
    "k_alignment",
    "memory_over_bound",
)
LAUNCH_S: Final = 1.2e-6
"""Lower bound on kernel times, shorter than any measured kernel, seconds."""


def gemm_table(m: Column, n: Column, k: Column, form: ProductFormat, device: Device) -> KernelTable:
    """Products of (m, k) activations with (n, k) weights on one device.

    Args:
        m: (rows,) tokens.
        n: (rows,) outputs.
        k: (rows,) inputs.
        form: number format.
        device: the device.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip, product = Chip.of(device), PRODUCTS[form]
    peak = device.peak(product.precision, matrix=True) * 1e12
    weights, result = n * k * product.weights.bytes, m * n * _RESULT_BYTES
    activations = m * k * product.activations.bytes
    moved = weights + activations + result
    compute_s, memory_s = 2.0 * m * n * k / peak, moved / chip.bandwidth
    cached_s = chip.memory_s(moved, COPIES * moved)
    bound = np.maximum(compute_s, memory_s)
    waves = [np.ceil(m / rows) * np.ceil(n / columns) / chip.units for rows, columns in TILES]
    features = [
        *map(np.log2, (m, n, k)),
        np.log(bound * 1e6),
        np.log(compute_s / memory_s),
        *map(np.log, waves),
        *(wave / np.ceil(wave) for wave in waves),
        *(np.log(part / chip.l2_bytes) for part in (weights, activations, result, moved)),
        m / (np.ceil(m / 64) * 64),
        m / (np.ceil(m / 128) * 128),
        *map(_alignment, (m, n, k)),
        np.log(cached_s / memory_s),
    ]
    # A preceding kernel quantises the activations, which it reads in 16 bits.
    quantised_s = 2.0 * m * k / chip.bandwidth
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([k / chip.clock_hz, quantised_s]),
        parallel_s=np.column_stack([compute_s, cached_s]),
        launch=np.ones(len(bound)),
        least_s=np.maximum(compute_s, LAUNCH_S),
        site=n * 2.0**20 + k,
    )


def _alignment(size: Column) -> Column:
    """Log2 of the largest power of two, up to 256, that divides each size."""
    whole = np.asarray(size, dtype=np.int64)
    return np.asarray(np.log2(np.minimum(whole & -whole, 256)), dtype=np.float64)


COLLECTIVE_FEATURES: Final = (
    "log_message",
    "log_devices",
    "log_bound",
    "log_message_over_l2",
    "log_message_per_device_over_units",
    "log_link_over_memory",
)
_ROUNDS: Final[dict[CollectiveName, float]] = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
    "send_receive": 1.0,
}
"""How often a device's data crosses its link."""
_TYPICAL_LINK_GBS = 64.0


def collective_table(
    message_bytes: Column, devices: Column, operation: CollectiveName, device: Device
) -> KernelTable:
    """One collective operation on n messages, between identical devices of one node.

    The bound is that of a ring: each device sends (devices - 1) / devices of the message, twice for
    an all-reduce, at half the sheet's bidirectional bandwidth. A link that is missing on the sheet
    is assumed to be PCIe 4.0.

    Args:
        message_bytes: (n,) size of the whole message, bytes.
        devices: (n,) devices that take part.
        operation: the collective.
        device: the device type.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    link = (device.interconnect_gbs or _TYPICAL_LINK_GBS) * 1e9 / 2.0
    crossing = 1.0 if operation == "send_receive" else (devices - 1.0) / devices
    bound = _ROUNDS[operation] * crossing * message_bytes / link
    features = [
        np.log2(message_bytes),
        np.log2(devices),
        np.log(bound * 1e6),
        np.log(message_bytes / chip.l2_bytes),
        np.log(message_bytes / devices / chip.units),
        np.full(len(bound), np.log(link / chip.bandwidth)),
    ]
    steps_s = (devices - 1.0) * 1e-6
    copied_s = message_bytes / chip.bandwidth
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([steps_s, copied_s]),
        parallel_s=np.column_stack([bound]),
        launch=np.full(len(bound), LAUNCH_CLOCK_HZ / chip.clock_hz),
        least_s=np.full(len(bound), LAUNCH_S),
        site=devices,
    )


TRAFFIC: Final[dict[ElementwiseName, float]] = {
    "norm": 2.0,
    "rotary": 2.0,
    "activation": 3.0,
    "add": 3.0,
    "embedding": 2.0,
}
"""Values that each operation reads and writes per value of its result."""
ELEMENTWISE_FEATURES: Final = (
    "log_tokens",
    "log_width",
    "alignment",
    "log_bound",
    "log_bytes_over_l2",
    "log_rows_over_units",
    "memory_over_bound",
)
_BYTES = 2.0


def elementwise_table(
    tokens: Column, width: Column, operation: ElementwiseName, device: Device
) -> KernelTable:
    """One elementwise operation at n sizes on one device.

    Args:
        tokens: (n,) rows.
        width: (n,) values per row of the result.
        operation: the operation.
        device: the device.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    moved = TRAFFIC[operation] * tokens * width * _BYTES
    bound = moved / chip.bandwidth
    cached_s = chip.memory_s(moved, moved)
    whole = np.asarray(width, dtype=np.int64)
    features = [
        np.log2(tokens),
        np.log2(width),
        np.log2(np.minimum(whole & -whole, 256)),
        np.log(bound * 1e6),
        np.log(moved / chip.l2_bytes),
        np.log(tokens / chip.units),
        np.log(cached_s / bound),
    ]
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([tokens / chip.units / chip.clock_hz]),
        parallel_s=np.column_stack([cached_s]),
        launch=np.ones(len(bound)),
        least_s=np.full(len(bound), LAUNCH_S),
        site=np.asarray(width, dtype=np.float64),
    )


EXPERTS_FEATURES: Final = (
    "log_tokens",
    "log_hidden_size",
    "log_width",
    "log_local_experts",
    "log_experts_per_token",
    "log_expert_parallel",
    "skew",
    "log_bound",
    "covered_share",
    "log_tokens_per_covered_expert",
    "log_waves",
    "last_wave",
    "tile_fill",
    "log_intensity_over_ridge",
    "log_weights_over_l2",
)
_PRODUCTS: Final = 3.0
"""Matrices of a gated network: gate, up and down."""
_TILE, _TILE_COLUMNS = 64.0, 128.0
_LARGEST_SHARE: Final = 0.8
"""Share of tokens that the most loaded expert gets before normalisation, in AIConfigurator's
benchmark of skewed loads."""


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Dimensions of the routed experts of n kernels, and the devices that share them.

    Attributes:
        hidden_size: (n,) width of a token.
        width: (n,) intermediate width of a whole expert.
        experts: (n,) routed experts of the layer.
        experts_per_token: (n,) experts that a token is routed to.
        tensor: (n,) tensor parallelism: devices that each expert is divided over.
        expert: (n,) expert parallelism: devices that experts are spread over.
        skew: (n,) exponent of the power law of the experts' loads; 0 for equal loads.
    """

    hidden_size: Column
    width: Column
    experts: Column
    experts_per_token: Column
    tensor: Column
    expert: Column
    skew: Column


def experts_table(
    tokens: Column, sizes: ExpertSizes, form: ProductFormat, device: Device
) -> KernelTable:
    """The gated networks of routed experts, on one of the devices that share a layer.

    Args:
        tokens: (n,) tokens of all devices together.
        sizes: dimensions and parallelism of the experts.
        form: number format of the products.
        device: the device.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    hidden_size, expert, skew = sizes.hidden_size, sizes.expert, sizes.skew
    experts, experts_per_token = sizes.experts, sizes.experts_per_token
    chip, product = Chip.of(device), PRODUCTS[form]
    peak = device.peak(product.precision, matrix=True) * 1e12
    local_width, local = sizes.width / sizes.tensor, np.maximum(experts / expert, 1.0)
    routed = tokens * experts_per_token / expert
    covered_share, tiles_share = _loads(tokens, experts, experts_per_token, skew)
    covered, tiles = covered_share * local, tiles_share * local
    weights = covered * _PRODUCTS * hidden_size * local_width * product.weights.bytes
    activations = routed * (2.0 * hidden_size + 2.0 * local_width) * product.activations.bytes
    compute_s = 2.0 * _PRODUCTS * routed * hidden_size * local_width / peak
    memory_s = (weights + activations) / chip.bandwidth
    bound = np.maximum(compute_s, memory_s)
    fill = np.minimum(routed / (tiles * _TILE), 1.0)
    waves = tiles * np.ceil(2.0 * local_width / _TILE_COLUMNS) / chip.units
    features = [
        np.log2(tokens),
        np.log2(hidden_size),
        np.log2(local_width),
        np.log2(local),
        np.log2(experts_per_token),
        np.log2(expert),
        skew,
        np.log(bound * 1e6),
        covered_share,
        np.log2(np.maximum(routed / covered, 1.0)),
        np.log(waves),
        waves / np.ceil(waves),
        fill,
        np.log(compute_s / memory_s),
        np.log(weights / chip.l2_bytes),
    ]
    scattered_s = routed * hidden_size * 4.0 / chip.bandwidth
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([hidden_size / chip.clock_hz, scattered_s]),
        parallel_s=np.column_stack([compute_s / fill, memory_s]),
        launch=np.full(len(bound), LAUNCH_CLOCK_HZ / chip.clock_hz),
        least_s=np.full(len(bound), LAUNCH_S),
        site=hidden_size * 2.0**36 + sizes.width * 2.0**18 + experts * 2.0**6 + experts_per_token,
    )


def _loads(
    tokens: Column, experts: Column, experts_per_token: Column, skew: Column
) -> tuple[Column, Column]:
    """Share of experts that get a token, and row tiles per expert, (n,) each."""
    cases = np.column_stack([tokens, experts, experts_per_token, skew])
    unique, inverse = np.unique(cases, axis=0, return_inverse=True)
    results = np.array([_load(*map(float, case)) for case in unique]).reshape(-1, 2)
    covered, tiles = results[inverse.ravel()].T
    return covered, tiles


@lru_cache(maxsize=65_536)
def _load(
    tokens: float, experts: float, experts_per_token: float, skew: float
) -> tuple[float, float]:
    """Share of experts that get a token, and mean number of row tiles per expert."""
    total = tokens * experts_per_token
    if skew == 0.0:
        covered = min(1.0, total / experts)
        return covered, covered * float(np.ceil(max(1.0, total / experts) / _TILE))
    # Take loads at evenly spaced quantiles of a bounded power law, and normalise their sum.
    quantiles = (np.arange(experts) + 0.5) / experts
    power, most = 1.0 - skew, max(_LARGEST_SHARE * tokens, 2.0)
    loads = (1.0 + quantiles * (most**power - 1.0)) ** (1.0 / power)
    loads *= total / loads.sum()
    covered = float(np.minimum(loads, 1.0).mean())
    tiles = np.minimum(loads, 1.0) * np.ceil(np.maximum(loads, 1.0) / _TILE)
    return covered, float(tiles.mean())


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
"""Fewest cached tokens in a split of decode attention, which gets its own compute unit."""
_QUERY_TILE = 128.0
_ACTIVATION_BYTES = FORMATS["bf16"].bytes


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention heads of n kernels, on one device.

    Attributes:
        query, key_value: (n,) number of query heads and of key-value heads.
        width: (n,) width of a head.
        window: (n,) maximum tokens that a token attends to; infinite without a window.
    """

    query: Column
    key_value: Column
    width: Column
    window: Column

    @property
    def site(self) -> Column:
        """(n,) keys, equal for heads that differ only in their window."""
        return np.asarray(self.query * 2.0**40 + self.key_value * 2.0**20 + self.width)


def decode_table(
    sequences: Column,
    context: Column,
    heads: Heads,
    cache_format: AttentionFormat,
    device: Device,
) -> KernelTable:
    """Decode attention: one new token in each of several sequences, on one device.

    The bound reads the cache once for each key-value head.

    Args:
        sequences: (n,) number of sequences.
        context: (n,) tokens per sequence, including the new one.
        heads: heads of the n kernels.
        cache_format: number format of keys and values.
        device: the device.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    query_heads, key_value_heads = heads.query, heads.key_value
    head_dim, window = heads.width, heads.window
    attended, group = np.minimum(context, window), query_heads / key_value_heads
    blocks = sequences * key_value_heads
    cached = 2.0 * blocks * attended * head_dim * FORMATS[cache_format].bytes
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
    """Prefill attention: causal attention of prompt tokens, on one device.

    Args:
        sequences: (n,) number of prompts.
        tokens: (n,) query tokens per prompt.
        context: (n,) tokens per prompt that are already in the cache.
        heads: heads of the n kernels.
        product_format: number format of the products.
        cache_format: number format of keys and values.
        device: the device.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    query_heads, key_value_heads, head_dim = heads.query, heads.key_value, heads.width
    length = tokens + context
    attended = np.minimum(length, heads.window + tokens - 1.0)
    pairs = attended_pairs(tokens, context, heads.window)
    flops = 4.0 * sequences * query_heads * head_dim * pairs
    cached = 2.0 * sequences * key_value_heads * attended * head_dim * FORMATS[cache_format].bytes
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
    """Pairs of a query token and a token that it attends to, itself included, shape (n,).

    Args:
        tokens: (n,) query tokens.
        context: (n,) tokens before them.
        window: (n,) maximum tokens that a token attends to; infinite without a window.
    """
    growing = np.clip(window - context, 0.0, tokens)
    whole = growing * context + growing * (growing + 1.0) / 2.0
    limited = np.where(np.isfinite(window), window, 0.0) * (tokens - growing)
    return np.asarray(whole + limited)


PRODUCT_FORMATS: Final[Mapping[NumberFormat, ProductFormat]] = {"bf16": "bf16", "fp16": "fp16"}
"""Precision of an operator -> number format of the equivalent engine kernel.

fp8 is missing: engines' products take 1.45 times as long as PyTorch's own, whose operands are
already in fp8 (54 products of `torch_gpu` on H100 and H200)."""
SIMILAR: Final = 0.1**0.5
"""Distance between devices at which the weight of one for the other falls to 1/e; chosen on matrix
products of H200, B200, GB200 and GB300, each held out in turn."""


def family_of(kernel: KernelShape) -> str:
    """Name of the kernel's family, such as `decode/fp8` or `nccl/all_reduce`."""
    match kernel:
        case GemmKernel():
            return f"gemm/{'bf16' if kernel.format == 'fp16' else kernel.format}"
        case ElementwiseKernel():
            return f"elementwise/{kernel.operation}"
        case AttentionKernel(phase="decode"):
            return f"decode/{kernel.cache_format}"
        case AttentionKernel():
            return f"prefill/{kernel.format}_{kernel.cache_format}"
        case ExpertsKernel():
            return f"experts/{'bf16' if kernel.format == 'fp16' else kernel.format}"
        case CollectiveKernel():
            return f"{kernel.library}/{kernel.operation}"


def llm_kernel_of(workload: Workload) -> LlmKernel | None:
    """The workload as a language-model kernel; None if it is not one.

    A 16-bit linear layer or unbatched product of two matrices is the same kernel that engines
    launch.

    Args:
        workload: any workload.
    """
    match workload:
        case LlmKernel():
            return workload
        case Kernel(operator=operator, precision=precision) if precision in PRODUCT_FORMATS:
            inputs, outputs = operator.input_shapes, operator.output_shapes
        case _:
            return None
    is_linear = operator.kind == "linear" and len(inputs) == 1 and len(outputs) == 1
    two = operator.kind == "matmul" and [len(shape) for shape in inputs] == [2, 2]
    if not (is_linear or two) or not inputs[0] or not outputs or not outputs[0]:
        return None
    m, n, k = prod(inputs[0][:-1]), outputs[0][-1], inputs[0][-1]
    if min(m, n, k) < 1 or prod(outputs[0][:-1]) != m:
        return None
    return LlmKernel(GemmKernel(m, n, k, PRODUCT_FORMATS[precision]))


def kernel_groups(queries: Sequence[Query]) -> Iterator[KernelGroup]:
    """Group queries by family and device, in order of appearance.

    Args:
        queries: language-model kernels on devices with a spec sheet.
    """
    devices = {id(query.device): query.device for query in queries}
    kernels = [llm_kernel_of(query.workload) or query.llm_kernel for query in queries]
    keys = [(family_of(k.kernel), id(q.device)) for k, q in zip(kernels, queries, strict=True)]
    for (family, device), rows in groups_of(keys).items():
        workloads = [kernels[row] for row in rows]
        yield KernelGroup(
            family,
            devices[device],
            tuple((Chip.of(devices[device]).position / SIMILAR).tolist()),
            np.array(rows, dtype=np.intp),
            np.array([workload.engine for workload in workloads], dtype=np.str_),
            np.ones(len(rows)),
            np.array([_class(queries[row].workload) for row in rows], dtype=np.intp),
            kernel_table([workload.kernel for workload in workloads], devices[device]),
            np.full(len(rows), np.nan),
        )


def _class(workload: Workload) -> int:
    return CLASS_CODE[CLASS_OF_NAME[workload.operator.kind]] if isinstance(workload, Kernel) else -1


def kernel_table(kernels: Sequence[KernelShape], device: Device) -> KernelTable:
    """The table of kernels of one family on one device.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    match kernels[0]:
        case GemmKernel() as first:
            m, n, k = (_column(kernels, name) for name in ("m", "n", "k"))
            return gemm_table(m, n, k, first.format, device)
        case ElementwiseKernel() as first:
            tokens, width = _column(kernels, "tokens"), _column(kernels, "width")
            return elementwise_table(tokens, width, first.operation, device)
        case AttentionKernel() as first:
            return _attention_table(kernels, first, device)
        case ExpertsKernel() as first:
            sizes = ExpertSizes(**{f.name: _column(kernels, f.name) for f in fields(ExpertSizes)})
            return experts_table(_column(kernels, "tokens"), sizes, first.format, device)
        case CollectiveKernel() as first:
            message, devices = _column(kernels, "message_bytes"), _column(kernels, "devices")
            return collective_table(message, devices, first.operation, device)


def _attention_table(
    kernels: Sequence[KernelShape], first: AttentionKernel, device: Device
) -> KernelTable:
    window = _column(kernels, "window")
    heads = Heads(
        query=_column(kernels, "query_heads"),
        key_value=_column(kernels, "key_value_heads"),
        width=_column(kernels, "head_dim"),
        window=np.where(np.isnan(window), np.inf, window),
    )
    sequences, tokens = _column(kernels, "sequences"), _column(kernels, "query_tokens")
    context = _column(kernels, "context_tokens")
    if first.phase == "decode":
        return decode_table(sequences, context + tokens, heads, first.cache_format, device)
    formats = first.format, first.cache_format
    return prefill_table(sequences, tokens, context, heads, *formats, device)


def _column(kernels: Sequence[KernelShape], name: str) -> Column:
    return np.array([getattr(kernel, name) for kernel in kernels], dtype=np.float64)
