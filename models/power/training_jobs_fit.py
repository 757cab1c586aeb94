"""Maximum a posteriori estimates of the parameters of training jobs under power limits.

Nonlinear least squares over residuals divided by their standard deviation, with a pseudo-Huber
loss, and over parameters divided by the standard deviation of their prior.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column, Matrix
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

POWER_SPREAD: Final = 0.03
TIME_SPREAD: Final = 0.05
"""Standard deviations of the residuals of the law, in log space."""
MOST_STEPS: Final = 60
"""Largest number of evaluations of the least squares solver."""


@dataclass(frozen=True)
class MeasuredJobs:
    """n training runs on one device.

    Attributes:
        rows: inputs of the runs.
        log_power: (n,) log of the measured power in watts; NaN where it was not measured.
        log_time: (n,) log of the measured seconds per epoch; NaN where it was not measured.
    """

    rows: JobRows
    log_power: Column
    log_time: Column

    def residuals(self, pooled: Column, offsets: Column) -> Column:
        """Standardised robust residuals of power and time, shape (2 n,); 0 where not measured."""
        power, time = answers(pooled, offsets, self.rows)
        scaled = ((power - self.log_power) / POWER_SPREAD, (time - self.log_time) / TIME_SPREAD)
        return _pseudo_huber(np.nan_to_num(np.concatenate(scaled)))


@dataclass(frozen=True)
class OffsetPrior:
    """Normal prior of a device's offsets; those of jobs that train one network are correlated.

    Attributes:
        mean: (offsets,) prior means.
        deviation: (offsets,) prior standard deviations.
        whitening: (jobs, jobs) matrix that makes the offsets of the jobs independent.
    """

    mean: Column
    deviation: Column
    whitening: Matrix

    @classmethod
    def of(cls, jobs: Sequence[str]) -> "OffsetPrior":
        """The prior for a device without measurements.

        Args:
            jobs: names of the jobs, `DATASET/NETWORK`.
        """
        networks = np.array([job.partition("/")[2] for job in jobs])
        correlation = np.where(networks[:, None] == networks[None, :], SAME_NETWORK, 0.0)
        np.fill_diagonal(correlation, 1.0)
        whitening = np.linalg.inv(np.linalg.cholesky(correlation))
        deviation = np.array([*DEVICE_SPREAD, *(DEVICE_JOB_SPREAD * len(jobs))])
        return cls(np.zeros(len(deviation)), deviation, np.asarray(whitening, dtype=np.float64))

    def around(self, offsets: Column, share: float) -> "OffsetPrior":
        """A prior around a device's own offsets, its standard deviations multiplied by `share`."""
        return OffsetPrior(offsets, share * self.deviation, self.whitening)

    def residuals(self, offsets: Column) -> Column:
        """Whitened offsets: independent with standard deviation 1, shape (offsets,)."""
        scaled = (offsets - self.mean) / self.deviation
        head = len(DEVICE)
        jobs = self.whitening @ scaled[head:].reshape(len(self.whitening), -1)
        return np.concatenate([scaled[:head], jobs.ravel()])


def fit_pooled(
    devices: Mapping[Sheet, MeasuredJobs], jobs: Sequence[str]
) -> tuple[Column, dict[Sheet, Column]]:
    """Parameters of the law and of each job, and device -> offsets.

    Args:
        devices: spec sheet of a device -> its runs, all of known jobs.
        jobs: names of the jobs.
    """
    from scipy.optimize import least_squares

    keys, prior = list(devices), OffsetPrior.of(jobs)
    head, each = pooled_size(len(jobs)), device_size(len(jobs))
    mean, deviation = _pooled_prior([devices[key] for key in keys], len(jobs))

    def residuals(point: Column) -> Column:
        pooled, offsets = point[:head], point[head:].reshape(len(keys), each)
        parts = [(pooled - mean) / deviation]
        for key, own in zip(keys, offsets, strict=True):
            parts += [prior.residuals(own), devices[key].residuals(pooled, own)]
        return np.concatenate(parts)

    start = np.concatenate([mean, np.zeros(each * len(keys))])
    solution = least_squares(residuals, start, x_scale="jac", max_nfev=MOST_STEPS).x
    own = solution[head:].reshape(len(keys), each)
    return solution[:head], dict(zip(keys, own, strict=True))


def fit_offsets(pooled: Column, support: MeasuredJobs, prior: OffsetPrior) -> Column:
    """Offsets of one device from a few runs, shape (offsets,).

    Args:
        pooled: parameters of the law and of each job, which are kept.
        support: support rows, runs of known jobs on the device.
        prior: prior of the offsets.
    """
    from scipy.optimize import least_squares

    def residuals(offsets: Column) -> Column:
        return np.concatenate([prior.residuals(offsets), support.residuals(pooled, offsets)])

    return np.asarray(least_squares(residuals, prior.mean, max_nfev=MOST_STEPS).x)


def _pooled_prior(devices: Sequence[MeasuredJobs], jobs: int) -> tuple[Column, Column]:
    """Prior means and standard deviations; the means of a job's times come from its rows."""
    law, job = np.array(LAW_PRIOR), np.tile(np.array(JOB_PRIOR), (jobs, 1, 1))
    for number in range(jobs):
        times = np.concatenate([d.log_time[d.rows.job == number] for d in devices])
        speeds = np.concatenate([d.rows.log_speed[d.rows.job == number] for d in devices])
        if np.isfinite(times).any():
            job[number, 0, 0] = np.nanmedian(times) - 1.0
            job[number, 1, 0] = np.nanmin(times) + speeds.mean()
    both = np.concatenate([law, job.reshape(jobs * len(JOB), 2)])
    return both[:, 0], both[:, 1]


def _pseudo_huber(residuals: Column) -> Column:
    """Residuals whose squares are the pseudo-Huber loss of width 2."""
    root = np.sqrt(1.0 + np.square(residuals / 2.0))
    robust: Column = np.sign(residuals) * np.sqrt(8.0 * (root - 1.0))
    return robust
