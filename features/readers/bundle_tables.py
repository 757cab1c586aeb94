"""Operators and graphs from the tables of dataset bundles, in one place."""

from forerun.features.readers.energy_tables import module_kernel, torch_op_energy_kernels
from forerun.features.readers.neusight_tables import (
    bmm_kernel,
    conv_kernel,
    linear_kernel,
    neusight_graphs,
    neusight_kernels,
    vector_kernel,
)
from forerun.features.readers.timm_tables import timm_graphs

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
