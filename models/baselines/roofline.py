"""The roofline bound (Williams et al. 2009) as a predictor without parameters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import MOST_TOGETHER, query_table
from forerun.features.operators.roofline import rooflines_ms
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.prediction import Predictions


@dataclass(frozen=True)
class Roofline(StoredPredictor):
    """Latency as a sum over operators of the longer of arithmetic and memory traffic at peak."""

    name: ClassVar[str] = "roofline"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Operators and networks on a device with a spec sheet."""
        return query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """The same predictor, as there are no parameters."""
        return self

    def adapt(self, measurements: Measurements) -> Self:
        """The same predictor, as there are no parameters."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The bound of each query, with its breakdown by operator class.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        values = np.zeros(len(queries))
        breakdowns: list[Mapping[str, float]] = [{}] * len(queries)
        torch = [query.software.framework == "torch" for query in queries]
        alike = groups_of((id(q.run), own) for q, own in zip(queries, torch, strict=True))
        for (_, own), rows in alike.items():
            devices = [queries[row].device for row in rows]
            bounds = _by_class_ms(queries[rows[0]].run, devices, tf32_convolutions=own)
            for row, by_class in zip(rows, bounds, strict=True):
                breakdowns[row] = by_class
                values[row] = sum(by_class.values())
        return Predictions({"latency_ms": values}, breakdowns_ms=breakdowns)


def _by_class_ms(
    run: OperatorWorkload, devices: Sequence[Device], *, tf32_convolutions: bool
) -> Iterator[Mapping[str, float]]:
    """Operator class -> roofline time of a run in milliseconds, on each device.

    Only classes that occur in the run.
    """
    table = query_table(run)
    present = np.flatnonzero(np.bincount(table.op_class)).tolist()
    step = max(1, MOST_TOGETHER // max(1, len(table)))
    for first in range(0, len(devices), step):
        some = devices[first : first + step]
        for times in rooflines_ms(table, some, run.precision, tf32_convolutions):
            sums = np.bincount(table.op_class, times * table.repeat, len(OPERATOR_CLASSES))
            yield {OPERATOR_CLASSES[code]: float(sums[code]) for code in present}
