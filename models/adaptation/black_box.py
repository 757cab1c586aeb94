"""Estimated spec sheets for devices without one, from measurements on them.

Low-rank factors of the log times of common workloads on known devices.

A matrix of log times (workloads x devices) with centred columns has few large singular values
(launch-bound, compute-bound, memory-bound, ...). The log times on a new device are modelled as a
linear combination of the factors: a Gaussian process with a linear covariance over the factors
(`forerun.models.gaussian_process.regression`) is a normal prior over its coefficients.

Stacking of predictive densities (Yao et al. 2018): weights from leave-one-out predictions.

The weights maximise the summed log density of the mixture at the held-out rows, with a Dirichlet
prior that keeps every weight above zero, because twenty rows cannot rule out an expert. No expert
is selected: where the known hardware is unlike the new device, the experts that depend on it get
low weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload
from forerun.features.hardware import estimated_sheet
from forerun.models.gaussian_process.regression import PRIOR_ROWS, Answer, combine, stacking_weights
from forerun.models.limit import LATENCY, Limit


@dataclass(frozen=True)
class LowRankFactors:
    """Factors of known devices' log times.

    Attributes:
        levels: mean log time of each of d devices, shape (d,).
        projection: maps the d centred log times of a workload to its factors, shape (d, rank).
        scales: standard deviation of each factor over the workloads, shape (rank,). All factors
            are divided by the first of these, so that their variances stay proportional to what
            they explain.
    """

    levels: Column
    projection: Matrix
    scales: Column

    @classmethod
    def of(cls, log_times: Matrix, rank: int) -> "LowRankFactors":
        """Factors by singular value decomposition.

        Args:
            log_times: shape (workloads, devices), without NaN; missing or noisy measurements have
                to be smoothed beforehand.
            rank: largest number of factors.
        """
        levels = log_times.mean(axis=0)
        _, singular, right = np.linalg.svd(log_times - levels, full_matrices=False)
        kept = min(rank, int((singular > 1e-9 * max(singular[0], 1e-300)).sum()))
        scales = singular[:kept] / np.sqrt(len(log_times))
        return cls(levels, right[:kept].T, scales)

    def factors(self, log_times: Matrix) -> Matrix:
        """Factors of n workloads, shape (n, rank), from log times on the known devices, (n, d)."""
        return np.asarray((log_times - self.levels) @ self.projection / self.scales[0])


def mixed(answers: Sequence[Answer], weights: Column) -> Answer:
    """Mean and variance of the mixture, which include the disagreement of the experts.

    Args:
        answers: predictions of e experts for n rows.
        weights: weights that add up to 1, shape (e,).
    """
    means = np.array([answer.mean for answer in answers])
    return Answer(*combine(weights, means, np.array([answer.variance for answer in answers])))


@dataclass(frozen=True)
class Stacking:
    """Weights of experts, and a calibration of the mixture's variance.

    Attributes:
        weights: weights of e experts, shape (e,).
        inflation: factor on the mixture's variance.
        freedom: degrees of freedom of the Student t distribution of intervals.
    """

    weights: Column
    inflation: float
    freedom: float

    @classmethod
    def of(
        cls,
        left_out: Sequence[Answer],
        measured: Column,
        prior_rows: float = PRIOR_ROWS,
        variance_rows: float = 8.0,
    ) -> "Stacking":
        """Weights and inflation from leave-one-out predictions of each expert.

        Args:
            left_out: leave-one-out predictions of e experts for n rows.
            measured: n measured values.
            prior_rows: as in `stacking_weights`.
            variance_rows: pseudo-observations with an inflation of 1.
        """
        weights = stacking_weights(
            np.array([answer.log_density(measured) for answer in left_out]), prior_rows
        )
        joint = mixed(left_out, weights)
        square = (measured - joint.mean) ** 2 / joint.variance
        # Clipped, so that one outlier among twenty rows does not widen every interval.
        square = np.minimum(square, 9.0)
        inflation = (variance_rows + float(square.sum())) / (variance_rows + len(measured))
        return cls(weights, inflation, variance_rows + len(measured))

    def combine(self, answers: Sequence[Answer]) -> Answer:
        """The mixture's mean and inflated variance."""
        joint = mixed(answers, self.weights)
        return Answer(joint.mean, joint.variance * self.inflation)

    def half_width(self, answer: Answer, coverage: float = 0.9) -> Column:
        """Half-width of the interval around a combined prediction, shape (n,)."""
        from scipy.special import stdtrit

        return np.asarray(stdtrit(self.freedom, 0.5 + coverage / 2) * np.sqrt(answer.variance))


FEWEST_ROWS = 5
"""Fewest measured latencies from which a sheet is estimated."""

_MARKED = "figures marked so are "


@dataclass(frozen=True)
class BlackBoxes:
    """Estimated spec sheets of devices without one.

    Attributes:
        sheets: name of a device without a sheet -> estimated sheet.
    """

    sheets: Mapping[str, Device] = field(default_factory=dict)

    def learn(self, measurements: Measurements) -> tuple[Self, Measurements]:
        """Estimate sheets for the devices without one in these rows.

        Args:
            measurements: n rows; only those with a latency are used.

        Returns:
            These sheets in addition to the present ones; the rows with estimated sheets put in.
        """
        boxes: dict[str, list[int]] = {}
        latency = measurements.column("latency_ms")
        for row, query in enumerate(measurements.queries):
            runs = isinstance(query.workload, OperatorWorkload)
            if runs and not query.device.has_sheet and np.isfinite(latency[row]):
                boxes.setdefault(query.device.name, []).append(row)
        boxes = {name: rows for name, rows in boxes.items() if len(rows) >= FEWEST_ROWS}
        if not boxes:
            return self, measurements
        estimated = {
            name: estimated_sheet(measurements.queries[rows[0]].device, measurements.take(rows))
            for name, rows in boxes.items()
        }
        extended = replace(self, sheets={**self.sheets, **estimated})
        queries = [extended.with_sheet(query) for query in measurements.queries]
        return extended, replace(measurements, queries=queries)

    def with_sheet(self, query: Query) -> Query:
        """The query with the device's estimated sheet, if there is one and the device has none."""
        if not self.sheets or query.device.has_sheet:
            return query
        sheet = self.sheets.get(query.device.name)
        return query if sheet is None else replace(query, device=sheet)

    def with_sheets(self, queries: Sequence[Query]) -> list[Query]:
        """Each query as `with_sheet` has it."""
        return [self.with_sheet(query) for query in queries] if self.sheets else list(queries)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit for each caveat of the estimated sheet that a prediction is based on."""
        return tuple(
            Limit(
                f"{query.device.name} has no spec sheet of its own: {caveat.removeprefix(_MARKED)}",
                LATENCY,
            )
            for caveat in query.device.caveats
            if caveat.startswith(_MARKED) and query.device.name in self.sheets
        )
