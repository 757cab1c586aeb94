"""Time and rate of static batches of requests to a language model, in any framework.

The closed form of a static batch, which no measurement has touched, times a correction. The
correction is a Gaussian process over batches, frameworks and devices; a few measurements of a
device outside the training set determine how much of it is the device's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, rows_by
from forerun.data.level import HALF_WIDTH
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_serving.static_batch import FEATURES, StaticBatches
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.gaussian_process.additive_categorical import KeyedRows
from forerun.models.limit import Limit
from forerun.models.llm_serving.correction import (
    DEVICE,
    FRAMEWORK,
    VENDOR,
    TransferProcess,
)
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

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
