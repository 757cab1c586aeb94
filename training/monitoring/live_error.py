"""Errors of answers that were given, against what was measured afterwards."""

from dataclasses import dataclass

import numpy as np

from forerun.data.shapes import Float64


@dataclass(frozen=True, slots=True)
class LiveError:
    """Errors of the answers about n observations.

    Attributes:
        rows: n.
        mape: mean absolute percentage error, percent of the measured value.
        median_ape: median absolute percentage error, percent.
        bias: median of log(measured / answered); 0.1 says that runs take about 10 % more than was
            answered.
        rows_with_interval: observations whose answer had a 90 % interval.
        coverage_90: share of those that lie inside it, percent; None where there are none.
    """

    rows: int
    mape: float
    median_ape: float
    bias: float
    rows_with_interval: int
    coverage_90: float | None

    @classmethod
    def of(
        cls, log_ratios: Float64[np.ndarray, " n"], inside: Float64[np.ndarray, " n"]
    ) -> "LiveError":
        """The errors of n answers, at least one.

        Args:
            log_ratios: log(measured / answered), finite.
            inside: 1 where the measured value lies in the interval, 0 where it does not, NaN where
                the answer had none.

        Raises:
            ValueError: there is no row, or one is not finite.
        """
        if not len(log_ratios) or not np.isfinite(log_ratios).all():
            raise ValueError("live errors need finite log ratios, at least one")
        errors = 100.0 * np.abs(np.expm1(-log_ratios))
        known = inside[~np.isnan(inside)]
        return cls(
            rows=len(log_ratios),
            mape=float(errors.mean()),
            median_ape=float(np.median(errors)),
            bias=float(np.median(log_ratios)),
            rows_with_interval=len(known),
            coverage_90=100.0 * float(known.mean()) if len(known) else None,
        )
