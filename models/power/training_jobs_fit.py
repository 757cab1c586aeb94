"""Most probable parameters of the law of jobs under power limits, by damped least squares.

Residuals over their spread, made robust, beside offsets over the spread of their prior.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.models.domain.feature_range import Sheet
from forerun.models.power.training_jobs_law import (
    DEVICE,
    DEVICE_JOB_SPREAD,
    DEVICE_SPREAD,
    JOB,
    JOB_PRIOR,
    LAW_PRIOR,
    SAME_NETWORK,
    JobRows,
    answers,
    device_size,
    pooled_size,
)

Column = NDArray[np.float64]
POWER_SPREAD: Final = 0.03
TIME_SPREAD: Final = 0.05
"""Of what the law leaves, in logarithms."""
MOST_STEPS: Final = 60


@dataclass(frozen=True)
class MeasuredJobs:
    """Runs on one device with what was measured: logarithms of watts and seconds, or NaN."""

    rows: JobRows
    log_power: Column
    log_time: Column

    def residuals(self, pooled: Column, offsets: Column) -> Column:
        """What is left of 2 n logarithms, over its spread; outliers count less."""
        power, time = answers(pooled, offsets, self.rows)
        left = ((power - self.log_power) / POWER_SPREAD, (time - self.log_time) / TIME_SPREAD)
        return _tempered(np.nan_to_num(np.concatenate(left)))


@dataclass(frozen=True)
class OffsetPrior:
    """Normal prior of a device's offsets; those for jobs of one network go together.

    Attributes:
        middle: most probable offsets.
        spread: of each.
        whitening: (jobs, jobs) matrix that makes the jobs' offsets independent.
    """

    middle: Column
    spread: Column
    whitening: NDArray[np.float64]

    @classmethod
    def of(cls, jobs: Sequence[str]) -> "OffsetPrior":
        """Of a device of which nothing is known, for these jobs (`DATASET/NETWORK`)."""
        networks = np.array([job.partition("/")[2] for job in jobs])
        together = np.where(networks[:, None] == networks[None, :], SAME_NETWORK, 0.0)
        np.fill_diagonal(together, 1.0)
        whitening = np.linalg.inv(np.linalg.cholesky(together))
        spread = np.array([*DEVICE_SPREAD, *(DEVICE_JOB_SPREAD * len(jobs))])
        return cls(np.zeros(len(spread)), spread, np.asarray(whitening, dtype=np.float64))

    def around(self, offsets: Column, share: float) -> "OffsetPrior":
        """Narrower by `share`, around a device's own offsets."""
        return OffsetPrior(offsets, share * self.spread, self.whitening)

    def residuals(self, offsets: Column) -> Column:
        """How far offsets are from the middle: independent, of spread 1, shape (offsets,)."""
        far = (offsets - self.middle) / self.spread
        head = len(DEVICE)
        jobs = self.whitening @ far[head:].reshape(len(self.whitening), -1)
        return np.concatenate([far[:head], jobs.ravel()])


def fit_pooled(
    devices: Mapping[Sheet, MeasuredJobs], jobs: Sequence[str]
) -> tuple[Column, dict[Sheet, Column]]:
    """Parameters of the law and its jobs, and each device's offsets.

    Args:
        devices: device -> its runs, all of known jobs.
        jobs: their names.
    """
    from scipy.optimize import least_squares

    keys, prior = list(devices), OffsetPrior.of(jobs)
    head, each = pooled_size(len(jobs)), device_size(len(jobs))
    middle, spread = _pooled_prior([devices[key] for key in keys], len(jobs))

    def residuals(point: Column) -> Column:
        pooled, offsets = point[:head], point[head:].reshape(len(keys), each)
        parts = [(pooled - middle) / spread]
        for key, own in zip(keys, offsets, strict=True):
            parts += [prior.residuals(own), devices[key].residuals(pooled, own)]
        return np.concatenate(parts)

    start = np.concatenate([middle, np.zeros(each * len(keys))])
    found = least_squares(residuals, start, x_scale="jac", max_nfev=MOST_STEPS).x
    own = found[head:].reshape(len(keys), each)
    return found[:head], dict(zip(keys, own, strict=True))


def fit_offsets(pooled: Column, taught: MeasuredJobs, prior: OffsetPrior) -> Column:
    """A device's offsets from a few runs.

    Args:
        pooled: parameters of the law and its jobs; they stay.
        taught: runs of known jobs.
        prior: of the offsets.
    """
    from scipy.optimize import least_squares

    def residuals(offsets: Column) -> Column:
        return np.concatenate([prior.residuals(offsets), taught.residuals(pooled, offsets)])

    return np.asarray(least_squares(residuals, prior.middle, max_nfev=MOST_STEPS).x)


def _pooled_prior(devices: Sequence[MeasuredJobs], jobs: int) -> tuple[Column, Column]:
    """Middle and spread; times of a job start from what was measured of it."""
    law, job = np.array(LAW_PRIOR), np.tile(np.array(JOB_PRIOR), (jobs, 1, 1))
    for number in range(jobs):
        times = np.concatenate([d.log_time[d.rows.job == number] for d in devices])
        speeds = np.concatenate([d.rows.log_speed[d.rows.job == number] for d in devices])
        if np.isfinite(times).any():
            job[number, 0, 0] = np.nanmedian(times) - 1.0
            job[number, 1, 0] = np.nanmin(times) + speeds.mean()
    both = np.concatenate([law, job.reshape(jobs * len(JOB), 2)])
    return both[:, 0], both[:, 1]


def _tempered(residuals: Column) -> Column:
    """Residuals whose squares grow as a pseudo-Huber loss of width 2."""
    root = np.sqrt(1.0 + np.square(residuals / 2.0))
    tempered: Column = np.sign(residuals) * np.sqrt(8.0 * (root - 1.0))
    return tempered
