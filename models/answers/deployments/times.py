"""Times, rates and power of deployed language models under their load.

Rates and times are those of the predictor of times within what the devices allow (`bounds`). Where
requests arrive at a rate of their own, the capacity is known too, and times follow from those of
closed loops (`arrivals`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import (
    alike_at_any_load,
    at_any_load,
    of_one_worker,
)
from forerun.models.answers.assumed import answered
from forerun.models.answers.deployments.arrivals import (
    RATE,
    LoadCurve,
    as_served,
    beyond,
    beyond_memory,
    closed_loops,
    places,
    with_waiting,
)
from forerun.models.answers.deployments.bounds import within_sheets
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.deployments.power import powers
from forerun.models.answers.served_models import InUse
from forerun.models.catalog import unfitted
from forerun.models.limit import Limit
from forerun.models.llm_serving.iteration_table import TimeColumns
from forerun.models.prediction import Estimate, Prediction, PredictionColumns, Predictions
from forerun.models.predictor import Predictor

MEASURED_TIMES: Final = frozenset({"ttft_ms", "tpot_ms"})
NOT_FITTED: Final = Limit("times follow from the spec sheet in closed form, not from measured runs")
TOTALS: Final = (RATE, "tokens_per_s")
"""Rates of all workers together."""

Outcome = Prediction | InputError
Timed = tuple[TimeColumns, dict[int, InputError]]
"""Times of n deployments, and position -> the error that prevents an answer."""
_Curve = tuple[Sequence[Query], LoadCurve]
"""Closed loops of a deployment, and their times."""


class UnderLoad(NamedTuple):
    """A deployment under its load.

    Attributes:
        time: its times and rates, or the error that prevents an answer.
        power: the power of one of its devices; None where no predictor answers it.
        capacity: largest rate of arrivals that it keeps up with, requests a second; None where it
            is not known, and in a closed loop that has a place for each request.
    """

    time: Outcome
    power: Prediction | None
    capacity: Estimate | None = None


def under_load(queries: Sequence[Query], in_use: InUse) -> list[UnderLoad]:
    """Times, power and capacity of n deployments."""
    ones = [of_one_worker(query) for query in queries]
    known = [row for row, one in enumerate(ones) if closed_form().answers(one)]
    arrivals = [row for row in known if ones[row].deployment.load.concurrency is None]
    waiting = {row for row in known if beyond_memory(ones[row])}
    alike = groups_of(at_any_load(ones[row]) for row in arrivals)
    members = [[arrivals[place] for place in same] for same in alike.values()]
    loops = [closed_loops(ones[rows[0]], places(ones[rows[0]])) for rows in members]
    served = [as_served(one) if row in waiting else one for row, one in enumerate(ones)]
    times, errors = predicted_times([*served, *(loop for own in loops for loop in own)], in_use)
    loads = _alone(served, times, errors, in_use)
    for row in waiting:
        if not isinstance(own := loads[row].time, InputError):
            time = with_waiting(ones[row], own)
            loads[row] = loads[row]._replace(time=time, capacity=time.estimates[RATE])
    curves = _with_fastest(_with_closer(_curves(loops, len(ones), times, errors), in_use), in_use)
    later: dict[int, tuple[Query, Outcome]] = {
        row: (ones[row], loads[row].time) for row in arrivals
    }
    arriving: dict[int, Prediction] = {}
    for place, (curve, best, fastest) in curves.items():
        capacity = fastest.estimates[RATE]
        for row in members[place]:
            own, rate = loads[row].time, ones[row].deployment.load.requests_per_s
            if isinstance(own, InputError) or rate is None:
                continue
            loads[row] = loads[row]._replace(capacity=capacity)
            if beyond(rate, capacity):
                later[row] = best, fastest
            else:
                arriving[row] = curve.at_arrivals(own, capacity)
    rising = TimeColumns.of_predictions(list(arriving.values()))
    possible = _possible([ones[row] for row in arriving], rising, in_use)
    later |= {row: (ones[row], own) for row, own in zip(arriving, possible, strict=True)}
    asked, outcomes = [query for query, _ in later.values()], [own for _, own in later.values()]
    power = powers(asked, outcomes, in_use.loaded.predictor)
    for row, outcome, own_power in zip(later, outcomes, power, strict=True):
        loads[row] = loads[row]._replace(time=outcome, power=own_power)
    return [_of_all(*each) for each in zip(queries, ones, loads, strict=True)]


def _alone(
    ones: Sequence[Query], times: TimeColumns, errors: Mapping[int, InputError], in_use: InUse
) -> list[UnderLoad]:
    """Times of n deployments that their devices allow, and the power of closed loops.

    Args:
        ones: the deployments.
        times: times of these and of others.
        errors: position -> the error that prevents an answer.
        in_use: the predictor in use.
    """
    known = [row for row in range(len(ones)) if row not in errors]
    own = times.take(np.array(known, dtype=np.intp))
    found = _possible([ones[row] for row in known], own, in_use)
    outcomes: dict[int, Outcome] = {**errors, **dict(zip(known, found, strict=True))}
    closed = [row for row, one in enumerate(ones) if one.deployment.load.concurrency is not None]
    power = powers(
        [ones[row] for row in closed], [outcomes[row] for row in closed], in_use.loaded.predictor
    )
    served = dict(zip(closed, power, strict=True))
    return [UnderLoad(outcomes[row], served.get(row)) for row in range(len(ones))]


def _curves(
    loops: Sequence[Sequence[Query]],
    first: int,
    times: TimeColumns,
    errors: Mapping[int, InputError],
) -> dict[int, _Curve]:
    """Closed loops of each deployment and their times, where all can be answered.

    Args:
        loops: closed loops of each deployment.
        first: position of the first of all these loops, one deployment after the other.
        times: times at these positions.
        errors: position -> the error that prevents an answer.
    """
    found = {}
    for place, own in enumerate(loops):
        start, first = first, first + len(own)
        if errors.keys().isdisjoint(range(start, first)):
            found[place] = own, LoadCurve.of(own, times.take(slice(start, first)))
    return found


def _with_closer(curves: Mapping[int, _Curve], in_use: InUse) -> dict[int, _Curve]:
    """The curves of deployments with further closed loops near the greatest rate."""
    closer = {place: curve.closer(loops) for place, (loops, curve) in curves.items()}
    further = [loop for own in closer.values() for loop in own]
    if not further:
        return {**curves}
    times, errors = predicted_times(further, in_use)
    found: dict[int, _Curve] = {}
    end = 0
    for place, (loops, curve) in curves.items():
        start, end = end, end + len(closer[place])
        if not errors.keys().isdisjoint(range(start, end)):
            continue
        every = [*loops, *closer[place]]
        order = sorted(range(len(every)), key=lambda at: every[at].deployment.load.concurrency or 0)
        together = curve.times.followed_by(times.take(slice(start, end)))
        rising = [every[at] for at in order]
        found[place] = rising, LoadCurve.of(rising, together.take(np.array(order)))
    return found


def _with_fastest(
    curves: Mapping[int, _Curve], in_use: InUse
) -> dict[int, tuple[LoadCurve, Query, Prediction]]:
    """Curves of deployments, with the fastest closed loop of each and what its devices allow."""
    best = [loops[curve.best] for loops, curve in curves.values()]
    known = TimeColumns.of_rows([(curve.times, curve.best) for _, curve in curves.values()])
    timed = zip(curves.items(), best, _possible(best, known, in_use), strict=True)
    return {place: (curve, query, time) for (place, (_, curve)), query, time in timed}


def _possible(queries: Sequence[Query], times: TimeColumns, in_use: InUse) -> list[Prediction]:
    """The times of deployments within what their devices allow."""
    found: dict[int, Prediction] = {}
    # The least times of `within_sheets` are those of GPUs: processors have large caches.
    for is_cpu, rows in groups_of(query.device.kind == "cpu" for query in queries).items():
        asked, own = [queries[row] for row in rows], times.take(np.array(rows, dtype=np.intp))
        if not is_cpu:
            measured = [measured_by_user(query.device, in_use) for query in asked]
            own = within_sheets(asked, own, measured)
        found |= zip(rows, own.predictions(), strict=True)
    return [found[row] for row in range(len(queries))]


def _of_all(query: Query, one: Query, load: UnderLoad) -> UnderLoad:
    """What is known of a deployment from that of one of its workers."""
    workers = query.deployment.pool.workers / one.deployment.pool.workers
    capacity = None if load.capacity is None else scaled(load.capacity, workers)
    if isinstance(load.time, InputError):
        return load._replace(capacity=capacity)
    estimates = {
        name: scaled(own, workers) if name in TOTALS else own
        for name, own in load.time.estimates.items()
    }
    return UnderLoad(replace(load.time, estimates=estimates), load.power, capacity)


def measured_by_user(device: Device, in_use: InUse) -> bool:
    """Whether the predictor of times was adapted to runs on the device, which it then follows."""
    return not in_use.measured.get(device, {}).keys().isdisjoint(MEASURED_TIMES)


@cache
def closed_form() -> Predictor:
    """The predictor of times as it is before it is fitted."""
    return unfitted("llm_latency")


def predicted_times(queries: Sequence[Query], in_use: InUse) -> Timed:
    """Times and rates of n deployments by the predictor of times, or in closed form.

    Args:
        queries: the deployments, all of which are predicted together.
        in_use: the predictor in use.
    """
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
        f"No predictor answers a deployed language model on {name}: it takes a GPU or a processor "
        "with a spec sheet."
    )
