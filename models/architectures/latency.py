"""Predicts the latency of architectures in a search space, on a device with a few measurements.

Few-shot adaptation stacks several Gaussian processes: over the structure of an architecture, over
its latencies on a pool of known devices (`DevicePool`), and over both; for cells, one of them is
linear in milliseconds (`TimeExpert`). Their weights follow from leave-one-out predictions of the
support set. If the pool is unlike the device, the processes over structure gain weight; if it is
similar, twenty rows are enough to resolve the device's own characteristics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, groups_of
from forerun.data.errors import InputError
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Architecture, Space
from forerun.features.nas_cells import (
    COARSE,
    FBNET_LAUNCHES,
    PLACES,
    Codes,
    codes_of,
    fbnet_launches,
    features_of,
    present_choices,
    random_codes,
)
from forerun.models.adaptation.support_set import in_turns, suggest
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.gaussian_process.regression import (
    PRIOR_ROWS,
    Answer,
    Covariance,
    GaussianProcessRegression,
    combine,
    covariances_over,
    scale_of,
    stacking_weights,
    standardised,
)
from forerun.models.limit import LATENCY, Limit
from forerun.models.prediction import PredictionColumns, Predictions
from forerun.models.predictor import SETTING


@dataclass(frozen=True)
class LowRankFactors:
    """Principal factors of known devices' log times.

    A matrix of log times (workloads x devices) with centred columns has few large singular values
    (launch-bound, compute-bound, memory-bound, ...). Log times on a new device are modelled as a
    linear combination of the factors: a Gaussian process with a linear covariance over the factors
    (`forerun.models.gaussian_process.regression`) is a normal prior on its coefficients.

    Attributes:
        levels: mean log time of each of d devices, shape (d,).
        projection: maps the d centred log times of a workload to its factors, shape (d, rank).
        scales: standard deviation of each factor over the workloads, shape (rank,). All factors
            are divided by the first of these, which keeps their variances proportional to what
            they explain.
    """

    levels: Column
    projection: Matrix
    scales: Column

    @classmethod
    def of(cls, log_times: Matrix, rank: int) -> "LowRankFactors":
        """Factors from a singular value decomposition.

        Args:
            log_times: shape (workloads, devices), without NaN; smooth missing or noisy measurements
                beforehand.
            rank: maximum number of factors.
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
    """Mean and variance of the mixture, including the disagreement between experts.

    Args:
        answers: predictions of e experts for n rows.
        weights: weights that add up to 1, shape (e,).
    """
    means = np.array([answer.mean for answer in answers])
    return Answer(*combine(weights, means, np.array([answer.variance for answer in answers])))


@dataclass(frozen=True)
class Stacking:
    """Weights of experts, and a calibration of the mixture's variance.

    Stacking of predictive densities (Yao et al. 2018): the weights maximise the summed log density
    of the mixture at the held-out rows. A Dirichlet prior keeps every weight above zero, because
    twenty rows cannot rule out an expert. No expert is selected outright: where the known hardware
    is unlike the new device, experts that depend on it get low weights.

    Attributes:
        weights: weights of e experts, shape (e,).
        inflation: factor on the mixture's variance.
        freedom: degrees of freedom of the intervals' Student t distribution.
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
        # Clipped so that one outlier among twenty rows does not widen every interval.
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


MOST_ROWS: Final = 900
"""Maximum number of architectures that a device's process is fitted to."""
RANK: Final = 6
"""Number of factors of the pool's log times."""
_ROWS_FOR_WEIGHTS = 250
"""Rows that hyperparameters are fitted to."""
_FLOOR = 0.1
"""Floor on times as a fraction of the device's median: a cell that is simplified away takes almost
no time."""
_DIGITS = 8
_AT_ONCE = 1024
"""Architectures per batch."""


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
    """One column for each choice at each position that occurs in `usual_codes`, (n, columns)."""
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

    The log times of each device are smoothed by a Gaussian process over structure and single
    choices, fitted to a few hundred measured architectures and evaluated on any architecture of the
    space. A new device is compared with the smoothed times of all devices.

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
        """What each covariance adds to log times, as a function of an architecture's inputs."""
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
    """The process of one device; attributes as in `DevicePool`, without the device axis."""

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

    Rounding before the first prediction keeps predictions identical before and after saving.
    """
    with np.errstate(divide="ignore"):
        size = np.where(values == 0.0, 0.0, np.floor(np.log10(np.abs(values))))
    scale = 10.0 ** (_DIGITS - 1 - size)
    return np.asarray(np.round(values * scale) / scale)


_LEAST = 0.1
"""Least predicted time over the mean of the support set, which keeps logarithms finite."""
_LARGEST_VARIANCE = 4.0
"""Largest variance of a log time: far from its mean the linearisation is invalid."""


@dataclass(frozen=True, eq=False)
class TimeExpert:
    """A process of times in milliseconds whose predictions are of log times.

    A cell's operations run one after another, so its time is close to a sum over them: a linear
    function of counts with a normal prior, whose logarithm is not linear in the counts. The process
    is fitted to times over the mean of the support set. Linearisation (the delta method) turns its
    predictions into normal distributions of log times, so that they can be mixed with those of
    processes of log times.

    Attributes:
        process: process of times over `mean_ms`.
        mean_ms: mean time of the support set, ms.
    """

    process: GaussianProcessRegression
    mean_ms: float

    @classmethod
    def fit(
        cls,
        covariances: tuple[Covariance, ...],
        rows: Matrix,
        latency_ms: Column,
        known_noise: Column,
    ) -> Self:
        """Fit the process to k measured times.

        Args:
            covariances: terms of the covariance, each with the prior of its weight.
            rows: standardised columns, shape (k, columns).
            latency_ms: k times, ms.
            known_noise: known variance of each log time, shape (k,).
        """
        mean_ms = float(latency_ms.mean())
        relative = latency_ms / mean_ms
        process = GaussianProcessRegression(covariances)
        return cls(process.fit(rows, relative, known_noise * relative**2), mean_ms)

    def predict(self, rows: Matrix) -> Answer:
        """Log times of m rows: means and variances of new measurements."""
        return self._logarithm(self.process.predict(rows))

    def leave_one_out(self) -> Answer:
        """Log time of each row of the support set from all others."""
        return self._logarithm(self.process.leave_one_out())

    def _logarithm(self, answer: Answer) -> Answer:
        mean = np.maximum(answer.mean, _LEAST)
        variance = np.minimum(answer.variance / mean**2, _LARGEST_VARIANCE)
        return Answer(np.log(mean * self.mean_ms), variance)


FEWEST_ROWS: Final = 3
"""Smallest support set of a device that is accepted."""
_TYPICAL_NOISE = 0.0025
"""Assumed variance of log times for suggestions before a device was measured."""
_SPREAD = 1.0
"""Share of the suggestions chosen by the largest remaining variance."""


@dataclass(frozen=True, eq=False)
class AdaptedDevice:
    """One device on one search space, adapted by a support set of k measured architectures.

    Attributes:
        codes: choices of the measured architectures, shape (k, positions).
        latency_ms: their latencies in milliseconds, shape (k,).
        experts: fitted processes of log times.
        mixture: weights of the experts, followed by those in milliseconds.
        in_milliseconds: fitted processes of times.
    """

    codes: Codes
    latency_ms: Column
    experts: tuple[GaussianProcessRegression, ...]
    mixture: Stacking
    in_milliseconds: tuple[TimeExpert, ...] = ()

    @classmethod
    def of(cls, space: Space, pool: DevicePool | None, codes: Codes, latency_ms: Column) -> Self:
        """Fit and stack the experts.

        Args:
            space: search space.
            pool: known devices; None if there are none for this space.
            codes: choices of the measured architectures, shape (k, positions).
            latency_ms: their latencies in milliseconds, shape (k,).
        """
        rows, logs = inputs(space, pool, codes), log_times(latency_ms)
        noise = rounding_noise(latency_ms)
        fitted = tuple(expert.fit(rows, logs, noise) for expert in experts(space, pool))
        added = tuple(
            TimeExpert.fit(covariances, rows, np.exp(logs), noise)
            for covariances in covariances_in_milliseconds(space)
        )
        left_out = [
            *(expert.leave_one_out() for expert in fitted),
            *(expert.leave_one_out() for expert in added),
        ]
        return cls(codes, latency_ms, fitted, Stacking.of(left_out, logs), added)

    def answer(self, rows: Matrix) -> tuple[Answer, Column]:
        """Predicted log times of n rows of `inputs`, and half-widths of intervals, shape (n,)."""
        answers = [expert.predict(rows) for expert in self.experts]
        answers += [expert.predict(rows) for expert in self.in_milliseconds]
        joint = self.mixture.combine(answers)
        return joint, self.mixture.half_width(joint, LEVEL)


def inputs(space: Space, pool: DevicePool | None, codes: Codes) -> Matrix:
    """Inputs of the experts: structure, its coarse part, then the comparisons with the pool.

    FBNets append structure with `_launches`, and its coarse part with all launches.

    Returns:
        Shape (n, columns); without the comparisons if `pool` is None.
    """
    fine = structure(space, codes)
    parts = [fine, fine[:, list(COARSE[space])]]
    coarse = parts[1]
    if pool is not None:
        parts.append(pool.comparisons(codes))
    if space == "fbnet":
        # Appended last, so that saved experts of earlier versions find their columns.
        counts = _launches(codes)
        parts += [fine, counts, coarse, counts[:, -1:]]
    return np.concatenate(parts, axis=1)


def _launches(codes: Codes) -> Matrix:
    """Executed kernels of FBNets, standardised over the space, shape (n, 2).

    They are inputs of the experts only, not of a pool's smoothing.
    """
    mean, deviation = _scale_of_launches()
    return np.asarray((fbnet_launches(codes) - mean) / deviation)


@cache
def _scale_of_launches() -> tuple[Column, Column]:
    return scale_of(fbnet_launches(usual_codes("fbnet")))


def experts(space: Space, pool: DevicePool | None) -> tuple[GaussianProcessRegression, ...]:
    """Unfitted processes over structure, over the pool, and over both, in increasing complexity."""
    fine, coarse, known = _latency_covariances(space, pool)
    level = Covariance("constant", prior=(-2.0, 1.0))
    sets: list[tuple[Covariance, ...]] = [coarse, (*fine, *coarse)]
    if known:
        sets += [known, (*coarse, *known), (*fine, *coarse, *known)]
    return tuple(GaussianProcessRegression((level, *covariances)) for covariances in sets)


def covariances_in_milliseconds(space: Space) -> tuple[tuple[Covariance, ...], ...]:
    """Covariances of each expert in milliseconds: for cells, a linear one over fine structure."""
    if space != "nb201":
        return ()
    columns = structure(space, usual_codes(space)[:1]).shape[1]
    level = Covariance("constant", prior=(-2.0, 1.0))
    return ((level, Covariance("linear", (0, columns), prior=(-2.0, 1.5))),)


def _structural(
    start: int, first: int, second: int
) -> tuple[tuple[Covariance, ...], tuple[Covariance, ...]]:
    """Covariances over fine structure, columns `start` to `first`, and coarse, up to `second`."""
    coarse = Covariance("linear", (first, second), prior=(-2.0, 1.5))
    return covariances_over((start, first), (1.0, 3.0)), (coarse,)


def _latency_covariances(
    space: Space, pool: DevicePool | None
) -> tuple[tuple[Covariance, ...], tuple[Covariance, ...], tuple[Covariance, ...]]:
    """Covariances over fine structure, over coarse structure, and over the pool."""
    first = structure(space, usual_codes(space)[:1]).shape[1]
    second = first + len(COARSE[space])
    fine, coarse = _structural(0, first, second)
    if space == "fbnet":
        start = second if pool is None else second + len(pool.low_rank.scales) + 1
        last = start + first + len(FBNET_LAUNCHES)
        fine, coarse = _structural(start, last, last + len(COARSE[space]) + 1)
    if pool is None:
        return fine, coarse, ()
    third = second + len(pool.low_rank.scales)
    known = (
        Covariance("linear", (second, third), prior=(-1.0, 2.0)),
        Covariance("linear", (third, third + 1), prior=(-2.0, 2.0)),
    )
    return fine, coarse, known


@dataclass(frozen=True)
class ArchitectureLatency(StoredPredictor):
    """Latency of NAS-Bench-201, FBNet and OFA networks, by device.

    A device is identified by its name only, which also stands for runtime, batch and precision;
    nothing but its measurements is known about it.

    Attributes:
        seed: currently unused; all predictors take one.
        pools: search space -> pool of the devices in the training set.
        adapted: (search space, device name) -> device with a support set.
    """

    seed: int = field(default=0, metadata=SETTING)
    pools: Mapping[Space, DevicePool] = field(default_factory=dict)
    adapted: Mapping[tuple[Space, str], AdaptedDevice] = field(default_factory=dict)
    name: ClassVar[str] = "architecture_latency"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Whether the query is an architecture with as many choices as its space requires."""
        workload = query.workload
        return (
            isinstance(workload, Architecture) and len(workload.operators) == PLACES[workload.space]
        )

    def known_devices(self, space: Space) -> tuple[str, ...]:
        """Names of the devices with measurements in a search space, sorted."""
        pool = self.pools.get(space)
        names = {device for of_space, device in self.adapted if of_space == space}
        return tuple(sorted(names.union(() if pool is None else pool.devices)))

    def fit(self, measurements: Measurements) -> Self:
        """Fit a pool of devices for each search space, on at most 900 architectures per device.

        Args:
            measurements: architectures with `latency_ms`.
        """
        rows_of: dict[Space, dict[str, tuple[Codes, Column]]] = {}
        for (space, device), (codes, times) in _by_device(measurements).items():
            rows_of.setdefault(space, {})[device] = (codes, times)
        pools = {space: DevicePool.of(space, rows) for space, rows in sorted(rows_of.items())}
        return replace(self, pools=pools, adapted={})

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt to the devices of these rows, replacing each one's earlier support set.

        Raises:
            InputError: a device has fewer than three rows.
        """
        adapted = dict(self.adapted)
        for (space, device), (codes, times) in _by_device(measurements).items():
            if len(codes) < FEWEST_ROWS:
                raise InputError(
                    f"{device} has {len(codes)} measured architectures of {space}; "
                    f"at least {FEWEST_ROWS} are needed."
                )
            adapted[space, device] = AdaptedDevice.of(space, self.pools.get(space), codes, times)
        return replace(self, adapted=adapted)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Milliseconds with 90 % intervals; NaN for a search space without a known device."""
        answer = PredictionColumns(len(queries), self.metrics)
        for (space, device), rows in groups_of(map(_space_and_device, queries)).items():
            codes = _codes([queries[row] for row in rows])
            logs, half, limits = self._answer(space, device, codes)
            ends = np.exp(logs - half), np.exp(logs + half)
            shared = {"coverage": LEVEL, "limits": [limits] * len(rows)}
            answer.put(rows, Predictions.of_metric("latency_ms", np.exp(logs), ends, **shared))
        return answer.predictions()

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Architectures to measure first on a new device.

        Args:
            queries: n candidates; search spaces take turns.
            count: number to suggest.
            seed: of the choice.

        Returns:
            Positions among the candidates.
        """
        chosen = []
        for space, rows in groups_of(_architecture(query).space for query in queries).items():
            # Without launches: with them, Spearman on single phones was up to 0.12 lower.
            fine = structure(space, _codes([queries[row] for row in rows]))
            points = np.concatenate([fine, fine[:, list(COARSE[space])]], axis=1)
            of_fine, of_coarse = _structural(0, fine.shape[1], points.shape[1])
            covariances = (*of_fine, *of_coarse)
            weights = np.exp([covariance.prior[0] for covariance in covariances])
            picked = suggest(points, covariances, weights, _TYPICAL_NOISE, count, seed, _SPREAD)
            chosen.append([rows[index] for index in picked])
        return in_turns(chosen)[:count]

    def _answer(
        self, space: Space, device: str, codes: Codes
    ) -> tuple[Column, Column, tuple[Limit, ...]]:
        """Predicted log times and half-widths of intervals, shapes (n,), and shared limits."""
        pool = self.pools.get(space)
        device_fit = self.adapted.get((space, device))
        if device_fit is not None:
            answer, half = device_fit.answer(inputs(space, pool, codes))
            return answer.mean, half, ()
        if pool is None:
            nothing = np.full(len(codes), np.nan)
            unknown = Limit(f"no device is known for the search space {space}", LATENCY)
            return nothing, nothing, (unknown,)
        times = pool.log_times(codes)
        if device in pool.devices:
            column = pool.devices.index(device)
            half = np.full(len(codes), HALF_WIDTH * pool.deviations[column])
            return times[:, column], half, ()
        deviation = np.sqrt(times.var(axis=1) + np.mean(pool.deviations**2))
        typical = (
            "nothing was measured on this device: the answer is typical of "
            f"{len(pool.devices)} others; twenty measured architectures would improve it"
        )
        return times.mean(axis=1), 2.5 * deviation + 0.5, (Limit(typical, LATENCY),)


def _architecture(query: Query) -> Architecture:
    assert isinstance(query.workload, Architecture)
    return query.workload


def _space_and_device(query: Query) -> tuple[Space, str]:
    return _architecture(query).space, query.device.name


def _codes(queries: Sequence[Query]) -> Codes:
    return codes_of([_architecture(query) for query in queries])


def _by_device(measurements: Measurements) -> dict[tuple[Space, str], tuple[Codes, Column]]:
    """(search space, device name) -> choices and milliseconds of its rows with a time above 0."""
    measured = measurements.take(measurements.values["latency_ms"] > 0)
    by_device = {}
    for key, rows in groups_of(map(_space_and_device, measured.queries)).items():
        of_device = measured.take(rows)
        by_device[key] = (_codes(of_device.queries), of_device.values["latency_ms"])
    return by_device
