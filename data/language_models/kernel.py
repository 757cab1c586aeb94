"""Kernels that an inference engine launches for a language model.

Sizes are per device, after tensor and expert parallelism have divided the layer.
"""

from dataclasses import dataclass
from typing import Literal

from forerun.data.language_models.deployment import EngineName

ProductFormat = Literal[
    "bf16", "fp16", "fp8", "fp8_block", "nvfp4", "int4", "mxfp4", "mxfp4_mxfp8", "mxfp4_mxfp4"
]
"""Number formats of a matrix product. `fp8` has one scale per tensor or row, `fp8_block` one per
block of 128 weights; `nvfp4` has 4 bits on both sides; `int4` and `mxfp4` are stored in 4 bits and
multiplied in 16; `mxfp4_mxfp8` multiplies them with 8-bit activations, `mxfp4_mxfp4` with 4-bit.
"""

ElementwiseName = Literal["norm", "rotary", "activation", "add", "embedding"]
CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"]
CollectiveLibrary = Literal["nccl", "custom", "custom_graph"]


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """A product of an (m, k) matrix of activations with an (n, k) matrix of weights.

    Attributes:
        m, n, k: tokens, outputs and inputs.
        format: number format of both operands; the result is in 16 bits.
    """

    m: int
    n: int
    k: int
    format: ProductFormat = "bf16"


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """Attention of sequences of equal length; decode has one query token in each of them.

    Attributes:
        sequences: number of sequences.
        query_tokens: query tokens per sequence.
        context_tokens: tokens per sequence whose keys and values are already cached.
        query_heads, key_value_heads: number of heads.
        head_dim: width of a head.
        phase: prefill or decode, for which engines use different kernels.
        window: most tokens that a token attends to; None for all.
        format: number format of the products.
        cache_format: number format of keys and values.
    """

    sequences: int
    query_tokens: int
    context_tokens: int
    query_heads: int
    key_value_heads: int
    head_dim: int
    phase: Literal["prefill", "decode"] = "prefill"
    window: int | None = None
    format: Literal["bf16", "fp8"] = "bf16"
    cache_format: Literal["bf16", "fp8"] = "bf16"


@dataclass(frozen=True, slots=True)
class ExpertsKernel:
    """The routed experts of one layer: both products, the activation, gather and scatter.

    Attributes:
        tokens: number of tokens on all devices together.
        hidden_size: width of a token.
        width: intermediate width of one expert before it is divided.
        experts: routed experts of the layer.
        experts_per_token: experts that a token is routed to.
        tensor: tensor parallelism: devices that each expert is divided over.
        expert: expert parallelism: devices that experts are spread over.
        skew: exponent of the power law of the experts' loads; 0 for equal loads.
        format: number format of the products.
    """

    tokens: int
    hidden_size: int
    width: int
    experts: int
    experts_per_token: int
    tensor: int = 1
    expert: int = 1
    skew: float = 0.0
    format: ProductFormat = "bf16"


@dataclass(frozen=True, slots=True)
class CollectiveKernel:
    """One collective operation.

    Attributes:
        operation: the collective.
        devices: devices that take part.
        message_bytes: size of the whole message, bytes.
        library: NCCL, or an engine's own kernels, launched one by one or replayed as a CUDA graph.
    """

    operation: CollectiveName
    devices: int
    message_bytes: int
    library: CollectiveLibrary = "nccl"


@dataclass(frozen=True, slots=True)
class ElementwiseKernel:
    """A memory-bound elementwise operation.

    Attributes:
        operation: normalisation, rotary embedding, gated activation, residual sum or look-up.
        tokens: number of rows.
        width: values per row of the result.
        format: number format of the values.
    """

    operation: ElementwiseName
    tokens: int
    width: int
    format: Literal["bf16", "fp16"] = "bf16"


KernelShape = GemmKernel | AttentionKernel | ExpertsKernel | CollectiveKernel | ElementwiseKernel


@dataclass(frozen=True, slots=True)
class LlmKernel:
    """A kernel and the engine that launches it.

    Attributes:
        kernel: operation, sizes and number formats.
        engine: inference engine, whose libraries and settings affect the time.
    """

    kernel: KernelShape
    engine: EngineName = "other"
    kind: Literal["llm_kernel"] = "llm_kernel"
