"""A pool of known devices: their latencies for every architecture of a space, from measured ones.

The log times of each device are smoothed by a Gaussian process over structure and single choices,
fitted to a few hundred measured architectures and evaluated on any other of the space. A new device
is compared with the smoothed times of all devices.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Final

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.workload import Space
from forerun.features.nas_cells import Codes, features_of, present_choices, random_codes
from forerun.models.adaptation.black_box import LowRankFactors
from forerun.models.gaussian_process.regression import (
    Covariance,
    GaussianProcessRegression,
    covariances_over,
    scale_of,
    standardised,
)

MOST_ROWS: Final = 900
"""Upper limit of the architectures that a device's process is fitted to."""
RANK: Final = 6
"""Number of factors of the pool's log times."""
_ROWS_FOR_WEIGHTS = 250
"""Rows that hyperparameters are fitted to."""
_FLOOR = 0.1
"""A cell that is simplified away takes almost no time; times below this fraction of the device's
median are raised to it."""
_DIGITS = 8
_AT_ONCE = 1024
"""Architectures in a batch."""


@cache
def usual_codes(space: Space) -> Codes:
    """A random sample of 2000 architectures that represents a space, shape (2000, positions)."""
    return random_codes(space, 2000)


def structure(space: Space, codes: Codes) -> Matrix:
    """Structural features, standardised over the space, shape (n, features)."""
    mean, deviation = _scale_of_structure(space)
    return np.asarray((features_of(space, codes) - mean) / deviation)


def choices(space: Space, codes: Codes) -> Matrix:
    """One-hot encoded choices, standardised over the space, shape (n, columns)."""
    mean, deviation = _scale_of_choices(space)
    return np.asarray((_one_hot(space, codes) - mean) / deviation)


@cache
def _scale_of_structure(space: Space) -> tuple[Column, Column]:
    return scale_of(features_of(space, usual_codes(space)))


@cache
def _scale_of_choices(space: Space) -> tuple[Column, Column]:
    return scale_of(_one_hot(space, usual_codes(space)))


@cache
def _usual_choices(space: Space) -> tuple[Codes, ...]:
    """The distinct choices at each position in `usual_codes`."""
    return tuple(map(np.unique, present_choices(space, usual_codes(space)).T))


def _one_hot(space: Space, codes: Codes) -> Matrix:
    """One column for each choice at each position that occurs usually, shape (n, columns)."""
    positions = zip(present_choices(space, codes).T, _usual_choices(space), strict=True)
    columns = [given[:, None] == usual for given, usual in positions]
    return np.concatenate(columns, axis=1).astype(np.float64)


def log_times(latency_ms: Column) -> Column:
    """Logarithms of times on one device, with a floor of 10 % of their median, shape (n,)."""
    return np.asarray(np.log(np.maximum(latency_ms, _FLOOR * np.median(latency_ms))))


def rounding_noise(latency_ms: Column) -> Column:
    """Variance of log times from rounding, if all times are whole milliseconds, else 0, shape (n,).

    Rounding to whole milliseconds has an error of variance 1/12 ms^2 (a uniform distribution).
    """
    rounded = bool((latency_ms == np.round(latency_ms)).all())
    times = np.maximum(latency_ms, 0.5)
    return np.asarray(1.0 / (12.0 * times**2) if rounded else np.zeros(len(times)))


@dataclass(frozen=True, eq=False)
class DevicePool:
    """Smoothed log times of d known devices over one space.

    Attributes:
        space: search space.
        devices: names of the devices, sorted.
        codes: architectures measured on any device, shape (n, positions).
        centres: mean log time of each device's rows, shape (d,).
        weights: weights of each device's covariances, shape (d, covariances).
        solved: inverse of each device's covariance matrix times its centred log times, shape
            (n, d); 0 where an architecture was not measured on a device.
        deviations: root mean square leave-one-out error of each device's log times, shape (d,).
    """

    space: Space
    devices: tuple[str, ...]
    codes: Codes
    centres: Column
    weights: Matrix
    solved: Matrix
    deviations: Column

    @classmethod
    def of(cls, space: Space, rows: Mapping[str, tuple[Codes, Column]]) -> "DevicePool":
        """Fit a process to the times of each device.

        Args:
            space: search space of all rows.
            rows: device -> (choices, milliseconds) of its measured architectures.
        """
        devices = tuple(sorted(rows))
        thinned = (_thinned(*rows[name]) for name in devices)
        fits = tuple(_smoothed(space, c.shape, c.tobytes(), t.tobytes()) for c, t in thinned)
        return _pool(space, devices, fits)

    def log_times(self, codes: Codes) -> Matrix:
        """Smoothed log times of n architectures, shape (n, d)."""
        total = np.tile(self.centres, (len(codes), 1))
        for first in range(0, len(codes), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            rows = _inputs(self.space, codes[part])
            for term in self._terms:
                total[part] += term(rows)
        return total

    @cached_property
    def _terms(self) -> tuple[Callable[[Matrix], Matrix], ...]:
        """What each covariance adds to the log times of architectures, from their inputs."""
        known = _inputs(self.space, self.codes)
        terms = zip(_covariances(self.space), self.weights.T, strict=True)
        return tuple(term.times(known, self.solved * weights) for term, weights in terms)

    @cached_property
    def usual_times(self) -> Matrix:
        """Smoothed log times of `usual_codes`, shape (2000, d)."""
        return self.log_times(usual_codes(self.space))

    @cached_property
    def low_rank(self) -> LowRankFactors:
        """Low-rank factors of the devices' log times over the space."""
        return LowRankFactors.of(self.usual_times, RANK)

    def comparisons(self, codes: Codes) -> Matrix:
        """Factor values of n architectures, and their mean standardised log time over devices.

        Returns:
            Shape (n, rank + 1).
        """
        return _comparisons(self, codes.shape, codes.tobytes())


@dataclass(frozen=True, eq=False)
class _Smoothed:
    """The process of one device; attributes as in `DevicePool`, without the axis of devices."""

    codes: Codes
    centre: float
    weights: Column
    solved: Column
    deviation: float


@lru_cache(maxsize=8)
def _pool(space: Space, devices: tuple[str, ...], fits: tuple[_Smoothed, ...]) -> DevicePool:
    """A cached pool: an evaluation with ten seeds fits the same training rows ten times."""
    measured = np.concatenate([fit.codes for fit in fits])
    codes, position = np.unique(measured, axis=0, return_inverse=True)
    device = np.repeat(np.arange(len(fits)), [len(fit.codes) for fit in fits])
    solved = np.zeros((len(codes), len(devices)))
    np.add.at(solved, (position, device), np.concatenate([fit.solved for fit in fits]))
    columns = [(fit.centre, fit.weights, fit.deviation) for fit in fits]
    centres, weights, deviations = (_rounded(np.array(c)) for c in zip(*columns, strict=True))
    return DevicePool(space, devices, codes, centres, weights, _rounded(solved), deviations)


@lru_cache(maxsize=8)
def _comparisons(pool: DevicePool, shape: tuple[int, int], content: bytes) -> Matrix:
    """Cached comparisons: an architecture search queries the same candidates repeatedly."""
    times = pool.log_times(np.frombuffer(content, dtype=np.int64).reshape(shape))
    mean = standardised(times, pool.usual_times).mean(axis=1)
    return np.column_stack([pool.low_rank.factors(times), mean])


@lru_cache(maxsize=128)
def _smoothed(space: Space, shape: tuple[int, int], codes: bytes, latency_ms: bytes) -> _Smoothed:
    """A cached fit: leaving out one device at a time fits every other device again."""
    rows = np.frombuffer(codes, dtype=np.int64).reshape(shape)
    times = np.frombuffer(latency_ms, dtype=np.float64)
    logs, noise = log_times(times), rounding_noise(times)
    inputs, process = _inputs(space, rows), GaussianProcessRegression(_covariances(space))
    some = np.random.default_rng(0).permutation(len(rows))[:_ROWS_FOR_WEIGHTS]
    fitted = process.fit(inputs[some], logs[some], noise[some])
    whole = process.with_weights(inputs, logs, fitted.weights, fitted.noise, noise)
    assert whole.posterior is not None
    left_out = whole.posterior.left_out_error
    return _Smoothed(
        rows,
        whole.centre,
        whole.weights,
        whole.posterior.weights,
        float(np.sqrt(np.mean(left_out**2))),
    )


def _thinned(codes: Codes, latency_ms: Column) -> tuple[Codes, Column]:
    """A random sample of at most MOST_ROWS rows."""
    if len(codes) <= MOST_ROWS:
        return codes, latency_ms
    kept = np.sort(np.random.default_rng(0).permutation(len(codes))[:MOST_ROWS])
    return codes[kept], latency_ms[kept]


def _inputs(space: Space, codes: Codes) -> Matrix:
    return np.concatenate([structure(space, codes), choices(space, codes)], axis=1)


@cache
def _covariances(space: Space) -> tuple[Covariance, ...]:
    """Covariances over structure, and a linear and a radial one over single choices."""
    first = structure(space, usual_codes(space)[:1]).shape[1]
    last = first + choices(space, usual_codes(space)[:1]).shape[1]
    return (
        *covariances_over((0, first), (1.5,)),
        Covariance("linear", (first, last), prior=(-3.0, 1.5)),
        Covariance("radial", (first, last), 1.0, (-3.0, 1.5)),
    )


def _rounded(values: Matrix) -> Matrix:
    """Rounded to eight significant digits, which halves the size of a saved pool.

    Rounding before the first prediction makes predictions before and after saving identical.
    """
    with np.errstate(divide="ignore"):
        size = np.where(values == 0.0, 0.0, np.floor(np.log10(np.abs(values))))
    scale = 10.0 ** (_DIGITS - 1 - size)
    return np.asarray(np.round(values * scale) / scale)
