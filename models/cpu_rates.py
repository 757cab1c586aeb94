"""Rates of a processor, inferred jointly from operators and networks measured on it.

A run takes the sum over its work of amount times seconds per unit, and the logarithms of these
seconds are normally distributed over processors, around those of the processors trained on. What
was measured updates them (maximum a posteriori, by Gauss-Newton steps); what rates do not explain
is a Gaussian process over networks: those whose time is spent alike err alike, and a network at
another batch size or number of threads errs most alike (Rasmussen and Williams 2006, section 2.7).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.features.cpu_work import COLUMNS, PRODUCTS

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

COUNT = len(COLUMNS)
_STEPS, _LONGEST_STEP, _SMALL_STEP = 20, 1.0, 1e-3
_REWEIGHTINGS, _FAR = 2, 2.5
"""Rows left out that are missed by more deviations than that get a wider noise."""
_FAMILY = np.array(
    [2 if kind == "fixed" else 0 if kind in PRODUCTS else 1 for kind, _ in COLUMNS], dtype=np.intp
)
"""Arithmetic, memory, and what does not depend on sizes."""
_KIND = np.unique([kind for kind, _ in COLUMNS], return_inverse=True)[1]


@dataclass(frozen=True, slots=True)
class Deviations:
    """Standard deviations of log seconds per unit over processors, and of what they leave.

    Chosen on the collection's own networks, left out one by one; networks that are judged took no
    part. Deviations over processors are wider than any one machine can tell: of cores made since
    2014, peak arithmetic differs by a factor of 4, bandwidth by 3 (the catalogue's sheets).

    Attributes:
        device: of all rates of a processor together.
        family: of those of arithmetic, of memory, of fixed times.
        kind: of one kind of operator.
        column: of a single rate.
        slope: of the effect of twice the threads, likewise shared in halves.
        mixture: of the error of networks that spend their time alike.
        structure: of the error of one network.
        reach: distance of time shares (Hellinger) over which errors are alike.
        operator: of the error of an operator measured alone.
    """

    device: float = 0.5
    family: float = 0.25
    kind: float = 0.2
    column: float = 0.25
    slope: float = 0.15
    mixture: float = 0.08
    structure: float = 0.08
    reach: float = 0.3
    operator: float = 0.2

    def covariance(self, known: float = 1.0) -> Matrix:
        """Of log seconds per unit, then of slopes: (2 columns, 2 columns).

        Args:
            known: factor on `device` where a sheet tells how fast the processor is.
        """
        one = np.full((COUNT, COUNT), (known * self.device) ** 2)
        one += self.family**2 * (_FAMILY[:, None] == _FAMILY)
        one += self.kind**2 * (_KIND[:, None] == _KIND) + self.column**2 * np.eye(COUNT)
        slopes = self.slope**2 / 2 * (1.0 * (_FAMILY[:, None] == _FAMILY) + np.eye(COUNT))
        nothing = np.zeros((COUNT, COUNT))
        return np.block([[one, nothing], [nothing, slopes]])


@dataclass(frozen=True)
class RateRows:
    """n runs on one processor.

    Attributes:
        amounts: (n, columns) of work.
        doublings: (n,) log2 of the threads.
        log_size: (n,) log2 of the batch size.
        structures: n names; equal for a network at any batch size.
        whole: (n,) whether it is a network.
        log_ms: (n,) measured, NaN where it is asked.
        noise: (n,) relative standard deviation of the measurement.
    """

    amounts: Matrix
    doublings: Column
    log_size: Column
    structures: NDArray[np.str_]
    whole: NDArray[np.bool_]
    log_ms: Column
    noise: Column

    def __len__(self) -> int:
        return len(self.log_ms)

    def take(self, rows: NDArray[Any]) -> "RateRows":
        """The rows at these positions, or where the mask is True."""
        return RateRows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def __add__(self, other: "RateRows") -> "RateRows":
        names = self.__dataclass_fields__
        return RateRows(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))

    def unique(self) -> "RateRows":
        """Without rows that repeat another in all they say."""
        keys = [
            (s, b, d, y)
            for s, b, d, y in zip(
                self.structures, self.log_size, self.doublings, self.log_ms, strict=True
            )
        ]
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        return self.take(np.array(sorted(first.values()), dtype=np.intp))

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The rows that `to_json` wrote."""
        found = {name: np.array(content[name]) for name in cls.__dataclass_fields__}
        found["structures"] = found["structures"].astype(np.str_)
        return cls(**{**found, "amounts": found["amounts"].reshape(-1, COUNT)})


@dataclass(frozen=True)
class RatePrior:
    """What is known of a processor's rates before anything is measured on it.

    Attributes:
        mean: (2 columns,) log milliseconds per unit at one thread, and their change with every
            doubling of threads.
        uncertainty: (2 columns,) standard deviations of `mean` itself.
        deviations: over processors.
    """

    mean: Column
    uncertainty: Column
    deviations: Deviations = Deviations()

    def covariance(self, known: float) -> Matrix:
        """Of a processor's rates; see `Deviations.covariance`."""
        return self.deviations.covariance(known) + np.diag(self.uncertainty**2)


@dataclass(frozen=True)
class RatePosterior:
    """A processor's rates, given rows measured on it.

    Attributes:
        prior: before.
        rows: measured; none are needed.
        shift: (2 columns,) what its sheet adds to the prior's mean.
        known: factor on the deviation of the device that the sheet leaves.
    """

    prior: RatePrior
    rows: RateRows
    shift: Column
    known: float = 1.0

    @cached_property
    def centre(self) -> Column:
        """(2 columns,) most probable log milliseconds per unit, and slopes."""
        return self._robust[0]

    @cached_property
    def _robust(self) -> tuple[Column, Column]:
        """The centre, and the noise of each row: that of rows far off all others is widened.

        A run that was disturbed throughout looks steady; Huber's weights keep it from deciding.
        """
        centre, noise = self.prior.mean + self.shift, self.rows.noise
        if not len(self.rows):
            return centre, noise
        for _ in range(_REWEIGHTINGS):
            centre = self._climbed(centre, noise)
            inverse, missed = self._solved(centre, noise)
            left_out = (inverse @ missed) / np.sqrt(inverse.diagonal())
            noise = self.rows.noise * np.maximum(1.0, np.abs(left_out) / _FAR) ** 2
        return self._climbed(centre, noise), noise

    def _climbed(self, centre: Column, noise: Column) -> Column:
        """The centre after Gauss-Newton steps from another."""
        mean, covariance = self.prior.mean + self.shift, self.prior.covariance(self.known)
        for _ in range(_STEPS):
            log_ms, slopes = _linear(self.rows, centre)
            whole = slopes @ covariance @ slopes.T + self._unexplained(centre)
            whole += np.diag(noise**2)
            missed = self.rows.log_ms - log_ms + slopes @ (centre - mean)
            target = mean + covariance @ slopes.T @ np.linalg.solve(whole, missed)
            step = np.clip(target - centre, -_LONGEST_STEP, _LONGEST_STEP)
            centre = centre + step
            if np.abs(step).max() < _SMALL_STEP:
                break
        return centre

    def _solved(self, centre: Column, noise: Column) -> tuple[Matrix, Column]:
        """Inverse covariance of the rows, and what the prior's mean misses, linearised."""
        covariance = self.prior.covariance(self.known)
        log_ms, slopes = _linear(self.rows, centre)
        whole = slopes @ covariance @ slopes.T + self._unexplained(centre)
        whole += np.diag(noise**2)
        mean = self.prior.mean + self.shift
        missed: Column = self.rows.log_ms - log_ms + slopes @ (centre - mean)
        inverse: Matrix = np.asarray(np.linalg.inv(whole), dtype=np.float64)
        return inverse, missed

    @cached_property
    def _gram(self) -> tuple[Matrix, Column, Matrix]:
        """Inverse covariance of the rows, what they miss, and their slopes."""
        inverse, missed = self._solved(*self._robust)
        return inverse, missed, _linear(self.rows, self.centre)[1]

    def _unexplained(self, centre: Column) -> Matrix:
        return _likeness(self.prior.deviations, self.rows, self.rows, centre)

    def predict(self, asked: RateRows) -> tuple[Column, Column]:
        """Mean and standard deviation of log milliseconds of each row asked.

        Without the noise of a measurement.
        """
        centre, covariance = self.centre, self.prior.covariance(self.known)
        log_ms, slopes = _linear(asked, centre)
        own = _likeness(self.prior.deviations, asked, asked, centre).diagonal()
        variance = own + np.einsum("ij,jk,ik->i", slopes, covariance, slopes)
        mean = log_ms + slopes @ (self.prior.mean + self.shift - centre)
        if len(self.rows):
            inverse, missed, rows_slopes = self._gram
            across = slopes @ covariance @ rows_slopes.T
            across += _likeness(self.prior.deviations, asked, self.rows, centre)
            mean = mean + across @ inverse @ missed
            variance = variance - np.einsum("ij,jk,ik->i", across, inverse, across)
        return mean, np.sqrt(np.maximum(variance, 1e-8))

    def floor_ms(self, asked: RateRows) -> Column:
        """Fixed times alone: no run takes less."""
        fixed: Column = _times(asked, self.centre)[:, _FAMILY == 2].sum(axis=1)
        return fixed

    def shares(self, asked: RateRows) -> Matrix:
        """(n, columns) shares of the time that each kind of work takes."""
        times = _times(asked, self.centre)
        shares: Matrix = times / times.sum(axis=1, keepdims=True)
        return shares

    def most_telling(self, asked: RateRows, count: int) -> list[int]:
        """Positions of rows that take away most variance of all rows when measured, the best first.

        Greedily, by the model linearised at the rates known now.
        """
        covariance = self.prior.covariance(self.known)
        _, slopes = _linear(asked, self.centre)
        left = slopes @ covariance @ slopes.T
        left += _likeness(self.prior.deviations, asked, asked, self.centre)
        if len(self.rows):
            inverse, _, rows_slopes = self._gram
            across = slopes @ covariance @ rows_slopes.T
            across += _likeness(self.prior.deviations, asked, self.rows, self.centre)
            left -= across @ inverse @ across.T
        chosen: list[int] = []
        while len(chosen) < min(count, len(asked)):
            noisy = left.diagonal() + asked.noise**2
            gains = (left**2).sum(axis=0) / noisy
            gains[chosen] = -np.inf
            best = int(np.argmax(gains))
            chosen.append(best)
            left = left - np.outer(left[:, best], left[best]) / noisy[best]
        return chosen

    def held_out(self) -> tuple[Column, Column]:
        """Errors of whole networks, each left out at all batch sizes and threads, and deviations.

        In closed form at the rates of all rows (Rasmussen and Williams 2006, equation 5.12); both
        hold one value a network measured, with the noise of its measurement.
        """
        inverse, missed, _ = self._gram
        weighted = inverse @ missed
        errors, deviations = [], []
        for name in dict.fromkeys(self.rows.structures[self.rows.whole]):
            mine = np.flatnonzero((self.rows.structures == name) & self.rows.whole)
            covariance = np.linalg.inv(inverse[np.ix_(mine, mine)])
            errors += (covariance @ weighted[mine]).tolist()
            deviations += np.sqrt(covariance.diagonal()).tolist()
        return np.array(errors), np.array(deviations)


def fitted_prior(rows: Sequence[RateRows], start: Column, wide: Deviations) -> RatePrior:
    """Rates of the processors trained on: the mean of theirs, from a wide prior around `start`.

    Args:
        rows: of one processor each.
        start: (2 columns,) log milliseconds per unit, and slopes.
        wide: deviations around `start`.
    """
    unsure = np.zeros(2 * COUNT)
    start_prior = RatePrior(start, unsure, wide)
    found, spread = [], []
    for one in rows:
        posterior = RatePosterior(start_prior, one, unsure)
        found.append(posterior.centre)
        inverse, _, slopes = posterior._gram
        covariance = start_prior.covariance(1.0)
        gain = covariance @ slopes.T
        left = covariance.diagonal() - np.einsum("ij,jk,ik->i", gain, inverse, gain)
        spread.append(np.maximum(left, 0.0))
    variance = np.mean(spread, axis=0) / len(rows)
    # A rate that no row tells stays where it began, and is as unsure as any.
    return RatePrior(np.mean(found, axis=0), np.minimum(np.sqrt(variance), 0.3))


def _times(rows: RateRows, centre: Column) -> Matrix:
    seconds = centre[:COUNT] + rows.doublings[:, None] * centre[COUNT:]
    return rows.amounts * np.exp(seconds)


def _linear(rows: RateRows, centre: Column) -> tuple[Column, Matrix]:
    """Log milliseconds at these rates, and how they change with each: (n,), (n, 2 columns)."""
    times = _times(rows, centre)
    total = times.sum(axis=1)
    shares = times / total[:, None]
    return np.log(total), np.hstack([shares, rows.doublings[:, None] * shares])


def _likeness(how: Deviations, one: RateRows, other: RateRows, centre: Column) -> Matrix:
    """Covariance of what rates leave unexplained, between rows."""
    first, second = (np.sqrt(_kind_shares(rows, centre)) for rows in (one, other))
    apart = np.maximum(2 - 2 * first @ second.T, 0.0) / how.reach**2
    alike = how.mixture**2 * np.exp(-apart / 2)
    same = one.structures[:, None] == other.structures
    sizes = np.abs(one.log_size[:, None] - other.log_size)
    sizes = sizes + np.abs(one.doublings[:, None] - other.doublings)
    whole = one.whole[:, None] & other.whole
    own = np.where(whole, how.structure, how.operator) ** 2 * same * np.exp(-sizes / 3)
    return np.asarray(alike * (one.whole[:, None] == other.whole) + own)


def _kind_shares(rows: RateRows, centre: Column) -> Matrix:
    times = _times(rows, centre)
    kinds = np.zeros((len(times), _KIND.max() + 1))
    for column, kind in enumerate(_KIND):
        kinds[:, kind] += times[:, column]
    shares: Matrix = kinds / kinds.sum(axis=1, keepdims=True)
    return shares
