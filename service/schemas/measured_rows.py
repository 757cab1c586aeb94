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
from forerun.data.quality import noise_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.service.schemas.prediction import EXAMPLE_KERNEL, LONGEST_NAME, WorkloadIn
from forerun.service.schemas.workloads import workload_of

NAMES = tuple(known.name for known in METRICS)
MOST_ROWS = 1_000
FARTHEST_OFF = 300.0
"""Measured over expected, or the reverse, from which on a row is taken for one in another unit."""

TELLS_NOTHING = ("energy_j",)
"""Alone, without time or power; answers of energy follow from these."""

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

    spread: float | None = Field(
        default=None, ge=0, le=100, description="of repeats: interquartile range over median"
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


def names_of(rows: Sequence[object]) -> tuple[str, ...]:
    """What messages call rows that came in a list; the first is `measurements.0`."""
    return tuple(f"measurements.{place}" for place in range(len(rows)))


def queries_of(
    rows: Sequence[MeasuredRow],
    device: Device,
    graph_named: Callable[[str], OperatorGraph],
    names: Sequence[str] | None = None,
) -> list[Query]:
    """The questions that the rows answer.

    Args:
        rows: what was measured.
        device: that it was measured on.
        graph_named: digest -> graph.
        names: what messages call the rows.

    Raises:
        UnknownGraph, UnreadableModel: names the row.
    """
    queries = []
    for row, called in zip(rows, names or names_of(rows), strict=True):
        try:
            workload = workload_of(row.workload, graph_named, f"{called}.workload")
        except UnknownGraph as error:
            error.args = (f"{called}: {error}",)
            raise
        queries.append(Query(workload, device, row.software))
    return queries


def as_measurements(rows: Sequence[MeasuredRow], queries: Sequence[Query]) -> Measurements:
    """Columns of all metrics; power where only energy and time were measured follows from them."""
    values = {name: np.full(len(rows), np.nan) for name in NAMES}
    for place, row in enumerate(rows):
        for name, value in row.measured().items():
            values[name][place] = value
    power = values["energy_j"] / values["latency_ms"] * 1e3
    values["power_w"] = np.where(np.isnan(values["power_w"]), power, values["power_w"])
    devices = np.array([query.device.name for query in queries], dtype=np.str_)
    spread = np.array([row.spread or 0.0 for row in rows], dtype=np.float64)
    weights = noise_weights(spread) if spread.any() else None
    return Measurements(list(queries), values, {"device": devices}, weights)


def check_values(rows: Sequence[MeasuredRow], names: Sequence[str] | None = None) -> None:
    """Refuse what no run can have given.

    Raises:
        UnknownMetric, BadMeasurement: names the row.
    """
    for row, called in zip(rows, names or names_of(rows), strict=True):
        for name, value in row.metrics.items():
            if name not in NAMES:
                raise UnknownMetric(name, NAMES, f"{called}.metrics: ")
            if value is not None:
                _check_value(f"{called}.metrics.{name}", name, value)
        if not row.measured():
            raise BadMeasurement(f"{called}: nothing was measured; give one of {', '.join(NAMES)}.")


def _check_value(where: str, name: str, value: float) -> None:
    if name == "utilisation" and 0 <= value <= 1:
        return
    if name == "utilisation":
        raise BadMeasurement(f"{where} is {value:g}; it must be from 0 to 1.")
    if not isfinite(value) or value <= 0:
        unit = metric(name).unit
        raise BadMeasurement(f"{where} is {value:g} {unit}; it must be above 0 and finite.")


def expected(
    measured: Measurements, predictor: Predictor, names: Sequence[str] | None = None
) -> Predictions:
    """What the predictor says of the rows, once each is found to be something to learn from.

    Raises:
        UnknownBandwidth: the device has no sheet.
        UnanswerableQuery: no predictor answers a row; it is named.
        BadMeasurement: a row measures only what nothing predicts, or is off by `FARTHEST_OFF`.
    """
    called = names or names_of(measured.queries)
    for name, query in zip(called, measured.queries, strict=True):
        if not query.has_bound:
            raise UnknownBandwidth(query.device.name)
        if not predictor.answers(query):
            phase = getattr(query.workload, "phase", "inference")
            raise UnanswerableQuery(
                f"{name}: no predictor answers a {query.workload.kind} in {phase} "
                f"at {query.run.precision} on {query.device.name}, so nothing can learn from it."
            )
    with np.errstate(all="ignore"):
        said = predictor.predict(measured.queries)
    for place, name in enumerate(called):
        _check_teaches(name, place, measured.values, said)
    return said


def _check_teaches(called: str, place: int, values: Mapping[str, Any], said: Predictions) -> None:
    taught = 0
    for name, column in said.values.items():
        if name not in values:
            continue
        measured, answer = float(values[name][place]), float(column[place])
        if np.isnan(measured) or np.isnan(answer):
            continue
        if not isfinite(answer) or not 1 / FARTHEST_OFF < measured / answer < FARTHEST_OFF:
            unit = metric(name).unit
            raise BadMeasurement(
                f"{called}.metrics.{name} is {measured:.4g} {unit} where {answer:.4g} is expected; "
                "check the unit and the workload."
            )
        taught += name not in TELLS_NOTHING
    if not taught:
        given = ", ".join(name for name in values if not np.isnan(values[name][place]))
        learnt = [n for n, c in said.values.items() if c[place] > 0 and n not in TELLS_NOTHING]
        raise BadMeasurement(
            f"{called}: nothing learns from {given} alone; give {' or '.join(learnt)}."
        )
