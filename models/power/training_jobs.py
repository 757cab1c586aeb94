"""Predicts power and time per epoch of known training jobs at a power limit, on any GPU.

A hierarchical model: all GPUs share the parameters of the model and of each job, and each GPU has
offsets with a normal prior, which a few of its rows determine. All are maximum a posteriori
estimates by nonlinear least squares with a pseudo-Huber loss. Energy is power times time.
Intervals are calibrated on held-out jobs and on held-out devices, each predicted without any of its
rows and after few-shot adaptation to random support sets of several sizes.

An epoch with batch size b takes A / b for launches and the host and B for arithmetic. The two
overlap, so the epoch takes ((A / b)^q + B^q)^(1/q). The busy share, B over that time, determines
the job's dynamic power above the static power of the device; a limit that allows less lowers the
clock, which lengthens B (`limit_response`). All parameters are in log space (shares in log odds),
so devices differ by additive offsets with a normal prior.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, Names, Positions, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import POOLED, LogQuantiles, held_out_folds
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.known_suites import KnownSetting, KnownSuite
from forerun.models.limit import Limit
from forerun.models.power.limit_response import (
    ENERGY,
    LOWEST,
    POWER,
    TIME,
    LimitResponse,
    clock,
    fit_response,
    stretched,
)
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

SUITE: Final = "zeus_powercap"

LAW: Final = ("static", "linear", "sharpness", "fixed")
"""Parameters common to all devices: log of static power over design power; log odds of the share of
dynamic power that is proportional to the clock; log exponent of the soft minimum; log odds of the
share of dynamic power, mostly of memory, that does not depend on the clock."""
LAW_PRIOR: Final = ((-1.8, 0.3), (0.0, 1.0), (0.9, 0.4), (-1.0, 0.7))

JOB: Final = (
    *("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power", "overlap"),
)
"""Parameters of a job on any device: log A and log B, in seconds; log of its dynamic power when
busy; the exponent of dynamic power in the busy share; log of the share of B that scales with
1/clock; the exponent of dynamic power in the batch size; log of the exponent q."""
JOB_PRIOR: Final = (
    *((0.0, 5.0), (0.0, 5.0), (-0.2, 0.6), (1.0, 0.4), (-0.5, 0.4), (0.0, 0.1), (0.7, 0.4)),
)

DEVICE: Final = (
    *("static", "headroom", "launch", "arithmetic", "dynamic", "compute", "linear", "sharpness"),
    "fixed",
)
DEVICE_SPREAD: Final = (0.6, 0.03, 0.5, 0.5, 0.3, 0.4, 0.7, 0.3, 0.5)
"""Prior standard deviations of a device's offsets, in the order of `DEVICE`."""
DEVICE_JOB: Final = ("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power")
DEVICE_JOB_SPREAD: Final = (0.3, 0.2, 0.15, 0.15, 0.2, 0.03)
"""Prior standard deviations of a device's offsets for one job, in the order of `DEVICE_JOB`."""
SAME_NETWORK: Final = 0.8
"""Prior correlation of a device's offsets for two jobs that train the same network."""

DYNAMIC_UNIT: Final = 0.6
"""Unit of the dynamic power of a job, as a share of the TDP."""
SOFT_FLOOR: Final = 0.03
"""Width of the soft maximum of limit minus static power and 0, as a share of the TDP."""


@dataclass(frozen=True)
class JobRows(Columns):
    """Model inputs for n runs of jobs.

    Attributes:
        job: (n,) index into the list of jobs, or -1 for an unlisted job.
        log_batch: (n,) log of batch size over the job's middle batch size.
        limit_w, tdp_w: (n,) power limit and design power of the device, W.
        log_speed: (n,) result of `log_speed` for the device's spec sheet.
    """

    job: Positions
    log_batch: Column
    limit_w: Column
    tdp_w: Column
    log_speed: Column

    @classmethod
    def of(cls, queries: Sequence[Query], jobs: Sequence[str], middles: Column) -> "JobRows":
        """Rows of these queries; a missing power limit means the design power.

        Args:
            queries: n jobs of the suite on devices with a spec sheet and a design power.
            jobs: names of the jobs.
            middles: (jobs,) log of the middle batch size of each job.
        """
        index = {name: number for number, name in enumerate(jobs)}
        job = np.array([index.get(job_of(query), -1) for query in queries], dtype=np.intp)
        batch = np.array([np.log(batch_of(query)) for query in queries])
        tdp = np.array([query.device.tdp_w or np.nan for query in queries])
        given = [query.operation.power_limit_w for query in queries]
        limit = np.array([np.inf if value is None else value for value in given])
        speed = np.array([log_speed(query) for query in queries])
        return cls(job, batch - middles[job], np.minimum(limit, tdp), tdp, speed)


def job_of(query: Query) -> str:
    """Name of the job of a query: `DATASET/NETWORK`."""
    settings = query.benchmark.by_name
    return f"{settings['dataset']}/{settings['network']}"


def batch_of(query: Query) -> float:
    """Batch size of a query, 1 if not given."""
    given = query.benchmark.by_name.get("batch_size", 1.0)
    return max(float(given), 1e-9)


def log_speed(query: Query) -> float:
    """Log of the geometric mean of fp32 peak (TFLOP/s) and bandwidth (units of 100 GB/s)."""
    device = query.device
    peak = device.peak_tflops.get("fp32") or max(device.peak_tflops.values())
    return 0.5 * float(np.log(peak * device.bandwidth_gbs / 100.0))


def pooled_size(jobs: int) -> int:
    """Number of parameters of the model and all jobs together."""
    return len(LAW) + len(JOB) * jobs


def device_size(jobs: int) -> int:
    """Number of offsets of one device."""
    return len(DEVICE) + len(DEVICE_JOB) * jobs


def answers(pooled: Column, offsets: Column, rows: JobRows) -> tuple[Column, Column]:
    """Logarithms of watts and of seconds per epoch, shapes (n,).

    Args:
        pooled: (`pooled_size`,) parameters of the model and of each job.
        offsets: (`device_size`,) offsets of one device.
        rows: n runs of known jobs on that device.
    """
    law = pooled[: len(LAW)]
    job = pooled[len(LAW) :].reshape(-1, len(JOB))[rows.job].T
    device_offsets = offsets[: len(DEVICE)]
    both = offsets[len(DEVICE) :].reshape(-1, len(DEVICE_JOB))[rows.job].T
    overlap = np.exp(job[6])
    launch = job[0] + device_offsets[2] + both[0] - rows.log_batch
    arithmetic = job[1] - rows.log_speed + device_offsets[3] + both[1]
    busy = arithmetic - _joined(launch, arithmetic, overlap)
    dynamic = job[2] + device_offsets[4] + both[2] + (job[3] + both[3]) * busy
    dynamic = DYNAMIC_UNIT * rows.tdp_w * np.exp(dynamic + (job[5] + both[5]) * rows.log_batch)
    fixed = _share(law[3] + device_offsets[8])
    saved = (1.0 - fixed) * dynamic
    static = rows.tdp_w * np.exp(law[0] + device_offsets[0]) + fixed * dynamic
    left = 0.5 * (np.exp(device_offsets[1]) * rows.limit_w - static)
    left = left + np.hypot(left, SOFT_FLOOR * rows.tdp_w)
    sharp = np.exp(law[2] + device_offsets[7])
    drawn = (left**-sharp + saved**-sharp) ** (-1.0 / sharp)
    clocks = clock(drawn / saved, _share(law[1] + device_offsets[6]))
    slowed = np.log(stretched(clocks, np.exp(job[4] + device_offsets[5] + both[4])))
    return np.log(static + drawn), _joined(launch, arithmetic + slowed, overlap)


def _joined(launch: Column, arithmetic: Column, overlap: Column) -> Column:
    """Log of the time of two overlapping parts: their norm of order `overlap`, shape (n,)."""
    joined: Column = np.logaddexp(overlap * launch, overlap * arithmetic) / overlap
    return joined


def _share(log_odds: float) -> float:
    return float(1.0 / (1.0 + np.exp(-log_odds)))


POWER_SPREAD: Final = 0.03
TIME_SPREAD: Final = 0.05
"""Standard deviations of the residuals in log space."""
MOST_STEPS: Final = 60
"""Maximum number of evaluations by the least squares solver."""


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
    """Normal prior of a device's offsets; those of jobs training one network are correlated.

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
        """A prior around these offsets, with its standard deviations multiplied by `share`."""
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
    """Fit the parameters of the model and of each job, and each device's offsets.

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
        for key, of_device in zip(keys, offsets, strict=True):
            parts += [prior.residuals(of_device), devices[key].residuals(pooled, of_device)]
        return np.concatenate(parts)

    start = np.concatenate([mean, np.zeros(each * len(keys))])
    solution = least_squares(residuals, start, x_scale="jac", max_nfev=MOST_STEPS).x
    of_devices = solution[head:].reshape(len(keys), each)
    return solution[:head], dict(zip(keys, of_devices, strict=True))


def fit_offsets(pooled: Column, support: MeasuredJobs, prior: OffsetPrior) -> Column:
    """Fit the offsets of one device to a few runs, shape (offsets,).

    Args:
        pooled: parameters of the model and of each job, which stay fixed.
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
    """Residuals transformed so that their squares are the pseudo-Huber loss of width 2."""
    root = np.sqrt(1.0 + np.square(residuals / 2.0))
    robust: Column = np.sign(residuals) * np.sqrt(8.0 * (root - 1.0))
    return robust


SHOTS: Final = (8, 20, 40)
"""Sizes of the support sets of a held-out device."""
DRAWS: Final = 4
"""Random support sets of each size."""
FOLDS: Final = 4
UNSEEN_AT_LEAST: Final[Mapping[str, float]] = {
    POWER: float(np.log(1.5)),
    TIME: float(np.log(2.5)),
    ENERGY: float(np.log(3.0)),
}
"""Smallest bounds of |log(measured / predicted)| on a device without measurements, because the few
devices in the training set may agree by chance."""


WIDER: Final = 1.1
"""Widening of intervals on adapted devices.

Their residuals come from fits that lack the held-out device, one of few.
"""

HeldOutResiduals = tuple[Names, Mapping[str, Column]]
"""Strata of n rows, and metric -> (n,) log(measured / predicted)."""


def calibrate(fitted: "PowerCap", rows: Measurements, seed: int) -> dict[str, LogQuantiles]:
    """Metric -> conformal quantiles of the residuals by stratum, for power, time and energy.

    The finite-sample correction counts residuals, several per row for adapted devices. There are
    too few devices to count; `UNSEEN_AT_LEAST` and `WIDER` account for that.

    Args:
        fitted: predictor fitted to all rows.
        rows: training rows.
        seed: seed of folds and support sets.
    """
    parts = [*_held_out_jobs(fitted, rows, seed), *_held_out_devices(fitted, rows, seed)]
    strata = np.concatenate([part[0] for part in parts])
    errors = {}
    for metric in (TIME, POWER, ENERGY):
        residuals = np.concatenate([part[1][metric] for part in parts])
        quantiles = LogQuantiles.of(residuals, strata)
        bounds = dict(quantiles.bounds)
        low, high = bounds.get("unseen", bounds[POOLED])
        least = UNSEEN_AT_LEAST[metric]
        for stratum in [name for name in bounds if name.startswith("adapted")]:
            bounds[stratum] = (WIDER * bounds[stratum][0], WIDER * bounds[stratum][1])
        bounds["unseen"] = (min(low, -least), max(high, least))
        errors[metric] = replace(quantiles, bounds=bounds)
    return errors


def _held_out_jobs(fitted: "PowerCap", rows: Measurements, seed: int) -> Iterator[HeldOutResiduals]:
    """Residuals of held-out settings (job and batch size) on devices in the training set."""
    groups = [f"{sheet(q.device)}/{getattr(q.workload, 'settings', '')}" for q in rows.queries]
    for held in held_out_folds(np.array(groups, dtype=np.str_), FOLDS, seed):
        yield _residuals(fitted.fitted_on(rows.take(~held)), rows.take(held))


def _held_out_devices(
    fitted: "PowerCap", rows: Measurements, seed: int
) -> Iterator[HeldOutResiduals]:
    """Residuals on held-out devices, before and after adaptation to support sets."""
    keys = np.array([str(sheet(query.device)) for query in rows.queries], dtype=np.str_)
    random = np.random.default_rng(seed)
    for held in held_out_folds(keys):
        without, held_rows = fitted.fitted_on(rows.take(~held)), rows.take(held)
        yield _residuals(without, held_rows)
        for shots in SHOTS:
            for _ in range(DRAWS):
                support = np.zeros(len(held_rows), dtype=np.bool_)
                support[random.permutation(len(held_rows))[:shots]] = True
                if not support.all():
                    yield _residuals(
                        without.adapt(held_rows.take(support)), held_rows.take(~support)
                    )


def _residuals(fitted: "PowerCap", rows: Measurements) -> HeldOutResiduals:
    """Strata and residuals of rows outside the predictor's training set."""
    answers = fitted.predict(rows.queries)
    power, time = rows.values[POWER], rows.values[TIME]
    measured = {POWER: power, TIME: time, ENERGY: power * time / 1e3}
    strata = np.array([fitted.stratum(query) for query in rows.queries], dtype=np.str_)
    return strata, {m: np.log(measured[m] / answers.values[m]) for m in measured}


METRICS: Final = (TIME, POWER)
TRAINED_OFFSET_SHARE: Final = 0.3
"""Standard deviation of the offsets of a device in the training set over the prior's: how far
further rows of that device can still move them."""

NEW_DEVICE: Final = "not measured on this GPU: its power is estimated from other GPUs"


@dataclass(frozen=True)
class FittedGpu:
    """A device with its fitted offsets.

    Attributes:
        sheet: spec sheet of the device.
        offsets: as in `answers`.
        rows: per job, how many of its rows on this device the offsets were fitted to.
        trained_on: whether the device is in the training set, to which the job parameters were
            fitted; otherwise only its offsets come from its rows.
    """

    sheet: Sheet
    offsets: tuple[float, ...]
    rows: tuple[int, ...]
    trained_on: bool


@dataclass(frozen=True)
class PowerCap(StoredPredictor):
    """Training jobs of Zeus's trace under a power limit.

    Attributes:
        seed: seed of the folds and support sets of the calibration.
        calibrated: whether `fit` calibrates intervals.
        jobs: dataset and network of each job, `DATASET/NETWORK`.
        middles: log of the middle batch size of each job.
        batches: log of the least and the greatest batch size of each job.
        pooled: parameters of the model and of each job; empty before `fit`.
        gpus: devices of the training set and adapted devices.
        errors: metric -> quantiles of log(measured / predicted); strata are those of `stratum`.
        response: fitted effect of a power limit on any other workload.
    """

    seed: int = field(default=0, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    jobs: tuple[str, ...] = ()
    middles: tuple[float, ...] = ()
    batches: tuple[tuple[float, float], ...] = ()
    pooled: tuple[float, ...] = ()
    gpus: tuple[FittedGpu, ...] = ()
    errors: Mapping[str, LogQuantiles] = field(default_factory=dict)
    response: LimitResponse = field(default_factory=LimitResponse)
    name: ClassVar[str] = "power_cap"
    metrics: ClassVar[tuple[str, ...]] = METRICS

    def answers(self, query: Query) -> bool:
        """Whether the query is a job of `SUITE` on a GPU with a spec sheet and design power."""
        workload, device = query.workload, query.device
        if not isinstance(workload, Benchmark) or workload.suite != SUITE or not self.jobs:
            return False
        return device.kind == "gpu" and device.has_sheet and device.tdp_w is not None

    def known_suites(self) -> tuple[KnownSuite, ...]:
        """The suite of training jobs; none before `fit`."""
        if not self.jobs:
            return ()
        datasets, networks = zip(*(job.split("/") for job in self.jobs), strict=True)
        low, high = (np.exp(ends) for ends in zip(*self.batches, strict=True))
        settings = (
            KnownSetting("dataset", tuple(sorted(set(datasets))), required=True),
            KnownSetting("network", tuple(sorted(set(networks))), required=True),
            KnownSetting("batch_size", (), round(min(low)), round(max(high)), required=True),
            KnownSetting("optimizer", meaning="recorded only; no prediction depends on it"),
        )
        return (KnownSuite(SUITE, settings, (*METRICS, ENERGY), ("gpu",)),)

    def usual_settings(self, query: Query) -> Mapping[str, float | str]:
        """Empty: every setting of a job is required."""
        return {}

    def fit(self, measurements: Measurements) -> Self:
        """Fit jobs, devices and the limit response; calibrate on held-out jobs and devices.

        Args:
            measurements: rows with `power_w` and `latency_ms`, the time of an epoch.
        """
        fitted = self.fitted_on(measurements)
        response = fit_response(measurements)
        errors = calibrate(fitted, measurements, self.seed) if self.calibrated else {}
        return replace(fitted, response=response, errors=errors)

    def fitted_on(self, rows: Measurements) -> Self:
        """The predictor fitted to jobs and devices of these rows, without intervals."""
        rows_of = rows_by(map(job_of, rows.queries))
        logs, jobs = np.log([batch_of(query) for query in rows.queries]), tuple(rows_of)
        of_jobs = [logs[of_job] for of_job in rows_of.values()]
        bare = replace(
            self,
            jobs=jobs,
            middles=tuple(float(np.mean(np.unique(sizes))) for sizes in of_jobs),
            batches=tuple((float(sizes.min()), float(sizes.max())) for sizes in of_jobs),
        )
        training = bare._by_device(rows)
        pooled, offsets = fit_pooled(training, jobs)
        gpus = tuple(
            FittedGpu(key, tuple(offsets[key].tolist()), _rows_by_job(runs, len(jobs)), True)
            for key, runs in training.items()
        )
        return replace(bare, pooled=tuple(pooled.tolist()), gpus=gpus)

    def adapt(self, measurements: Measurements) -> Self:
        """Fit the offsets of each device in these support rows, replacing its earlier ones."""
        gpus = list(self.gpus)
        for key, support in self._by_device(measurements).items():
            known = self._gpu(key)
            prior = OffsetPrior.of(self.jobs)
            rows = np.array(_rows_by_job(support, len(self.jobs)))
            trained_on = known is not None and known.trained_on
            if known is not None and known.trained_on:
                prior = prior.around(np.array(known.offsets), TRAINED_OFFSET_SHARE)
                rows = rows + np.array(known.rows)
            offsets = fit_offsets(np.array(self.pooled), support, prior)
            gpus = [gpu for gpu in gpus if gpu is not known]
            fitted = FittedGpu(key, tuple(offsets.tolist()), tuple(rows.tolist()), trained_on)
            gpus.append(fitted)
        return replace(self, gpus=tuple(gpus))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Time, power and energy with intervals; NaN for a job outside the training set."""
        logs = self._logarithms(queries)
        power, time = np.exp(logs[0]), 1e3 * np.exp(logs[1])
        values = {TIME: time, POWER: power, ENERGY: power * time / 1e3}
        low: dict[str, Column] = {}
        high: dict[str, Column] = {}
        strata = [self.stratum(query) for query in queries]
        for metric, quantiles in self.errors.items():
            low[metric], high[metric] = quantiles.around(values[metric], strata)
        coverage = 0.9 if self.errors else None
        limits = [self._limits(query) for query in queries]
        return Predictions(values, low, high, coverage, limits)

    def stratum(self, query: Query) -> str:
        """Stratum of the residual: `unseen`, `seen`, or `adapted/N` for N support rows of the job.

        N is at most 3; `seen` devices are those of the training set.
        """
        gpu = self._gpu(sheet(query.device))
        if gpu is None:
            return "unseen"
        if gpu.trained_on:
            return "seen"
        job = job_of(query)
        support = gpu.rows[self.jobs.index(job)] if job in self.jobs else 0
        return f"adapted/{min(support, 3)}"

    def _logarithms(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Predicted logarithms of watts and of seconds per epoch, shapes (n,)."""
        power, time = np.full(len(queries), np.nan), np.full(len(queries), np.nan)
        for key, positions, rows in self._known_jobs(queries):
            gpu = self._gpu(key)
            offsets = np.zeros(device_size(len(self.jobs))) if gpu is None else gpu.offsets
            power[positions], time[positions] = answers(
                np.array(self.pooled), np.array(offsets), rows
            )
        return power, time

    def _by_device(self, rows: Measurements) -> dict[Sheet, MeasuredJobs]:
        """Spec sheet -> rows of known jobs on that device, in the order of the sheets."""
        watts, times = rows.column(POWER), rows.column(TIME)
        return {
            key: MeasuredJobs(inputs, np.log(watts[positions]), np.log(times[positions] / 1e3))
            for key, positions, inputs in self._known_jobs(rows.queries)
        }

    def _known_jobs(self, queries: Sequence[Query]) -> Iterator[tuple[Sheet, Positions, JobRows]]:
        """Spec sheets in order, with positions and inputs of the known jobs on each device."""
        inputs = JobRows.of(queries, self.jobs, np.array(self.middles))
        for key, rows in rows_by(sheet(query.device) for query in queries).items():
            known_rows = rows[inputs.job[rows] >= 0]
            if len(known_rows):
                yield key, known_rows, inputs.take(known_rows)

    def _gpu(self, key: Sheet) -> FittedGpu | None:
        return next((gpu for gpu in self.gpus if same_sheet(gpu.sheet, key)), None)

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        limits = []
        if self._gpu(sheet(query.device)) is None:
            limits += [Limit(NEW_DEVICE, metric, "transfer") for metric in (POWER, TIME)]
        job, batch = job_of(query), float(np.log(batch_of(query)))
        if job not in self.jobs:
            limits += [Limit(f"the job {job} was not measured", metric) for metric in (POWER, TIME)]
        else:
            low, high = self.batches[self.jobs.index(job)]
            if not low - 1e-9 <= batch <= high + 1e-9:
                seen = f"{np.exp(low):.0f} to {np.exp(high):.0f}"
                line = f"batch size is {np.exp(batch):.0f}; the training set has {seen}"
                ends = (float(np.exp(end)) for end in (batch, low, high))
                limits.append(Limit(line, TIME, "outside", "batch size", *ends))
        limit, tdp = query.operation.power_limit_w, query.device.tdp_w
        if limit is not None and tdp is not None and limit < LOWEST * tdp:
            share = f"power limit is {limit / tdp:.0%} of the TDP"
            limits.append(Limit(f"{share}; the training set has {LOWEST:.0%} and more", TIME))
        return tuple(limits)


def _rows_by_job(runs: MeasuredJobs, jobs: int) -> tuple[int, ...]:
    """Number of rows of each job."""
    return tuple(np.bincount(runs.rows.job, minlength=jobs).tolist())
