"""Measurements as users give them: each row has a workload, the software, and metrics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints

from forerun.data.described import Described
from forerun.data.device import Device
from forerun.data.errors import (
    InputError,
    UnanswerableQuery,
    UnknownBandwidth,
    UnknownGraph,
    UnknownMetric,
    in_field,
)
from forerun.data.graph import OperatorGraph
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.measurements import Measurements
from forerun.data.metrics import METRICS, metric
from forerun.data.quality import noise_weights
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import phase_of
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.measurements import GivenEstimate
from forerun.service.schemas.prediction import EXAMPLE_KERNEL, KernelIn, NetworkIn
from forerun.service.schemas.workload_kinds import LlmDeploymentIn
from forerun.service.schemas.workloads import workload_of

RUN_NAMES = tuple(known.name for known in METRICS)
SERVED = ("ttft_ms", "tpot_ms", "request_latency_ms", "requests_per_s", "tokens_per_s")
"""Metrics of a deployed language model that a predictor learns from: both times, or one of whole
requests where these were not measured."""
NAMES = (*RUN_NAMES, *SERVED)
MOST_ROWS = 1_000
SMALLEST, LARGEST = 1e-9, 1e15
"""Bounds of a measured value in the unit of any metric but utilisation."""
FARTHEST_OFF = 300.0
"""Ratio of measured to predicted value, or its inverse, that suggests a wrong unit."""

UNINFORMATIVE_ALONE = ("energy_j",)
"""Metrics that no predictor can learn from alone: energy is predicted as power times time."""

EXAMPLE_ROWS: dict[str, Any] = {
    "measurements": [
        {"workload": EXAMPLE_KERNEL, "metrics": {"latency_ms": 0.31}},
        {"workload": EXAMPLE_KERNEL | {"precision": "fp16"}, "metrics": {"latency_ms": 0.052}},
    ]
}
MeasuredWorkloadIn = Annotated[KernelIn | NetworkIn | LlmDeploymentIn, Field(discriminator="kind")]
MetricName = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]
Source = Literal["adapt", "observe"]
"""What measurements are for: to adapt the predictor to, or only to compare its answers with."""


class BadMeasurement(InputError):
    """A measurement is not valid, or no predictor can learn from it."""


class MeasuredRow(Described):
    """The measured metrics of one run of a workload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: MeasuredWorkloadIn
    """the workload that was run"""
    software: Software = Field(default_factory=Software)
    """the software that ran it"""
    metrics: dict[MetricName, float | None] = Field(
        max_length=len(NAMES),
        description="metric -> measured value in its unit, null where it was not measured: "
        f"{', '.join(RUN_NAMES)}; of a deployed language model {', '.join(SERVED)}",
    )

    spread: Annotated[float, Field(ge=0, le=100)] | None = None
    """relative spread of repeats: interquartile range over median"""
    answer: Annotated[dict[MetricName, GivenEstimate], Field(max_length=len(NAMES))] | None = None
    """metric -> the answer about this run before it was measured; if absent, the answer at the time
    when the observation is stored"""

    def measured(self) -> dict[str, float]:
        """The metrics that have a value."""
        return {name: value for name, value in self.metrics.items() if value is not None}


class MeasurementsIn(Described):
    """A few measurements of one device."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_ROWS]})

    measurements: list[MeasuredRow] = Field(min_length=1, max_length=MOST_ROWS)
    """the measurements, up to 1,000"""
    source: Source = "adapt"
    """adapt: answers change with these measurements; observe: they are stored and compared with the
    answers, which never change"""


def names_of(rows: Sequence[object]) -> tuple[str, ...]:
    """Names by which messages refer to rows of a list; the first is `measurements.0`."""
    return tuple(f"measurements.{index}" for index in range(len(rows)))


def queries_of(
    rows: Sequence[MeasuredRow],
    device: Device,
    graph_named: Callable[[str], OperatorGraph],
    names: Sequence[str] | None = None,
) -> list[Query]:
    """The queries of n measured rows.

    Args:
        rows: the measurements.
        device: the device on which they were measured.
        graph_named: digest -> graph.
        names: a name per row for messages; `names_of` when None.

    Raises:
        UnknownGraph, UnreadableModel: the graph of a row is not known or not valid; the message
            names the row.
        BadRequest: a deployed language model names no degree of tensor parallelism.
    """
    queries = []
    for position, (row, called) in enumerate(zip(rows, names or names_of(rows), strict=True)):
        with in_field("measurements", position, "workload"):
            if isinstance(row.workload, LlmDeploymentIn):
                served = row.workload.deployment()
                operation = Operation(served.devices)
                queries.append(Query(served, device, row.software, operation))
                continue
            try:
                workload = workload_of(row.workload, graph_named, f"{called}.workload")
            except UnknownGraph as error:
                error.args = (f"{called}: {error}",)
                raise
        queries.append(Query(workload, device, row.software))
    return queries


def as_measurements(rows: Sequence[MeasuredRow], queries: Sequence[Query]) -> Measurements:
    """The rows as columns by metric; missing power is energy over time where both were measured."""
    values = {name: np.full(len(rows), np.nan) for name in NAMES}
    for index, row in enumerate(rows):
        for name, value in row.measured().items():
            values[name][index] = value
    power = values["energy_j"] / values["latency_ms"] * 1e3
    values["power_w"] = np.where(np.isnan(values["power_w"]), power, values["power_w"])
    devices = np.array([query.device.name for query in queries], dtype=np.str_)
    spreads = np.array([row.spread or 0.0 for row in rows], dtype=np.float64)
    weights = noise_weights(spreads) if spreads.any() else None
    return Measurements(list(queries), values, {"device": devices}, weights)


def check_values(rows: Sequence[MeasuredRow], names: Sequence[str] | None = None) -> None:
    """Refuse values that no run can produce.

    Raises:
        UnknownMetric: a metric does not exist.
        BadMeasurement: a value is out of range, or a row has none. The message names the row.
    """
    for position, (row, called) in enumerate(zip(rows, names or names_of(rows), strict=True)):
        with in_field("measurements", position, "metrics"):
            _check_row(row, called)
        with in_field("measurements", position, "answer"):
            _check_names(row.answer or (), row, f"{called}.answer")


def _check_row(row: MeasuredRow, called: str) -> None:
    names = _check_names(row.metrics, row, f"{called}.metrics")
    for name, value in row.measured().items():
        with in_field(name):
            _check_value(f"{called}.metrics.{name}", name, value)
    if not row.measured():
        raise BadMeasurement(f"{called}: nothing was measured; give one of {', '.join(names)}.")


def _check_names(given: Iterable[str], row: MeasuredRow, where: str) -> tuple[str, ...]:
    """Check that the workload of a row has metrics of these names, and return all it can have."""
    names = SERVED if isinstance(row.workload, LlmDeploymentIn) else RUN_NAMES
    for name in given:
        if name not in names:
            with in_field(name):
                raise UnknownMetric(name, names, f"{where}: ")
    return names


def _check_value(where: str, name: str, value: float) -> None:
    if name == "utilisation":
        if not 0 <= value <= 1:
            raise BadMeasurement(f"{where} is {value:g}; it must be from 0 to 1.")
    elif not SMALLEST <= value <= LARGEST:
        unit = metric(name).unit
        raise BadMeasurement(
            f"{where} is {value:g} {unit}; it must be above 0, from {SMALLEST:g} to {LARGEST:g}; "
            "check the unit."
        )


def expected(
    measured: Measurements, predictor: Predictor, names: Sequence[str] | None = None
) -> Predictions:
    """Predict all rows, and check that the predictor can learn from each of them.

    Args:
        measured: n rows.
        predictor: the predictor without adaptation to these rows.
        names: a name per row for messages; `names_of` when None.

    Returns:
        The predictions of the n rows.

    Raises:
        UnknownBandwidth: the device has no spec sheet.
        UnanswerableQuery: no predictor answers a row; the message names the row.
        BadMeasurement: a row has only metrics that are not predicted, or a value differs from its
            prediction by a factor of `FARTHEST_OFF` or more.
    """
    called = names or names_of(measured.queries)
    for index, (name, query) in enumerate(zip(called, measured.queries, strict=True)):
        if not query.device.has_sheet:
            raise UnknownBandwidth(query.device.name)
        if not predictor.answers(query):
            with in_field("measurements", index, "workload"):
                raise UnanswerableQuery(
                    f"{name}: no predictor answers a {_described(query)} on {query.device.name}, "
                    "so nothing can learn from it."
                )
    with np.errstate(all="ignore"):
        predictions = predictor.predict(measured.queries)
    for index, name in enumerate(called):
        with in_field("measurements", index, "metrics"):
            _check_informative(name, index, measured.values, predictions)
    return predictions


def check_near(where: str, name: str, measured: float, answer: float) -> None:
    """Refuse a value that is so far from its answer that it must be of another unit.

    Args:
        where: name of the value in the message.
        name: name of the metric.
        measured: measured value, in the unit of the metric.
        answer: what is answered.

    Raises:
        BadMeasurement: the ratio of both is `FARTHEST_OFF` or more, or its inverse.
    """
    if not isfinite(answer) or not 1 / FARTHEST_OFF < measured / answer < FARTHEST_OFF:
        unit = metric(name).unit
        raise BadMeasurement(
            f"{where} is {measured:.4g} {unit} where {answer:.4g} is expected; check the unit and "
            "the workload."
        )


def _described(query: Query) -> str:
    if isinstance(query.workload, LlmDeployment):
        return "deployed language model"
    return f"{query.workload.kind} in {phase_of(query.run)} at {query.run.precision}"


def _check_informative(
    called: str, index: int, values: Mapping[str, Any], predictions: Predictions
) -> None:
    """Check that a predictor can learn from one row."""
    informative = 0
    for name, column in predictions.values.items():
        if name not in values:
            continue
        measured, answer = float(values[name][index]), float(column[index])
        if np.isnan(measured) or np.isnan(answer):
            continue
        check_near(f"{called}.metrics.{name}", name, measured, answer)
        informative += name not in UNINFORMATIVE_ALONE
    if not informative:
        given = ", ".join(name for name in values if not np.isnan(values[name][index]))
        learnt = [
            name
            for name, column in predictions.values.items()
            if column[index] > 0 and name not in UNINFORMATIVE_ALONE
        ]
        raise BadMeasurement(
            f"{called}: nothing learns from {given} alone; give {' or '.join(learnt)}."
        )
