"""Robust affine regression from the memory that the allocator reserves to the device's peak.

Runs whose measured peak is far above the fit have little weight: cuDNN's search for the fastest
convolution takes gigabytes for a moment, which a sampled peak contains only by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column
from forerun.features.memory.plan import MemoryPlan

ROUNDS = 40
"""Iterations of reweighted least squares."""
LEAST_RESIDUAL = 1e-3
"""Least relative residual in the weights, which keeps them finite."""


@dataclass(frozen=True, slots=True)
class AffineMap:
    """Device-level peak from a plan, MiB.

    Attributes:
        reserved: factor of the memory that the allocator reserves; above 1 for fragmentation over
            many steps.
        largest_convolution: workspace per MiB of traffic of the largest spatial convolution.
        convolutions: workspace per MiB of traffic of all spatial convolutions.
        library: memory of the loaded convolution library, MiB.
        context: memory that the device takes for any network, MiB.
    """

    reserved: float
    largest_convolution: float
    convolutions: float
    library: float
    context: float

    def workspace(self, plan: MemoryPlan) -> float:
        """Workspaces of convolutions, MiB, in addition to tensors."""
        spatial = self.largest_convolution * plan.largest_convolution
        return max(0.0, spatial + self.convolutions * plan.convolutions)

    def own(self, plan: MemoryPlan) -> float:
        """Memory outside the allocator: context and convolution library, MiB."""
        return self.context + self.library * plan.has_convolutions

    def peak(self, plan: MemoryPlan) -> float:
        """Device-level peak, MiB."""
        return self.reserved * plan.reserved + self.workspace(plan) + self.own(plan)

    @classmethod
    def fit(cls, plans: Sequence[MemoryPlan], measured: Column, at_least: Column) -> "AffineMap":
        """Least mean absolute relative error, by iteratively reweighted least squares.

        Args:
            plans: n plans.
            measured: n peaks, MiB; NaN where a run was out of memory.
            at_least: n lower bounds, MiB, for the runs out of memory; NaN elsewhere. Such a
                right-censored row has weight only while its fitted value is below the bound.
        """
        matrix = np.array([_row(plan) for plan in plans])
        free = matrix.std(axis=0) > 0
        # A column that is constant over all rows is not identifiable next to the intercept.
        free[[0, -1]] = True
        design_matrix = matrix[:, free]
        target = np.where(np.isnan(measured), at_least, measured)
        weights = np.where(np.isnan(measured), 0.0, 1.0)
        solved: Column = np.zeros(design_matrix.shape[1])
        residual: Column = np.ones(len(target))
        for _ in range(ROUNDS):
            scale = weights / target / np.sqrt(np.maximum(residual, LEAST_RESIDUAL))
            least = np.linalg.lstsq(design_matrix * scale[:, None], target * scale, rcond=None)
            solved = np.asarray(least[0], dtype=np.float64)
            fitted = design_matrix @ solved
            residual = np.asarray(np.abs(fitted - target) / target, dtype=np.float64)
            weights = np.where(np.isnan(measured) & (fitted >= target), 0.0, 1.0)
        whole = np.zeros(matrix.shape[1])
        whole[free] = solved
        return cls(*whole.tolist())


def _row(plan: MemoryPlan) -> tuple[float, ...]:
    return (
        plan.reserved,
        plan.largest_convolution,
        plan.convolutions,
        float(plan.has_convolutions),
        1.0,
    )
