"""From what the allocator reserves to what a device shows: one affine map, fitted robustly.

Runs whose measured peak is far above the map are left to count little: cuDNN's search for the
fastest convolution takes gigabytes for a moment, which a sampled peak catches or misses by chance.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.features.memory.plan import MemoryPlan

Column = NDArray[np.float64]
ROUNDS = 40
LEAST_RESIDUAL = 1e-3


@dataclass(frozen=True, slots=True)
class AffineMap:
    """Device-level peak from a plan, MiB.

    Attributes:
        reserved: MiB a MiB that the allocator reserves; above 1 for fragments that many steps make.
        largest_convolution: workspace a MiB of traffic of the largest spatial convolution.
        convolutions: the same for the sum over all of them.
        library: what the library for convolutions takes once it is loaded.
        context: what the device takes whatever the network.
    """

    reserved: float
    largest_convolution: float
    convolutions: float
    library: float
    context: float

    def workspace(self, plan: MemoryPlan) -> float:
        """Memory of convolutions beside tensors, MiB."""
        spatial = self.largest_convolution * plan.largest_convolution
        return max(0.0, spatial + self.convolutions * plan.convolutions)

    def own(self, plan: MemoryPlan) -> float:
        """Memory that the device takes for itself, MiB."""
        return self.context + self.library * plan.has_convolutions

    def peak(self, plan: MemoryPlan) -> float:
        """Peak that the device shows, MiB."""
        return self.reserved * plan.reserved + self.workspace(plan) + self.own(plan)

    @classmethod
    def fit(cls, plans: Sequence[MemoryPlan], measured: Column, at_least: Column) -> "AffineMap":
        """Least absolute relative error, by weights that are inverse to the last round's residuals.

        Args:
            plans: n plans.
            measured: n peaks, MiB; NaN where a run ended for want of memory.
            at_least: n lower bounds, MiB, for those that did; NaN elsewhere. Such a row counts only
                while its answer is below the bound.
        """
        matrix = np.array([_row(plan) for plan in plans])
        free = matrix.std(axis=0) > 0
        # What is the same in all rows cannot be told from the context.
        free[-1] = True
        free[0] = True
        shown = matrix[:, free]
        target = np.where(np.isnan(measured), at_least, measured)
        weights = np.where(np.isnan(measured), 0.0, 1.0)
        solved: Column = np.zeros(shown.shape[1])
        residual: Column = np.ones(len(target))
        for _ in range(ROUNDS):
            scale = weights / target / np.sqrt(np.maximum(residual, LEAST_RESIDUAL))
            least = np.linalg.lstsq(shown * scale[:, None], target * scale, rcond=None)
            solved = np.asarray(least[0], dtype=np.float64)
            answer = shown @ solved
            residual = np.asarray(np.abs(answer - target) / target, dtype=np.float64)
            weights = np.where(np.isnan(measured) & (answer >= target), 0.0, 1.0)
        whole = np.zeros(matrix.shape[1])
        whole[free] = solved
        return cls(*whole.tolist())

    def to_json(self) -> list[float]:
        """Coefficients in the order of the attributes."""
        return list(astuple(self))


def _row(plan: MemoryPlan) -> tuple[float, ...]:
    return (
        plan.reserved,
        plan.largest_convolution,
        plan.convolutions,
        float(plan.has_convolutions),
        1.0,
    )
