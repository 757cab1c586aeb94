"""The sum of kernel times, without fitting: a baseline of all protocols for served models."""

from collections.abc import Mapping, Sequence

import numpy as np

from forerun.data.columns import Column
from forerun.data.query import Query
from forerun.models.kernel_experts.llm_kernels import LlmKernels
from forerun.models.llm_serving.kernel_sums import kernel_sums
from forerun.training.protocols.protocol import bundled_part


def summed_kernels(queries: Sequence[Query], metric: str) -> Mapping[str, Column]:
    """The baseline `kernel_sums` of a metric for n deployments; empty if no GPU has kernels.

    Kernel times come from the bundled predictor, which is trained on no serving run.
    """
    found = kernel_sums(queries, bundled_part(LlmKernels))[metric]
    return {} if np.isnan(found).all() else {"kernel_sums": found}
