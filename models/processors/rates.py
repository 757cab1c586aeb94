"""Infers a CPU's rates jointly from operators and networks measured on it.

The time of a run is the sum over its work of amounts times seconds per unit. The logarithms of the
seconds per unit have a normal prior over CPUs, with the mean of the CPUs in the training set.
Measurements yield the maximum a posteriori estimate by Gauss-Newton steps. The residual not
explained by rates is a Gaussian process over networks (Rasmussen and Williams 2006, section 2.7):
its covariance is large for networks with similar time shares by kind of work, and largest for one
network at different batch sizes or thread counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, groups_of
from forerun.features.processors.work import COLUMNS, JOIN, PRODUCTS
from forerun.models.adaptation.support_set import most_informative
from forerun.models.gaussian_process.regression import Posterior, same, squared_exponential

COUNT = len(COLUMNS)
_STEPS, _LONGEST_STEP, _SMALL_STEP = 20, 1.0, 1e-3
_REWEIGHTINGS, _FAR = 2, 2.5
"""Rows with a leave-one-out residual beyond `_FAR` standard deviations get a larger noise."""
_FAMILY = np.array(
    [2 if kind == "fixed" else 0 if kind in PRODUCTS else 1 for kind, _ in COLUMNS], dtype=np.intp
)
"""Family of each column of work: 0 arithmetic, 1 memory, 2 fixed times."""
_KIND = np.unique([kind for kind, _ in COLUMNS], return_inverse=True)[1]
_BY_KIND = np.eye(_KIND.max() + 1)[_KIND]


@dataclass(frozen=True, slots=True)
class StandardDeviations:
    """Standard deviations of log seconds per unit over CPUs, and of the residual.

    They were chosen by leave-one-out errors on the networks of the collection, without networks of
    the evaluation.

    Attributes:
        device: effect of a CPU common to all rates. With sheets for 28 CPUs of ncnn's benchmark,
            the median log errors of a CPU have a standard deviation of 0.46.
        family: effect on the rates of arithmetic, of memory, or of fixed times.
        kind: effect on the rates of one kind of operator.
        column: effect on a single rate.
        slope: effect of doubling the threads, half of its variance common to a family.
        mixture: residual common to networks with similar time shares.
        structure: residual of one network.
        reach: length scale of `mixture`, in Hellinger distance of time shares.
        operator: residual of a separately measured operator.
    """

    device: float = 0.5
    family: float = 0.25
    kind: float = 0.2
    column: float = 0.25
    slope: float = 0.1
    mixture: float = 0.08
    structure: float = 0.08
    reach: float = 0.3
    operator: float = 0.2

    def covariance(self) -> Matrix:
        """Covariance of log seconds per unit, then of slopes, shape (2 * COUNT, 2 * COUNT)."""
        rates = np.full((COUNT, COUNT), self.device**2)
        rates += self.family**2 * same(_FAMILY, _FAMILY)
        rates += self.kind**2 * same(_KIND, _KIND) + self.column**2 * np.eye(COUNT)
        slopes = self.slope**2 / 2 * (1.0 * same(_FAMILY, _FAMILY) + np.eye(COUNT))
        zeros = np.zeros((COUNT, COUNT))
        return np.block([[rates, zeros], [zeros, slopes]])


@dataclass(frozen=True)
class RateRows(Columns):
    """n runs on one CPU.

    Attributes:
        amounts: (n, COUNT) amounts of work.
        doublings: (n,) log2 of the number of threads.
        log_size: (n,) log2 of the batch size.
        structures: (n,) names of graphs, equal for one network at any batch size.
        whole: (n,) whether the run is a network rather than a single operator.
        log_ms: (n,) logarithm of the measured milliseconds; NaN for queries.
        noise: (n,) relative standard deviation of the measurement.
    """

    amounts: Matrix
    doublings: Column
    log_size: Column
    structures: Names
    whole: Mask
    log_ms: Column
    noise: Column

    def __len__(self) -> int:
        return len(self.log_ms)

    def unique(self) -> "RateRows":
        """The rows without duplicates in graph, batch size, threads and latency."""
        keys = zip(self.structures, self.log_size, self.doublings, self.log_ms, strict=True)
        first = [rows[0] for rows in groups_of(keys).values()]
        return self.take(np.array(first, dtype=np.intp))


@dataclass(frozen=True)
class RatePrior:
    """Prior distribution of the rates of a CPU.

    Attributes:
        mean: (2 * COUNT,) log milliseconds per unit at one thread, and their change with each
            doubling of threads.
        uncertainty: (2 * COUNT,) standard errors of `mean`.
        deviations: standard deviations over CPUs, and of the residual.
    """

    mean: Column
    uncertainty: Column
    deviations: StandardDeviations = StandardDeviations()

    def covariance(self) -> Matrix:
        """Covariance of the rates of a CPU."""
        return self.deviations.covariance() + np.diag(self.uncertainty**2)


@dataclass(frozen=True)
class RatePosterior:
    """Posterior of the rates of a CPU, given rows measured on it.

    Attributes:
        prior: prior over CPUs.
        rows: measured rows; may be empty.
        shift: (2 * COUNT,) shift of the prior's mean from the spec sheet.
    """

    prior: RatePrior
    rows: RateRows
    shift: Column

    @cached_property
    def centre(self) -> Column:
        """Maximum a posteriori log milliseconds per unit, and slopes, shape (2 * COUNT,)."""
        return self._robust[0]

    @cached_property
    def _robust(self) -> tuple[Column, Column]:
        """The centre, and the noise of each row, increased for outliers.

        A run that is disturbed throughout has a small measured noise; Huber weights of the
        leave-one-out residuals limit its influence.
        """
        centre, noise = self.prior.mean + self.shift, self.rows.noise
        if not len(self.rows):
            return centre, noise
        for _ in range(_REWEIGHTINGS):
            centre = self._maximum_a_posteriori(centre, noise)
            whole, residual, _ = self._linear_model(centre)
            posterior = Posterior.of(whole, noise**2, residual)
            left_out = posterior.left_out_error / np.sqrt(posterior.left_out_variance)
            noise = self.rows.noise * np.maximum(1.0, np.abs(left_out) / _FAR) ** 2
        return self._maximum_a_posteriori(centre, noise), noise

    def _maximum_a_posteriori(self, centre: Column, noise: Column) -> Column:
        """The maximum a posteriori estimate, by Gauss-Newton steps from `centre`."""
        mean = self.prior.mean + self.shift
        for _ in range(_STEPS):
            whole, residual, slopes = self._linear_model(centre)
            weights = np.linalg.solve(whole + np.diag(noise**2), residual)
            target = mean + self._rates @ slopes.T @ weights
            step = np.clip(target - centre, -_LONGEST_STEP, _LONGEST_STEP)
            centre = centre + step
            if np.abs(step).max() < _SMALL_STEP:
                break
        return centre

    def _linear_model(self, centre: Column) -> tuple[Matrix, Column, Matrix]:
        """Covariance of the rows without noise, their residuals from the prior mean, and slopes."""
        log_ms, slopes = _linearised(self.rows, centre)
        residual = self.rows.log_ms - log_ms + slopes @ (centre - self.prior.mean - self.shift)
        return self._covariance(self.rows, self.rows, centre), residual, slopes

    @cached_property
    def posterior(self) -> Posterior:
        """Posterior of the residuals, at the estimated rates and with the noise of outliers."""
        whole, residual, _ = self._linear_model(self.centre)
        return Posterior.of(whole, self._robust[1] ** 2, residual)

    @cached_property
    def _rates(self) -> Matrix:
        return self.prior.covariance()

    def _covariance(self, one: RateRows, other: RateRows, centre: Column) -> Matrix:
        """Covariance of n and m rows in the model linearised at `centre`, shape (n, m)."""
        (_, first), (_, second) = _linearised(one, centre), _linearised(other, centre)
        mixtures = [np.sqrt(slopes[:, :COUNT] @ _BY_KIND) for slopes in (first, second)]
        residual = _residual_covariance(self.prior.deviations, one, other, *mixtures)
        return np.asarray(first @ self._rates @ second.T + residual)

    def predict(self, queried: RateRows) -> tuple[Column, Column]:
        """Posterior mean and standard deviation of log milliseconds of n queries, each (n,).

        The deviation excludes the noise of a measurement.
        """
        log_ms, slopes = _linearised(queried, self.centre)
        mean = log_ms + slopes @ (self.prior.mean + self.shift - self.centre)
        variance = self._covariance(queried, queried, self.centre).diagonal()
        if len(self.rows):
            cross = self._covariance(queried, self.rows, self.centre)
            mean = mean + self.posterior.mean(cross)
            variance = self.posterior.variance(cross, variance)
        return mean, np.sqrt(np.maximum(variance, 1e-8))

    def floor_ms(self, queried: RateRows) -> Column:
        """Fixed times of n queries in milliseconds, a lower bound of any run, shape (n,)."""
        fixed: Column = _times(queried, self.centre)[:, _FAMILY == 2].sum(axis=1)
        return fixed

    def shares(self, queried: RateRows) -> Matrix:
        """Shares of each column of work in the time of n queries, shape (n, COUNT)."""
        times = _times(queried, self.centre)
        shares: Matrix = times / times.sum(axis=1, keepdims=True)
        return shares

    def unit_ms(self, doublings: float) -> Column:
        """Milliseconds of one unit of each column of work at 2**doublings threads, (COUNT,)."""
        unit_ms: Column = np.exp(self.centre[:COUNT] + doublings * self.centre[COUNT:])
        unit_ms[JOIN] *= doublings > 0.0
        return unit_ms

    def most_informative(self, queried: RateRows, count: int) -> list[int]:
        """Positions of the rows whose measurement lowers the summed variance most, best first.

        They are chosen greedily in the model linearised at the current rates.
        """
        remaining = self._covariance(queried, queried, self.centre)
        if len(self.rows):
            cross = self._covariance(queried, self.rows, self.centre)
            remaining -= cross @ self.posterior.inverse @ cross.T
        return most_informative(remaining, queried.noise**2, count)

    def held_out(self) -> tuple[Column, Column]:
        """Leave-one-network-out errors and their standard deviations, for each row of a network.

        All rows of a network (batch sizes and threads) are held out together, in closed form at the
        rates of all rows (Rasmussen and Williams 2006, equation 5.12). The deviations include the
        measurement noise.
        """
        errors, deviations = [], []
        for name in dict.fromkeys(self.rows.structures[self.rows.whole]):
            held = (self.rows.structures == name) & self.rows.whole
            mean, covariance = self.posterior.without_group(held)
            errors += (self.posterior.values[held] - mean).tolist()
            deviations += np.sqrt(covariance.diagonal()).tolist()
        return np.array(errors), np.array(deviations)


def fitted_prior(
    rows: Sequence[RateRows],
    start: Column,
    wide: StandardDeviations,
    scaling: Sequence[RateRows] = (),
) -> RatePrior:
    """The prior whose mean is the average of the training CPUs' rates.

    The rates of each CPU are estimated with a wide prior around `start`.

    Args:
        rows: rows of each training CPU.
        start: (2 * COUNT,) log milliseconds per unit, and slopes.
        wide: standard deviations of the wide prior.
        scaling: rows of further CPUs under another runtime, whose median slopes replace those of
            the training CPUs; their rates are not used.
    """
    zeros = np.zeros(2 * COUNT)
    start_prior = RatePrior(start, zeros, wide)
    centres, variances = [], []
    for device_rows in rows:
        posterior = RatePosterior(start_prior, device_rows, zeros)
        centres.append(posterior.centre)
        covariance = start_prior.covariance()
        gain = covariance @ _linearised(device_rows, posterior.centre)[1].T
        variances.append(posterior.posterior.variance(gain, covariance.diagonal()))
    mean = np.mean(centres, axis=0)
    # A rate without information in the rows stays at `start`; its uncertainty is capped at 0.3.
    uncertainty = np.minimum(np.sqrt(np.mean(variances, axis=0) / len(rows)), 0.3)
    if scaling:
        around = RatePrior(np.concatenate([mean[:COUNT], start[COUNT:]]), zeros, wide)
        others = [RatePosterior(around, each, zeros).centre[COUNT:] for each in scaling]
        mean[COUNT:] = np.median(others, axis=0)
        uncertainty[COUNT:] = np.std(others, axis=0) / len(others) ** 0.5
    return RatePrior(mean, uncertainty)


def _times(rows: RateRows, centre: Column) -> Matrix:
    """Milliseconds of each column of work, shape (n, COUNT)."""
    seconds = centre[:COUNT] + rows.doublings[:, None] * centre[COUNT:]
    times: Matrix = rows.amounts * np.exp(seconds)
    times[rows.doublings == 0.0, JOIN] = 0.0
    return times


def _linearised(rows: RateRows, centre: Column) -> tuple[Column, Matrix]:
    """Log milliseconds at these rates, (n,), and their derivatives, (n, 2 * COUNT)."""
    times = _times(rows, centre)
    total = times.sum(axis=1)
    shares = times / total[:, None]
    return np.log(total), np.hstack([shares, rows.doublings[:, None] * shares])


def _residual_covariance(
    deviations: StandardDeviations, one: RateRows, other: RateRows, first: Matrix, second: Matrix
) -> Matrix:
    """Covariance between n and m rows of the residual not explained by rates, shape (n, m).

    `first` and `second` are the square roots of the rows' time shares by kind of work, of shape
    (n, kinds) and (m, kinds).
    """
    mixture = deviations.mixture**2 * squared_exponential(first, second, deviations.reach)
    sizes = np.abs(one.log_size[:, None] - other.log_size)
    sizes = sizes + np.abs(one.doublings[:, None] - other.doublings)
    variance = np.where(one.whole[:, None] & other.whole, deviations.structure, deviations.operator)
    structure = variance**2 * same(one.structures, other.structures) * np.exp(-sizes / 3)
    return np.asarray(mixture * same(one.whole, other.whole) + structure)
