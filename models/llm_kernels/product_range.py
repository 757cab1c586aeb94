"""Range of the sizes of matrix products that were measured, by family."""

from collections.abc import Mapping, Sequence

import numpy as np

from forerun.data.columns import Matrix
from forerun.data.language_models.kernel import GemmKernel, KernelShape
from forerun.features.llm_kernels.families import family_of
from forerun.features.llm_kernels.gemm import PRODUCT_SIZES
from forerun.models.domain.feature_range import FeatureRange


def product_ranges(features: Mapping[str, Sequence[Matrix]]) -> dict[str, FeatureRange]:
    """Family of matrix products -> range of the logarithms of m, n and k to base 2.

    Args:
        features: family -> feature matrices of its kernels; families of other kernels are ignored.
    """
    products = {name: own for name, own in features.items() if name.startswith("gemm/")}
    return {
        name: FeatureRange.of(
            PRODUCT_SIZES, np.concatenate([matrix[:, : len(PRODUCT_SIZES)] for matrix in own])
        )
        for name, own in products.items()
    }


def in_range(kernel: KernelShape, ranges: Mapping[str, FeatureRange]) -> bool:
    """Whether a kernel is a matrix product of a size within the range of its family.

    Args:
        kernel: any kernel.
        ranges: as `product_ranges` gives them.
    """
    own = ranges.get(family_of(kernel))
    if own is None or not isinstance(kernel, GemmKernel):
        return False
    return not own.outside(np.log2([kernel.m, kernel.n, kernel.k]), tolerance=0.0)
