"""Predictions of measured rows as they are answered, for the errors of an adaptation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.answers.deployments.times import MEASURED_TIMES, under_load
from forerun.models.answers.in_use import InUse
from forerun.models.artifact.loading import LoadedPredictor
from forerun.models.prediction import Estimate, Prediction, Predictions
from forerun.models.predictor import Predictor
from forerun.service.adaptation.held_out import Predicts

KIND = "llm_deployment"


def as_answered(loaded: LoadedPredictor) -> Predicts:
    """Predicts rows as they are answered: times of deployments by all predictors that have a part.

    Args:
        loaded: the predictor without adaptation, whose training record says what was measured.
    """

    def predicts(
        predictor: Predictor, queries: Sequence[Query], adapted: Measurements | None
    ) -> Predictions:
        plain = predictor.predict(queries)
        rows = [row for row, query in enumerate(queries) if query.workload.kind == KIND]
        if not rows:
            return plain
        in_use = InUse(replace(loaded, predictor=predictor), *_measured(adapted))
        found = under_load([queries[row] for row in rows], in_use)
        times = {row: load.time for row, load in zip(rows, found, strict=True)}
        known = {row: time for row, time in times.items() if isinstance(time, Prediction)}
        sides = (
            {name: _with(column, name, end, known) for name, column in getattr(plain, side).items()}
            for side, end in (("values", "value"), ("low", "low"), ("high", "high"))
        )
        values, low, high = sides
        return replace(plain, values=values, low=low, high=high)

    return predicts


def _with(column: Column, name: str, end: str, known: Mapping[int, Prediction]) -> Column:
    """A column of a metric with the estimates of some rows; NaN where there is none."""
    changed = np.array(column)
    for row, time in known.items():
        estimate: Estimate | None = time.estimates.get(name)
        number = None if estimate is None else getattr(estimate, end)
        changed[row] = np.nan if number is None else number
    return changed


def _measured(
    adapted: Measurements | None,
) -> tuple[dict[Device, int], dict[Device, dict[str, frozenset[str]]]]:
    """Device -> number of rows, and metric -> what it was measured of, of rows of deployments."""
    queries = [] if adapted is None else adapted.queries
    devices = [query.device for query in queries if query.workload.kind == KIND]
    kinds = {name: frozenset({KIND}) for name in MEASURED_TIMES}
    return {one: devices.count(one) for one in devices}, dict.fromkeys(devices, kinds)
