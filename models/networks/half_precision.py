"""Ratio of measured to predicted device times in half precision, on GPUs without timed networks.

The predictor of whole networks learned half precision on desktop GPUs. On other GPUs its errors
depend on the phase and on what a network spends its time on, in the same way on most of them: a
ridge regression on measured runs of other GPUs corrects for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names
from forerun.data.device import Device
from forerun.data.level import LEVEL
from forerun.data.query import Query
from forerun.models.conformal import group_weights, weighted_quantile

PRECISIONS: Final = ("amp", "bf16", "fp16")
PRODUCTS: Final = ("linear", "bmm", "attention")
TERMS: Final = (
    *("training", "training_products", "training_convolutions", "training_convolutions_nchw"),
    *("inference", "inference_products", "inference_convolutions"),
)
"""Terms of the logarithm: a phase, and a phase times the share of the predicted time that matrix
products or convolutions take. Convolutions in half precision need channels last (nhwc): with nchw
they transpose their inputs or run slower kernels."""
TERM_DEVIATION: Final = 0.3
"""Standard deviation of the prior of each term."""
MATRIX_RATIO: Final = 3.0
"""Peak in half precision over that in single precision, more than which only matrix units reach."""
GROUP_DEVIATION: Final = 0.15
"""Standard deviation of the mean error of a group of rows (one family on one device) that the terms
do not explain. A group counts as one row: its rows share what was wrong with it."""


class MeasuredRuns(NamedTuple):
    """Measured networks for which `applies` is true and whose host time is well below the latency.

    Attributes:
        queries: n runs.
        breakdowns: for each, operator class -> predicted time.
        errors: (n,) logarithms of measured over predicted device time.
        low, high: (n,) distances of the interval's bounds from the logarithm of the prediction.
        groups: (n,) keys of families on devices.
        families: (n,) keys of architecture families.
        chips: (n,) keys of GPUs; all boards with one chip are one.
    """

    queries: Sequence[Query]
    breakdowns: Sequence[Mapping[str, float]]
    errors: Column
    low: Column
    high: Column
    groups: Names
    families: Names
    chips: Names


@dataclass(frozen=True)
class HalfPrecision:
    """Correction of the device time of networks in half precision.

    Attributes:
        terms: term of `TERMS` -> its posterior mean in log units; 0 where it is missing.
        width: factor on the half-widths of intervals of the corrected device time.
    """

    terms: Mapping[str, float] = field(default_factory=dict)
    width: float = 1.0

    @classmethod
    def fit(cls, runs: MeasuredRuns) -> Self:
        """Fit the terms, and the width with which intervals hold nine of ten rows.

        The rows of each GPU are predicted with terms fitted on the others, and so are those of each
        family; the wider of both widths counts. Every family on a GPU has the same weight. No
        interval is narrowed: they then held half of the runs of one family that was left out.
        """
        if not len(runs.errors):
            return cls()
        terms = _terms(runs.queries, runs.breakdowns)
        widths = [_width(runs, terms, keys) for keys in (runs.chips, runs.families)]
        mean = _posterior_mean(terms, runs.errors, runs.groups)
        return cls(dict(zip(TERMS, mean.tolist(), strict=True)), max(1.0, *widths))

    def log_factors(
        self, queries: Sequence[Query], breakdowns: Sequence[Mapping[str, float]]
    ) -> Column:
        """Logarithm of the factor on the device time of each run, shape (n,).

        Args:
            queries: n networks for which `applies` is true.
            breakdowns: for each, operator class -> predicted time.
        """
        mean = np.array([self.terms.get(name, 0.0) for name in TERMS])
        return np.asarray(_terms(queries, breakdowns) @ mean)


def applies(queries: Sequence[Query]) -> Mask:
    """Which of n networks run in half precision on GPUs with matrix units, shape (n,).

    Runs in eager mode determine the terms. They apply to compiled runs too, so that one does not
    change without the other.
    """
    return np.array(
        [q.network.precision in PRECISIONS and _has_matrix_units(q.device) for q in queries],
        dtype=np.bool_,
    )


def _has_matrix_units(device: Device) -> bool:
    peaks = device.peak_tflops
    return peaks.get("fp16", 0.0) > MATRIX_RATIO * peaks.get("fp32", inf)


def _terms(queries: Sequence[Query], breakdowns: Sequence[Mapping[str, float]]) -> Matrix:
    terms = np.zeros((len(queries), len(TERMS)))
    for row, (query, breakdown) in enumerate(zip(queries, breakdowns, strict=True)):
        whole = sum(breakdown.values()) or 1.0
        products = sum(breakdown.get(name, 0.0) for name in PRODUCTS) / whole
        convolutions = breakdown.get("conv", 0.0) / whole
        if query.network.phase == "training":
            nchw = convolutions * (query.software.layout == "nchw")
            terms[row, :4] = 1.0, products, convolutions, nchw
        else:
            terms[row, 4:] = 1.0, products, convolutions
    return terms


def _width(runs: MeasuredRuns, terms: Matrix, keys: Names) -> float:
    """Factor with which intervals hold `LEVEL` of rows whose key was left out of the terms."""
    remaining = runs.errors.copy()
    for key in np.unique(keys):
        held = keys == key
        mean = _posterior_mean(terms[~held], runs.errors[~held], runs.groups[~held])
        remaining[held] -= terms[held] @ mean
    scores = np.abs(remaining) / np.where(remaining < 0, runs.low, runs.high)
    return weighted_quantile(scores, group_weights(runs.groups), LEVEL)


def _posterior_mean(terms: Matrix, errors: Column, groups: Names) -> Column:
    """Posterior mean of each term, shape (len(TERMS),)."""
    weights = group_weights(groups) / GROUP_DEVIATION**2
    precision = np.eye(len(TERMS)) / TERM_DEVIATION**2 + (terms * weights[:, None]).T @ terms
    return np.asarray(np.linalg.solve(precision, terms.T @ (weights * errors)))
