"""Measurements as users give them: each row a workload, the software, and what was measured."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from forerun.data.device import Device
from forerun.data.errors import (
    InputError,
    UnanswerableQuery,
    UnknownBandwidth,
    UnknownGraph,
    UnknownMetric,
)
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.metrics import METRICS, metric
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.service.schemas import EXAMPLE_KERNEL, LONGEST_NAME, WorkloadIn
from forerun.service.workloads import workload_of

NAMES = tuple(known.name for known in METRICS)
MOST_ROWS = 1_000
FARTHEST_OFF = 1e4
"""Measured over expected, or the reverse, from which on a row is taken for one in another unit."""

EXAMPLE_ROWS: dict[str, Any] = {
    "measurements": [
        {"workload": EXAMPLE_KERNEL, "metrics": {"latency_ms": 0.31}},
        {"workload": EXAMPLE_KERNEL | {"precision": "fp16"}, "metrics": {"latency_ms": 0.052}},
    ]
}
MetricName = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]


class BadMeasurement(InputError):
    """A measurement cannot be what it says, or teaches nothing."""

    slug = "bad-measurement"


class MeasuredRow(BaseModel):
    """What one run of a workload took."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: WorkloadIn = Field(description="what was run")
    software: Software = Field(default_factory=Software, description="how it was run")
    metrics: dict[MetricName, float | None] = Field(
        max_length=len(METRICS),
        description=f"metric -> measured value in its unit, null where not: {', '.join(NAMES)}",
    )

    def measured(self) -> dict[str, float]:
        """The metrics that have a value."""
        return {name: value for name, value in self.metrics.items() if value is not None}


class MeasurementsIn(BaseModel):
    """A few measurements of one device."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_ROWS]})

    measurements: list[MeasuredRow] = Field(
        min_length=1, max_length=MOST_ROWS, description="up to 1,000 runs"
    )


def queries_of(
    rows: Sequence[MeasuredRow], device: Device, graph_named: Callable[[str], OperatorGraph]
) -> list[Query]:
    """The questions that the rows answer.

    Raises:
        UnknownGraph, UnreadableModel: names the row, the first is `measurements.0`.
    """
    return [
        Query(workload_of(row.workload, _telling(place, graph_named), at), device, row.software)
        for place, row in enumerate(rows)
        for at in (f"measurements.{place}.workload",)
    ]


def _telling(
    place: int, graph_named: Callable[[str], OperatorGraph]
) -> Callable[[str], OperatorGraph]:
    def named(digest: str) -> OperatorGraph:
        try:
            return graph_named(digest)
        except UnknownGraph as error:
            error.args = (f"measurements.{place}: {error}",)
            raise

    return named


def as_measurements(rows: Sequence[MeasuredRow], queries: Sequence[Query]) -> Measurements:
    """Columns of all metrics; power where only energy and time were measured follows from them."""
    values = {name: np.full(len(rows), np.nan) for name in NAMES}
    for place, row in enumerate(rows):
        for name, value in row.measured().items():
            values[name][place] = value
    power = values["energy_j"] / values["latency_ms"] * 1e3
    values["power_w"] = np.where(np.isnan(values["power_w"]), power, values["power_w"])
    devices = np.array([query.device.name for query in queries], dtype=np.str_)
    return Measurements(list(queries), values, {"device": devices})


def check_values(rows: Sequence[MeasuredRow]) -> None:
    """Refuse what no run can have given.

    Raises:
        UnknownMetric, BadMeasurement: names the row, the first is `measurements.0`.
    """
    for place, row in enumerate(rows):
        for name, value in row.metrics.items():
            if name not in NAMES:
                raise UnknownMetric(name, NAMES, f"measurements.{place}.metrics: ")
            if value is not None:
                _check_value(f"measurements.{place}.metrics.{name}", name, value)
        if not row.measured():
            raise BadMeasurement(
                f"measurements.{place}: nothing was measured; give one of {', '.join(NAMES)}."
            )


def _check_value(where: str, name: str, value: float) -> None:
    if name == "utilisation" and 0 <= value <= 1:
        return
    if name == "utilisation":
        raise BadMeasurement(f"{where} is {value:g}; it must be from 0 to 1.")
    if not isfinite(value) or value <= 0:
        unit = metric(name).unit
        raise BadMeasurement(f"{where} is {value:g} {unit}; it must be above 0 and finite.")


def expected(measured: Measurements, predictor: Predictor) -> Predictions:
    """What the predictor says of the rows, once each is found to be something to learn from.

    Raises:
        UnknownBandwidth: the device has no sheet.
        UnanswerableQuery: no predictor answers a row; it is named.
        BadMeasurement: a row measures only what nothing predicts, or is off by `FARTHEST_OFF`.
    """
    for place, query in enumerate(measured.queries):
        if not query.has_bound:
            raise UnknownBandwidth(query.device.name)
        if not predictor.answers(query):
            phase = getattr(query.workload, "phase", "inference")
            raise UnanswerableQuery(
                f"measurements.{place}: no predictor answers a {query.workload.kind} in {phase} "
                f"at {query.run.precision} on {query.device.name}, so nothing can learn from it."
            )
    with np.errstate(all="ignore"):
        said = predictor.predict(measured.queries)
    for place in range(len(measured)):
        _check_teaches(place, measured.values, said)
    return said


def _check_teaches(place: int, values: Mapping[str, Any], said: Predictions) -> None:
    taught = 0
    for name, column in said.values.items():
        measured, answer = float(values[name][place]), float(column[place])
        if np.isnan(measured) or np.isnan(answer):
            continue
        where = f"measurements.{place}.metrics.{name}"
        if not isfinite(answer) or not 1 / FARTHEST_OFF < measured / answer < FARTHEST_OFF:
            unit = metric(name).unit
            raise BadMeasurement(
                f"{where} is {measured:.4g} {unit} where {answer:.4g} is expected; check the unit "
                "and the workload."
            )
        taught += name != "energy_j"
    if not taught:
        given = ", ".join(name for name in values if not np.isnan(values[name][place]))
        learnt = ", ".join(n for n, c in said.values.items() if c[place] > 0 and n != "energy_j")
        raise BadMeasurement(
            f"measurements.{place}: nothing learns from {given} alone; give {learnt or 'a metric'}."
        )
