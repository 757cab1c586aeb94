"""Lowering mode: the properties of a query that determine its network's kernels."""

from typing import Literal, NamedTuple

from forerun.data.graph import OperatorGraph
from forerun.data.software import Software
from forerun.data.workload import NumberFormat

Casts = Literal["autocast", "half", "fp32"]
NEWEST_TORCH = 2.09
"""Version assumed where none is given."""
_FUSED_ATTENTION_SINCE = 2.0
_FP32_SCORES_SINCE = 2.05
_REPARAMETERISED_SINCE = 2.09
_FUSED_RMS_NORM_SINCE = 2.09


class LoweringMode(NamedTuple):
    """Properties of a query that determine which kernels are launched.

    Attributes:
        casts: fp32 weights with autocast, everything in half precision, or everything in fp32.
        compiled: whether a compiler fuses the operators between matrix products.
        fused_attention: whether scaled-dot-product attention runs as one kernel.
        fp32_scores: whether unfused attention computes its scores in fp32.
        benchmark_table: whether the graph comes from the timm benchmark's tables, with that
            benchmark's conventions: norms in half precision under autocast (`--fast-norm`), edges
            guessed by the tracer, attention's copies listed as operators.
        reparameterised: whether parallel convolution branches were merged before timing, as the
            timm benchmark does since its runs on torch 2.9 (inferred from its rows, undocumented).
        fused_rms_norm: whether a root-mean-square norm that the benchmark's table stores as a chain
            runs as one kernel (inferred from its rows on torch 2.9).
        recompose: whether the graph's format stores as chains what frameworks run as one kernel
            (ONNX).
    """

    casts: Casts
    compiled: bool
    fused_attention: bool
    fp32_scores: bool
    benchmark_table: bool
    reparameterised: bool
    fused_rms_norm: bool
    recompose: bool


def torch_version(software: Software) -> float:
    """Major + minor / 100; the newest measured version if torch's is not given."""
    version = software.version_number if software.framework == "torch" else None
    return NEWEST_TORCH if version is None else version


def lowering_mode(
    graph: OperatorGraph, precision: NumberFormat, software: Software
) -> LoweringMode:
    """The mode of a query; every runtime that does not compile counts as eager execution."""
    version = torch_version(software)
    table = graph.source == "table"
    return LoweringMode(
        casts=casts_of(precision),
        compiled=software.fuses,
        fused_attention=version >= _FUSED_ATTENTION_SINCE,
        fp32_scores=version >= _FP32_SCORES_SINCE,
        benchmark_table=table,
        reparameterised=table and version >= _REPARAMETERISED_SINCE,
        fused_rms_norm=table and version >= _FUSED_RMS_NORM_SINCE,
        recompose=graph.source == "onnx",
    )


def casts_of(precision: NumberFormat) -> Casts:
    """Casting rule of a number format; formats narrower than half count as half."""
    if precision in ("amp", "amp_bf16"):
        return "autocast"
    return "fp32" if precision in ("fp32", "tf32") else "half"
