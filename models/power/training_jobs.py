"""Power and time per epoch of known training jobs at a power limit, on any GPU.

A hierarchical model: parameters of the law and of each job are shared by all GPUs, and each GPU has
offsets from them with a normal prior, which a few rows of that GPU determine. Energy is power times
time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Positions, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.known_suites import KnownSetting, KnownSuite
from forerun.models.limit import Limit
from forerun.models.power.limit_response import (
    ENERGY,
    LOWEST,
    POWER,
    TIME,
    LimitResponse,
    fit_response,
)
from forerun.models.power.training_jobs_errors import calibrate
from forerun.models.power.training_jobs_fit import (
    MeasuredJobs,
    OffsetPrior,
    fit_offsets,
    fit_pooled,
)
from forerun.models.power.training_jobs_law import (
    SUITE,
    JobRows,
    answers,
    batch_of,
    device_size,
    job_of,
)
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

METRICS: Final = (TIME, POWER)
TRAINED_OFFSET_SHARE: Final = 0.3
"""Standard deviation of the offsets of a device in the training set, as a share of the prior's:
how far further rows of that device may still move them."""

NEW_DEVICE: Final = "not measured on this GPU: what it makes of a job comes from other GPUs"


@dataclass(frozen=True)
class FittedGpu:
    """A device with its fitted offsets.

    Attributes:
        sheet: spec sheet of the device.
        offsets: as in `training_jobs_law.answers`.
        rows: for each job, how many of its rows on this device the offsets were fitted to.
        trained_on: whether the device is in the training set, from which the parameters of the
            jobs were fitted; otherwise only its offsets come from its rows.
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
        jobs: data set and network of each job, `DATASET/NETWORK`.
        middles: log of the middle batch size of each job.
        batches: log of the least and the greatest batch size of each job.
        pooled: parameters of the law and of each job; empty before `fit`.
        gpus: devices of the training set, and those adapted to.
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
        """Jobs of the suite `SUITE` on a GPU with a spec sheet and a known design power."""
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
        """Nothing: all that a job depends on is required."""
        return {}

    def fit(self, measurements: Measurements) -> Self:
        """Fit jobs, devices and the response to a limit; calibrate on held-out jobs and devices.

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
        own = [logs[of_job] for of_job in rows_of.values()]
        bare = replace(
            self,
            jobs=jobs,
            middles=tuple(float(np.mean(np.unique(sizes))) for sizes in own),
            batches=tuple((float(sizes.min()), float(sizes.max())) for sizes in own),
        )
        training = bare._by_device(rows)
        pooled, offsets = fit_pooled(training, jobs)
        gpus = tuple(
            FittedGpu(key, tuple(offsets[key].tolist()), _rows_by_job(own, len(jobs)), True)
            for key, own in training.items()
        )
        return replace(bare, pooled=tuple(pooled.tolist()), gpus=gpus)

    def adapt(self, measurements: Measurements) -> Self:
        """Fit the offsets of each device in these support rows, in place of its former ones."""
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
        """Time, power and energy with intervals; NaN for a job that is not in the training set."""
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
        """Stratum of the residual: `unseen`, `seen`, or `adapted/N` with N support rows of the job.

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
        for key, own, rows in self._known_jobs(queries):
            gpu = self._gpu(key)
            offsets = np.zeros(device_size(len(self.jobs))) if gpu is None else gpu.offsets
            power[own], time[own] = answers(np.array(self.pooled), np.array(offsets), rows)
        return power, time

    def _by_device(self, rows: Measurements) -> dict[Sheet, MeasuredJobs]:
        """Spec sheet -> rows of known jobs on that device, in the order of the sheets."""
        watts, times = rows.column(POWER), rows.column(TIME)
        return {
            key: MeasuredJobs(inputs, np.log(watts[own]), np.log(times[own] / 1e3))
            for key, own, inputs in self._known_jobs(rows.queries)
        }

    def _known_jobs(self, queries: Sequence[Query]) -> Iterator[tuple[Sheet, Positions, JobRows]]:
        """Spec sheets in their order, with positions and inputs of known jobs on the device."""
        inputs = JobRows.of(queries, self.jobs, np.array(self.middles))
        for key, rows in rows_by(sheet(query.device) for query in queries).items():
            own = rows[inputs.job[rows] >= 0]
            if len(own):
                yield key, own, inputs.take(own)

    def _gpu(self, key: Sheet) -> FittedGpu | None:
        return next((gpu for gpu in self.gpus if same_sheet(gpu.sheet, key)), None)

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        limits = []
        if self._gpu(sheet(query.device)) is None:
            limits += [Limit(NEW_DEVICE, own, "transfer") for own in (POWER, TIME)]
        job, batch = job_of(query), float(np.log(batch_of(query)))
        if job not in self.jobs:
            limits += [Limit(f"the job {job} was not measured", own) for own in (POWER, TIME)]
        else:
            low, high = self.batches[self.jobs.index(job)]
            if not low - 1e-9 <= batch <= high + 1e-9:
                seen = f"{np.exp(low):.0f} to {np.exp(high):.0f}"
                line = f"batch size is {np.exp(batch):.0f}, the training set has {seen}"
                ends = (float(np.exp(end)) for end in (batch, low, high))
                limits.append(Limit(line, TIME, "outside", "batch size", *ends))
        limit, tdp = query.operation.power_limit_w, query.device.tdp_w
        if limit is not None and tdp is not None and limit < LOWEST * tdp:
            share = f"power limit is {limit / tdp:.0%} of the design power"
            limits.append(Limit(f"{share}, the training set has {LOWEST:.0%} and more", TIME))
        return tuple(limits)


def _rows_by_job(runs: MeasuredJobs, jobs: int) -> tuple[int, ...]:
    """Number of rows of each job."""
    return tuple(np.bincount(runs.rows.job, minlength=jobs).tolist())
