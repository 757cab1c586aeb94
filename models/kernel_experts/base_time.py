"""Times of kernels in closed form: a launch, serial terms, and terms that overlap."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.features.llm_kernels.table import KernelTable

LAUNCH_UNIT_S = 1e-6
_START_SERIAL, _START_PARALLEL, _START_SHARPNESS = 0.5, 1.3, 1.0
_LEAST, _MOST = -14.0, 7.0
"""Range of the logarithms of factors."""


@dataclass(frozen=True)
class BaseTime:
    """Factors of the terms of a `KernelTable`, by which kernels of one family take

        launch x its relative time + sum(serial factor x term)
            + (sum((parallel factor x term) ** p)) ** (1 / p)

    Attributes:
        launch_s: least time of a kernel at the clock that launches are relative to, seconds.
        serial: (serial terms,) factors.
        parallel: (parallel terms,) factors; the inverse is the share of the sheet's rate.
        sharpness: p - 1; large where the longest term alone counts, 0 where terms add up.
    """

    launch_s: float
    serial: Column
    parallel: Column
    sharpness: float

    @classmethod
    def fit(cls, table: KernelTable, log_seconds: Column, weights: Column) -> Self:
        """Factors with the least robust error of the logarithm.

        Args:
            table: n kernels, of any devices.
            log_seconds: (n,) logarithms of their measured times.
            weights: (n,) weights.
        """
        from scipy.optimize import least_squares

        serial, parallel = table.serial_s.shape[1], table.parallel_s.shape[1]
        factors = [2.0, *[_START_SERIAL] * serial, *[_START_PARALLEL] * parallel, _START_SHARPNESS]
        root = np.sqrt(weights / weights.mean())

        def errors(logs: Column) -> Column:
            return np.asarray(root * (np.log(cls._of(logs, serial).seconds(table)) - log_seconds))

        start = np.log(factors)
        found = least_squares(errors, start, bounds=(_LEAST, _MOST), loss="soft_l1", f_scale=0.1)
        return cls._of(found.x, serial)

    @classmethod
    def _of(cls, logs: Column, serial: int) -> Self:
        factors = np.exp(logs)
        return cls(
            launch_s=float(factors[0]) * LAUNCH_UNIT_S,
            serial=factors[1 : 1 + serial],
            parallel=factors[1 + serial : -1],
            sharpness=float(factors[-1]),
        )

    def seconds(self, table: KernelTable) -> Column:
        """Time of each kernel, shape (n,), seconds."""
        return np.asarray(self._parts(table).sum(axis=1))

    def shares(self, table: KernelTable) -> Matrix:
        """Share of each kernel's time that a change of each factor changes, shape (n, factors).

        Columns are launch, serial terms and parallel terms; each row sums to 1.
        """
        parts = self._parts(table)
        return np.asarray(parts / parts.sum(axis=1, keepdims=True))

    def _parts(self, table: KernelTable) -> Matrix:
        """Seconds of the launch, of serial terms, and of parallel terms by their elasticities."""
        power = 1.0 + self.sharpness
        terms = table.parallel_s * self.parallel
        longest = terms.max(axis=1, keepdims=True)
        # Terms over the longest one keep large powers within the range of numbers.
        powers = (terms / longest) ** power
        total = powers.sum(axis=1, keepdims=True)
        together = longest * total ** (1.0 / power)
        launch = self.launch_s * table.launch[:, None]
        return np.hstack([launch, table.serial_s * self.serial, together * powers / total])
