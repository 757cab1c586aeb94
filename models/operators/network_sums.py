"""Times of networks on the device alone, summed over kernels, with the variance of their log."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.features.operators.features import FAMILIES, FAMILY_OF_KIND
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import Gathered
from forerun.models.operators.intervals import ErrorComponents, reach
from forerun.models.operators.training_rows import TimedKernels

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimedNetworks:
    """Times of n queries on the device alone, and how uncertain they are.

    Variances are of the log of the time. The shared part is the same for everything that runs on
    one device, so it does not average out over sums; the other part does.

    Attributes:
        device_ms: (n,) sum of the kernels' times.
        shared_variance: (n,) zero without intervals.
        own_variance: (n,) zero without intervals.
        freedom: (n,) degrees of freedom of the shared variance.
        adapted_deviation: (n,) standard deviation by measurements of the device; NaN without any.
        by_class_ms: (n, len(OPERATOR_CLASSES)).
    """

    device_ms: Column
    shared_variance: Column
    own_variance: Column
    freedom: Column
    adapted_deviation: Column
    by_class_ms: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> Self:
        """Room for `size` queries."""
        total, shared, own, deviation = np.zeros((4, size))
        by_class = np.zeros((size, len(OPERATOR_CLASSES)))
        return cls(total, shared, own, np.ones(size), deviation, by_class)

    def add(
        self,
        part: Gathered,
        kernels: TimedKernels,
        novelty: float,
        components: ErrorComponents | None,
    ) -> None:
        """Fill in the rows of the queries that share a device and a precision.

        Args:
            part: their operators.
            kernels: the operators' times.
            novelty: of the device; 0 where training rows are of it.
            components: variances of the error; None leaves them at zero.
        """
        spent = kernels.times * part.table.repeat
        mine, owner = np.unique(part.owner, return_inverse=True)
        together = np.bincount(owner, weights=spent)
        self.device_ms[mine] = together
        np.add.at(self.by_class_ms, (part.owner, part.table.op_class), spent)
        shares = spent / np.maximum(together[owner], 1e-300)
        self.adapted_deviation[mine] = np.bincount(owner, weights=shares * kernels.deviation)
        if components is None:
            return
        family = FAMILY_OF_KIND[part.table.kind]
        by_family = np.zeros((len(mine), len(FAMILIES)))
        np.add.at(by_family, (owner, family), shares)
        far = np.full(len(mine), novelty)
        self.shared_variance[mine], self.freedom[mine] = components.shared_variance(by_family, far)
        self.own_variance[mine] = components.own_variance(
            owner, shares, family, kernels.site, kernels.kernel
        )

    def interval(
        self, value_ms: Column, components: ErrorComponents | None
    ) -> tuple[Column, Column]:
        """Low and high around n values; the values themselves without components."""
        if components is None:
            return value_ms, value_ms
        variance = self.shared_variance + self.own_variance
        # Satterthwaite: the own part rests on many sites, so it adds no doubt about the variance.
        share = np.maximum(self.shared_variance, 1e-30) / np.maximum(variance, 1e-30)
        width = reach(variance, self.freedom / share**2, components.coverage)
        return value_ms * np.exp(-width), value_ms * np.exp(width)
