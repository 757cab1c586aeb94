"""Time and rate of static batches of requests to a language model, in any framework.

The closed form of a static batch, which no measurement has touched, times a correction. The
correction is a Gaussian process over batches, frameworks and devices; a few measurements of a
device outside the training set determine how much of it is the device's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Positions, rows_by
from forerun.data.level import HALF_WIDTH
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_serving.static_batch import FEATURES, StaticBatches
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.gaussian_process.additive_categorical import (
    AdditiveCategoricalProcess,
    KeyedRows,
    Term,
    covariance,
)
from forerun.models.gaussian_process.regression import Posterior
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

DEVICE: Final = "device"
VENDOR: Final = "vendor"
FRAMEWORK: Final = "framework"
SHARED: Final = (
    Term((), "near", 0.15),
    Term((FRAMEWORK,), "one", 0.2),
    Term((FRAMEWORK,), "linear", 0.1),
    Term((FRAMEWORK,), "near", 0.1),
    Term((VENDOR,), "one", 0.5),
    Term((VENDOR, FRAMEWORK), "one", 0.2),
    Term((VENDOR, FRAMEWORK), "near", 0.1),
)
"""Terms between devices, with the prior medians of their standard deviations."""
OWN: Final = (
    Term((DEVICE,), "one", 0.7),
    Term((DEVICE,), "linear", 0.1),
    Term((DEVICE,), "near", 0.25),
    Term((DEVICE, FRAMEWORK), "one", 0.2),
    Term((DEVICE, FRAMEWORK), "linear", 0.15),
    Term((DEVICE, FRAMEWORK), "near", 0.1),
)
"""Terms within one device."""
NOISE: Final = 0.1
LEARNING_ROWS: Final = 400
"""Most training rows from which standard deviations are estimated."""
SCALES: Final = (0.7, 1.0, 1.5, 2.2, 3.3, 5.0)
NOISE_SCALES: Final = (0.7, 1.0, 1.5, 2.5)
SPREADS: Final = (0.7, 0.5)
"""Prior standard deviations of the logarithms of both scales."""
Scale = tuple[float, float]
UNSCALED: Final[Scale] = (1.0, 1.0)


@dataclass(frozen=True)
class TransferProcess:
    """Posterior given training rows, and support rows of further devices.

    A Gaussian process over rows of several devices, and of a further one of which a few are known.
    The covariance is a sum of terms that all devices share and of terms within one device. Their
    standard deviations are estimated from the training rows. A device outside the training set may
    differ from the closed form by more than those inside, so the scale of its own terms and that of
    its noise are maximum a posteriori estimates from its support set.

    Attributes:
        terms: shared terms, then those within one device, with estimated standard deviations.
        noise: standard deviation of the error of a row.
        rows: n known rows.
        centre: prior mean.
        values: (n,) values less `centre`.
        variances: (n,) variances of their errors.
        scales: device outside the training set -> scale of its own terms, and of its noise.
    """

    terms: tuple[Term, ...]
    noise: float
    rows: KeyedRows
    centre: float
    values: Column
    variances: Column
    scales: Mapping[str, Scale] = field(default_factory=dict)

    @classmethod
    def fit(cls, rows: KeyedRows, values: Column, seed: int) -> Self:
        """The posterior given n training rows.

        Args:
            rows: keys `device`, `vendor` and `framework`, and features as the sheet.
            values: (n,) logarithms of measured over closed-form time.
            seed: selects the rows from which standard deviations are estimated.
        """
        some = np.random.default_rng(seed).permutation(len(rows))[:LEARNING_ROWS]
        learned = AdditiveCategoricalProcess.fit(
            rows.take(some), values[some], (*SHARED, *OWN), noise=NOISE, seed=seed
        )
        known = AdditiveCategoricalProcess.fit(
            rows, values, learned.terms, noise=learned.noise, learn=False
        )
        variances = known.noise**2 / known.robust_weights
        return cls(known.terms, known.noise, rows, known.centre, values - known.centre, variances)

    def adapted(self, rows: KeyedRows, values: Column) -> Self:
        """The posterior given the support rows of one device as well.

        They replace former support rows of a device outside the training set.

        Args:
            rows: k rows of one device.
            values: (k,) logarithms of measured over closed-form time.
        """
        device = str(rows.keys[DEVICE][0])
        base = self.without(device) if device in self.scales else self
        values = values - self.centre
        scales = dict(base.scales)
        if device not in base.rows.keys[DEVICE]:
            scales[device] = base._scale(rows, values)
        _, noise = scales.get(device, UNSCALED)
        return replace(
            base,
            rows=_joined(base.rows, rows),
            values=np.append(base.values, values),
            variances=np.append(base.variances, np.full(len(rows), (noise * self.noise) ** 2)),
            scales=scales,
        )

    def without(self, device: str) -> Self:
        """The posterior without the rows of a device."""
        kept = np.flatnonzero(self.rows.keys[DEVICE] != device)
        scales = {name: scale for name, scale in self.scales.items() if name != device}
        values, variances = self.values[kept], self.variances[kept]
        rows = self.rows.take(kept)
        return replace(self, rows=rows, values=values, variances=variances, scales=scales)

    def predict(self, rows: KeyedRows) -> tuple[Column, Column]:
        """Means and standard deviations of measured values of m rows, shapes (m,)."""
        means, deviations = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), 512):
            own = np.arange(start, min(start + 512, len(rows)))
            part = rows.take(own)
            cross = self._covariance(part, self.rows)
            prior = np.diag(self._covariance(part, part))
            noise = (self.noise * self._column(part, 1)) ** 2
            means[own] = self.centre + self._posterior.mean(cross)
            deviations[own] = np.sqrt(self._posterior.variance(cross, prior) + noise)
        return means, deviations

    def informative(self, rows: KeyedRows, count: int) -> Positions:
        """Positions of rows that together reduce the variance of all rows most, one by one.

        Args:
            rows: m rows that might be measured.
            count: number of rows to choose.
        """
        left, _ = self._conditional(rows)
        noise, chosen = self.noise**2, list[int]()
        for _ in range(min(count, len(rows))):
            gain = (left**2).sum(axis=0) / (np.diag(left) + noise)
            gain[chosen] = -1.0
            best = int(np.argmax(gain))
            chosen.append(best)
            left = left - np.outer(left[:, best], left[best]) / (left[best, best] + noise)
        return np.array(chosen, dtype=np.intp)

    def _scale(self, rows: KeyedRows, values: Column) -> Scale:
        """Maximum a posteriori scales of the own terms of one device, and of its noise."""
        plain, means = self._conditional(rows)
        own = covariance(rows, rows, self._own)
        found = []
        for scale in SCALES:
            for noise in NOISE_SCALES:
                given = plain + (scale**2 - 1.0) * own
                fit = Posterior.of(given, (noise * self.noise) ** 2, values - means)
                prior = np.log([scale, noise]) / SPREADS
                found.append((fit.log_likelihood - 0.5 * float(prior @ prior), (scale, noise)))
        return max(found)[1]

    def _conditional(self, rows: KeyedRows) -> tuple[Matrix, Column]:
        """Covariance (m, m) and means (m,) of rows given the known ones, without noise."""
        cross = self._covariance(rows, self.rows)
        left = self._covariance(rows, rows) - cross @ self._posterior.inverse @ cross.T
        return np.asarray(left), self._posterior.mean(cross)

    def _covariance(self, one: KeyedRows, other: KeyedRows) -> Matrix:
        own = np.outer(self._column(one, 0), self._column(other, 0))
        shared = covariance(one, other, self.terms[: len(SHARED)])
        return np.asarray(shared + own * covariance(one, other, self._own))

    @cached_property
    def _posterior(self) -> Posterior:
        return Posterior.of(self._covariance(self.rows, self.rows), self.variances, self.values)

    @property
    def _own(self) -> tuple[Term, ...]:
        return self.terms[len(SHARED) :]

    def _column(self, rows: KeyedRows, place: int) -> Column:
        """One of the scales of each row's device, 1 for devices of the training set."""
        names, codes = rows.codes[DEVICE]
        scales = np.array([self.scales.get(str(name), UNSCALED)[place] for name in names])
        return np.asarray(scales[codes])


def _joined(one: KeyedRows, other: KeyedRows) -> KeyedRows:
    keys = {name: np.append(texts, other.keys[name]) for name, texts in one.keys.items()}
    return KeyedRows(keys, np.vstack([one.sheet, other.sheet]), {})


TIME: Final = "latency_ms"
RATE: Final = "tokens_per_s"
ROWS_OF_DEVICE: Final = 300
"""Most training rows of one device."""
CENTRES: Final = np.array([0.0, 0.0, 0.0, 6.2, 22.7, 11.8, 0.0, 0.0, 0.0, 1.0])
LENGTHS: Final = np.array([0.8, 1.7, 10.0, 4.0, 2.0, 3.0, 1.0, 2.0, 1.0, 2.0])
"""Centres and length scales of the columns `FEATURES`."""


@dataclass(frozen=True)
class StaticBatch(StoredPredictor):
    """Time of a whole static batch, and tokens that it writes a second.

    Attributes:
        seed: selects training rows.
        process: correction in log units; None if unfitted.
        known: devices in the training set.
    """

    seed: int = field(default=0, metadata=SETTING)
    process: TransferProcess | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    name: ClassVar[str] = "static_batch"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features of a static batch": FEATURES}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Time of the batch, and tokens that all devices write a second."""
        return TIME, RATE

    def answers(self, query: Query) -> bool:
        """Deployed language models with a closed loop, on devices with a spec sheet."""
        if query.workload.kind != "llm_deployment" or not query.device.has_sheet:
            return False
        return query.deployment.load.concurrency is not None

    def fit(self, measurements: Measurements) -> Self:
        """Fit to rows with `latency_ms`; without such rows nothing changes."""
        measured = measurements.take(np.isfinite(measurements.column(TIME)))
        if not len(measured):
            return self
        order = np.random.default_rng(self.seed).permutation(len(measured))
        names = [measured.queries[row].device.name for row in order]
        of_device = rows_by(names).values()
        training = measured.take(np.concatenate([order[own[:ROWS_OF_DEVICE]] for own in of_device]))
        known = KnownDevices.of([query.device for query in measured.queries])
        process = TransferProcess.fit(*_residuals(training), self.seed)
        return replace(self, process=process, known=known)

    def adapt(self, measurements: Measurements) -> Self:
        """Condition on the rows of each device, which replace all former ones of that device."""
        process = self.process
        measured = measurements.take(np.isfinite(measurements.column(TIME)))
        if process is None or not len(measured):
            return self
        rows, residuals = _residuals(measured)
        for own in rows_by(rows.keys[DEVICE].tolist()).values():
            process = process.adapted(rows.take(own), residuals[own])
        return replace(self, process=process)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions in the order of the queries, with intervals once fitted.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        if not queries:
            return Predictions({metric: np.zeros(0) for metric in self.metrics})
        batches = StaticBatches.of(queries)
        if self.process is None:
            return Predictions(_metrics(queries, batches.seconds))
        means, deviations = self.process.predict(_rows(queries, batches))
        seconds, factor = batches.seconds * np.exp(means), np.exp(HALF_WIDTH * deviations)
        values, high, low = (
            _metrics(queries, one) for one in (seconds, seconds * factor, seconds / factor)
        )
        low[RATE], high[RATE] = high[RATE], low[RATE]
        limits = [self._limits(query) for query in queries]
        return Predictions(values, low, high, 0.9, limits)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the batches whose measurement would reduce the variance of all most."""
        if self.process is None or not queries:
            return []
        rows = _rows(queries, StaticBatches.of(queries))
        return [int(row) for row in self.process.informative(rows, count)]

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        if query.device in self.known:
            return ()
        return (Limit("static batches were measured on other devices", severity="transfer"),)


def _rows(queries: Sequence[Query], batches: StaticBatches) -> KeyedRows:
    keys = {
        DEVICE: np.array([query.device.name for query in queries], dtype=np.str_),
        VENDOR: np.array([query.device.vendor for query in queries], dtype=np.str_),
        FRAMEWORK: np.array([query.software.framework for query in queries], dtype=np.str_),
    }
    return KeyedRows(keys, (batches.features - CENTRES) / LENGTHS, {})


def _residuals(measured: Measurements) -> tuple[KeyedRows, Column]:
    """Rows of the process, and logarithms of measured over closed-form time."""
    batches = StaticBatches.of(measured.queries)
    logs = np.log(measured.column(TIME) / 1e3 / batches.seconds)
    return _rows(measured.queries, batches), logs


def _metrics(queries: Sequence[Query], seconds: Column) -> dict[str, Column]:
    loads = [query.deployment.load for query in queries]
    tokens = np.array([(load.concurrency or 1.0) * load.output_tokens for load in loads])
    return {TIME: 1e3 * seconds, RATE: tokens / seconds}
