"""The roofline bound (Williams et al. 2009) as a predictor without parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import roofline_ms
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
        breakdowns = []
        for row, query in enumerate(queries):
            by_class = bound_by_class_ms(query)
            breakdowns.append(by_class)
            values[row] = sum(by_class.values())
        return Predictions({"latency_ms": values}, breakdowns_ms=breakdowns)


def bound_by_class_ms(query: Query) -> Mapping[str, float]:
    """Operator class -> roofline time in a query, milliseconds; only classes that occur in it."""
    table = query_table(query.run)
    times = (
        roofline_ms(table, query.device, query.run.precision, query.software.framework == "torch")
        * table.repeat
    )
    sums = np.bincount(table.op_class, weights=times, minlength=len(OPERATOR_CLASSES))
    present = np.flatnonzero(np.bincount(table.op_class))
    return {OPERATOR_CLASSES[code]: float(sums[code]) for code in present}
