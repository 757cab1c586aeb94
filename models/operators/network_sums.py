"""Device times of networks as sums over kernels, with the variance of their logarithm."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.features.operators.features import FAMILIES, FAMILY_OF_KIND
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import Gathered
from forerun.models.operators.intervals import ErrorComponents, reach
from forerun.models.operators.training_rows import TimedKernels


@dataclass(frozen=True, slots=True)
class TimedNetworks:
    """Device times of n queries and their uncertainty.

    Variances are those of the logarithm of the time. The shared component of the error is common to
    everything that runs on one device, so it does not average out in a sum; the other one does.

    Attributes:
        device_ms: (n,) sum of the kernels' times in milliseconds.
        shared_variance: (n,) variance of the shared component; zero without calibration.
        own_variance: (n,) variance of the other component; zero without calibration.
        freedom: (n,) degrees of freedom of the shared variance.
        adapted_deviation: (n,) standard deviation after adaptation to the device; NaN without it.
        by_class_ms: (n, len(OPERATOR_CLASSES)) milliseconds of each operator class.
    """

    device_ms: Column
    shared_variance: Column
    own_variance: Column
    freedom: Column
    adapted_deviation: Column
    by_class_ms: Matrix

    @classmethod
    def empty(cls, size: int) -> Self:
        """Times of `size` queries, to be filled in by `add`."""
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
            part: operators of these queries.
            kernels: times of these operators.
            novelty: novelty of the device; 0 for a device of the training rows.
            components: variance components of the error; None leaves variances at zero.
        """
        kernel_ms = kernels.times * part.table.repeat
        rows, owner = np.unique(part.owner, return_inverse=True)
        total_ms = np.bincount(owner, weights=kernel_ms)
        self.device_ms[rows] = total_ms
        np.add.at(self.by_class_ms, (part.owner, part.table.op_class), kernel_ms)
        shares = kernel_ms / np.maximum(total_ms[owner], 1e-300)
        self.adapted_deviation[rows] = np.bincount(owner, weights=shares * kernels.deviation)
        if components is None:
            return
        family = FAMILY_OF_KIND[part.table.kind]
        by_family = np.zeros((len(rows), len(FAMILIES)))
        np.add.at(by_family, (owner, family), shares)
        novelties = np.full(len(rows), novelty)
        shared, self.freedom[rows] = components.shared_variance(by_family, novelties)
        self.shared_variance[rows] = shared
        self.own_variance[rows] = components.own_variance(
            owner, shares, family, kernels.site, kernels.kernel
        )

    def interval(
        self, value_ms: Column, components: ErrorComponents | None
    ) -> tuple[Column, Column]:
        """Lower and upper bounds around n values, (n,) each; the values without components."""
        if components is None:
            return value_ms, value_ms
        variance = self.shared_variance + self.own_variance
        # Satterthwaite: the own variance is estimated from many sites, so it counts as known.
        share = np.maximum(self.shared_variance, 1e-30) / np.maximum(variance, 1e-30)
        width = reach(variance, self.freedom / share**2, components.coverage)
        return value_ms * np.exp(-width), value_ms * np.exp(width)
