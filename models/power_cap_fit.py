"""Most probable parameters of the law of jobs under power limits, by damped least squares.

Residuals over their spread, made robust, beside offsets over the spread of their prior.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.models.power_cap_law import (
    DEVICE_JOB_SPREAD,
    DEVICE_SPREAD,
    JOB,
    JOB_PRIOR,
    LAW_PRIOR,
    JobRows,
    answers,
    device_size,
    pooled_size,
)

Column = NDArray[np.float64]
POWER_SPREAD: Final = 0.05
TIME_SPREAD: Final = 0.08
"""Of what the law leaves, in logarithms."""
MOST_STEPS: Final = 40


@dataclass(frozen=True)
class Taught:
    """Runs on one device with what was measured: logarithms of watts and seconds, or NaN."""

    rows: JobRows
    log_power: Column
    log_time: Column

    def residuals(self, pooled: Column, offsets: Column) -> Column:
        """What is left of 2 n logarithms, over its spread; outliers count less."""
        power, time = answers(pooled, offsets, self.rows)
        left = ((power - self.log_power) / POWER_SPREAD, (time - self.log_time) / TIME_SPREAD)
        return _tempered(np.nan_to_num(np.concatenate(left)))


def fit_pooled(devices: Mapping[str, Taught], jobs: int) -> tuple[Column, dict[str, Column]]:
    """Parameters of the law and its jobs, and each device's offsets.

    Args:
        devices: key -> its runs, all of known jobs.
        jobs: how many there are.
    """
    from scipy.optimize import least_squares

    keys = list(devices)
    head, each = pooled_size(jobs), device_size(jobs)
    middle, spread = _pooled_prior([devices[key] for key in keys], jobs)
    offset_spread = offsets_spread(jobs)

    def residuals(point: Column) -> Column:
        pooled = point[:head]
        parts = [(pooled - middle) / spread]
        for place, key in enumerate(keys):
            own = point[head + place * each : head + (place + 1) * each]
            parts += [own / offset_spread, devices[key].residuals(pooled, own)]
        return np.concatenate(parts)

    start = np.concatenate([middle, np.zeros(each * len(keys))])
    found = least_squares(residuals, start, x_scale="jac", max_nfev=MOST_STEPS).x
    own = found[head:].reshape(len(keys), each)
    return found[:head], dict(zip(keys, own, strict=True))


def fit_offsets(pooled: Column, taught: Taught, middle: Column, spread: Column) -> Column:
    """A device's offsets from a few runs.

    Args:
        pooled: parameters of the law and its jobs; they stay.
        taught: runs of known jobs.
        middle, spread: of the offsets' normal prior.
    """
    from scipy.optimize import least_squares

    def residuals(offsets: Column) -> Column:
        return np.concatenate([(offsets - middle) / spread, taught.residuals(pooled, offsets)])

    return np.asarray(least_squares(residuals, middle, max_nfev=MOST_STEPS).x)


def offsets_spread(jobs: int) -> Column:
    """Spread of a device's offsets, in their order."""
    return np.array([*DEVICE_SPREAD, *(DEVICE_JOB_SPREAD * jobs)])


def _pooled_prior(devices: Sequence[Taught], jobs: int) -> tuple[Column, Column]:
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
