"""Times and rates of deployments by the predictor of times, as columns.

They are corrected where few requests are in flight (`few_requests`). Devices may not allow them
yet.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import alike_at_any_load
from forerun.models.answers.asking import answered
from forerun.models.answers.in_use import InUse
from forerun.models.catalog import unfitted
from forerun.models.limit import Limit
from forerun.models.llm_serving.time_columns import TimeColumns
from forerun.models.prediction import PredictionColumns, Predictions
from forerun.models.predictor import Predictor
from forerun.service.answers.llm.few_requests import (
    at_usual_lengths,
    weight,
    with_usual_corrections,
)

MEASURED_TIMES: Final = frozenset({"ttft_ms", "tpot_ms"})
NOT_FITTED: Final = Limit("times follow from the spec sheet in closed form, not from measured runs")

Timed = tuple[TimeColumns, dict[int, InputError]]
"""Times of n deployments, and position -> the error that prevents an answer."""


def predicted_times(queries: Sequence[Query], in_use: InUse) -> Timed:
    """Times and rates of n deployments.

    Args:
        queries: the deployments, all of which are predicted together.
        in_use: the predictor in use.
    """
    few = {row: at_usual_lengths(query) for row, query in enumerate(queries) if weight(query) > 0.0}
    every = [*queries, *dict.fromkeys(few.values())]
    times, errors = _by_predictor(every, in_use)
    place = {query: row for row, query in enumerate(every) if row >= len(queries)}
    usual = {row: place[query] for row, query in few.items()}
    known = {row: at for row, at in usual.items() if row not in errors and at not in errors}
    with np.errstate(all="ignore"):
        if known:
            asked = [*(queries[row] for row in known), *(every[at] for at in known.values())]
            forms = closed_form().predict(asked)
            times = with_usual_corrections(every, times, known, forms)
    return times.take(slice(len(queries))), errors


def measured_by_user(device: Device, in_use: InUse) -> bool:
    """Whether the predictor of times was adapted to runs on the device, which it then follows."""
    return not in_use.measured.get(device, {}).keys().isdisjoint(MEASURED_TIMES)


@cache
def closed_form() -> Predictor:
    """The predictor of times as it is before it is fitted."""
    return unfitted("llm_latency")


def _by_predictor(queries: Sequence[Query], in_use: InUse) -> Timed:
    """Times and rates of each deployment by the predictor of times, or in closed form."""
    predictor = in_use.loaded.predictor
    errors: dict[int, InputError] = {}
    able: list[bool | None] = [None] * len(queries)
    for rows in alike_at_any_load(queries).values():
        first = queries[rows[0]]
        known = predictor.answers(first)
        if known or closed_form().answers(first):
            for row in rows:
                able[row] = known
    parts: list[tuple[list[int], Predictions]] = []
    for fitted, rows in groups_of(able).items():
        if fitted is None:
            errors |= {row: _unanswerable(queries[row]) for row in rows}
            continue
        own = [queries[row] for row in rows]
        places, found, rejected = answered(predictor if fitted else closed_form(), own)
        errors |= {rows[place]: error for place, error in rejected.items()}
        if found is not None:
            parts.append(([rows[place] for place in places], found))
    others = (
        name for _, part in parts for name, own in part.values.items() if not np.isnan(own).all()
    )
    columns = PredictionColumns(len(queries), dict.fromkeys([*closed_form().metrics, *others]))
    for rows, part in parts:
        columns.put(rows, part)
    for row in (row for row, fitted in enumerate(able) if fitted is False):
        columns.limits[row] = (NOT_FITTED, *columns.limits[row])
    return TimeColumns.of(columns.predictions(), columns.values), errors


def _unanswerable(query: Query) -> InputError:
    name = query.device.name
    return UnanswerableQuery(
        f"No predictor answers a deployed language model on {name}: it takes a GPU with a spec "
        "sheet."
    )
