"""Queries about kernels of language models, by device and family."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Final

import numpy as np

from forerun.data.columns import Column, groups_of
from forerun.data.device import Device
from forerun.data.language_models.kernel import (
    AttentionKernel,
    CollectiveKernel,
    ElementwiseKernel,
    ExpertsKernel,
    GemmKernel,
    KernelShape,
    LlmKernel,
    ProductFormat,
)
from forerun.data.query import Query
from forerun.data.workload import Kernel, NumberFormat, Workload
from forerun.features.llm_kernels.attention import Heads, decode_table, prefill_table
from forerun.features.llm_kernels.chip import Chip
from forerun.features.llm_kernels.collectives import collective_table
from forerun.features.llm_kernels.elementwise import elementwise_table
from forerun.features.llm_kernels.experts import ExpertSizes, experts_table
from forerun.features.llm_kernels.gemm import gemm_table
from forerun.features.llm_kernels.table import KernelGroup, KernelTable
from forerun.features.operators.kinds import CLASS_CODE, CLASS_OF_NAME

PRODUCT_FORMATS: Final[Mapping[NumberFormat, ProductFormat]] = {"bf16": "bf16", "fp16": "fp16"}
"""Precision of an operator -> number format of the matrix product that computes it.

Products in fp8 are not among them: those of engines take 1.45 times as long as PyTorch's own, whose
operands are in fp8 already (54 products of `torch_gpu` on H100 and H200)."""
SIMILAR: Final = 0.1**0.5
"""Distance of positions at which the weight of a device for another falls to 1/e; chosen on
matrix products of H200, B200, GB200 and GB300, each left out in turn."""


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
    """The workload as a kernel of a language model; None where it is not one.

    A linear layer, or a product of two matrices without a batch, in 16 bits is the matrix product
    that engines launch.

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
    one = operator.kind == "linear" and len(inputs) == 1 and len(outputs) == 1
    two = operator.kind == "matmul" and [len(shape) for shape in inputs] == [2, 2]
    if not (one or two) or not inputs[0] or not outputs or not outputs[0]:
        return None
    m, n, k = prod(inputs[0][:-1]), outputs[0][-1], inputs[0][-1]
    if min(m, n, k) < 1 or prod(outputs[0][:-1]) != m:
        return None
    return LlmKernel(GemmKernel(m, n, k, PRODUCT_FORMATS[precision]))


def kernel_groups(queries: Sequence[Query]) -> Iterator[KernelGroup]:
    """The queries by family and device, in order of appearance.

    Args:
        queries: kernels of language models, each of a family, on devices with a spec sheet.
    """
    devices = {id(query.device): query.device for query in queries}
    kernels = [llm_kernel_of(query.workload) or query.llm_kernel for query in queries]
    keys = [(family_of(k.kernel), id(q.device)) for k, q in zip(kernels, queries, strict=True)]
    for (family, device), own in groups_of(keys).items():
        workloads = [kernels[row] for row in own]
        yield KernelGroup(
            family,
            devices[device],
            tuple((Chip.of(devices[device]).position / SIMILAR).tolist()),
            np.array(own, dtype=np.intp),
            np.array([workload.engine for workload in workloads], dtype=np.str_),
            np.ones(len(own)),
            np.array([_class(queries[row].workload) for row in own], dtype=np.intp),
            kernel_table([workload.kernel for workload in workloads], devices[device]),
            np.full(len(own), np.nan),
        )


def _class(workload: Workload) -> int:
    return CLASS_CODE[CLASS_OF_NAME[workload.operator.kind]] if isinstance(workload, Kernel) else -1


def kernel_table(kernels: Sequence[KernelShape], device: Device) -> KernelTable:
    """Kernels of one family on one device.

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
