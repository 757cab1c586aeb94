"""Operators and graphs from the tables of dataset bundles, in one place."""

from forerun.features.tables.neusight import (
    bmm_kernel,
    conv_kernel,
    linear_kernel,
    neusight_graphs,
    neusight_kernels,
    vector_kernel,
)
from forerun.features.tables.timm_bench import timm_graphs
from forerun.features.tables.torch_op_energy import module_kernel, torch_op_energy_kernels

__all__ = [
    "bmm_kernel",
    "conv_kernel",
    "linear_kernel",
    "module_kernel",
    "neusight_graphs",
    "neusight_kernels",
    "timm_graphs",
    "torch_op_energy_kernels",
    "vector_kernel",
]
