"""Predicts times, rates and power of deployed language models under load.

Closed loops come from the predictor of times, within what the devices allow (`bounds`). Other loads
and the capacity are derived from them (`arrivals`).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.level import USUAL
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import (
    alike_at_any_load,
    at_any_load,
    of_one_worker,
)
from forerun.models.answers.assumed import answered
from forerun.models.answers.deployments.arrivals import (
    RATE,
    RATES,
    LoadCurve,
    as_served,
    closed_loops,
    in_closed_loop,
    places,
    with_engine,
    with_usual_places,
    without_place,
)
from forerun.models.answers.deployments.bounds import within_sheets
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.deployments.power import powers
from forerun.models.answers.interval_level import at_level
from forerun.models.answers.served_models import InUse
from forerun.models.catalog import unfitted
from forerun.models.limit import Limit
from forerun.models.llm_serving.iteration_table import TimeColumns
from forerun.models.prediction import Estimate, Prediction, PredictionColumns, Predictions
from forerun.models.predictor import Predictor

MEASURED_TIMES: Final = frozenset({"ttft_ms", "tpot_ms"})
NOT_FITTED: Final = Limit("times follow from the spec sheet in closed form, not from measured runs")
TOTALS: Final = (RATE, "tokens_per_s")
"""Rates that add up over workers."""

Outcome = Prediction | InputError
Timed = tuple[TimeColumns, dict[int, InputError]]
"""Times of n deployments, and position -> the error that prevents an answer."""


class UnderLoad(NamedTuple):
    """Predictions for a deployment with its load.

    Attributes:
        time: its times and rates, or the error that prevents an answer.
        power: the power of one of its devices; None where no predictor answers it.
        capacity: largest arrival rate that it sustains, requests per second; None if unknown, and
            in a closed loop where every request has a slot.
    """

    time: Outcome
    power: Prediction | None
    capacity: Estimate | None = None


class _Timed(NamedTuple):
    """Times of a deployment with its load.

    Attributes:
        query: the deployment with the requests that it serves concurrently.
        time: its times and rates.
        capacity: as in `UnderLoad`.
    """

    query: Query
    time: Prediction
    capacity: Estimate | None = None


class Loops:
    """Closed loops of one deployment, from which its other loads are derived.

    Args:
        loops: closed loops of one deployment.
        times: their times, with intervals of the usual level.
    """

    def __init__(self, loops: Sequence[Query], times: TimeColumns) -> None:
        self.loops, self._times = loops, times
        self._curves: dict[tuple[float, float], LoadCurve] = {}

    def curve(self, level: float, every: float) -> LoadCurve:
        """The times with intervals of a level, up to a number of slots."""
        if (level, every) not in self._curves:
            times = self._times
            if level != USUAL:
                loops = [replace(loop, level=level) for loop in self.loops]
                leveled = map(_leveled, times.predictions(), loops)
                times = TimeColumns.of_predictions([*leveled])
            self._curves[level, every] = LoadCurve.of(self.loops, times).up_to(every)
        return self._curves[level, every]

    def full(self, every: float, level: float = USUAL) -> Prediction:
        """The times with every slot filled."""
        loop, limits = in_closed_loop(self.loops[-1], every), self._times.limits[-1:]
        return self.curve(level, every).closed([loop], limits).prediction(0)


def under_load(
    queries: Sequence[Query],
    in_use: InUse,
    kept: dict[tuple[Hashable, ...], Loops] | None = None,
    *,
    with_power: bool = True,
) -> list[UnderLoad]:
    """Times, power and capacity of n deployments.

    Args:
        queries: the deployments.
        in_use: the predictor in use.
        kept: cache of closed loops by `at_any_load`; loops that it lacks are predicted and added.
        with_power: whether to predict the power.
    """
    ones = [of_one_worker(query) for query in queries]
    members = _alike(ones)
    kept = {} if kept is None else kept
    usual = {key: with_usual_places(ones[rows[0]]) for key, rows in members.items()}
    shared = {key: at_any_load(worker) for key, worker in usual.items()}
    every = {key: places(ones[rows[0]]) for key, rows in members.items()}
    new = {shared[k]: closed_loops(worker) for k, worker in usual.items() if shared[k] not in kept}
    asked, alone = [*ones], [*ones]
    for key, row in ((key, row) for key, rows in members.items() for row in rows):
        asked[row] = _served(ones[row], every[key])
        alone[row] = with_engine(asked[row], usual[key].deployment.engine)
    loops = [loop for group in new.values() for loop in group]
    times, errors = predicted_times([*alone, *loops], in_use)
    rows = [row for row in range(len(ones)) if row not in errors]
    found = times.take(np.array(rows, dtype=np.intp)).predictions()
    timed = {
        row: _Timed(asked[row], _leveled(_arriving(time, ones[row]), queries[row]))
        for row, time in zip(rows, found, strict=True)
    }
    keys, of_new = list(new), [*new.values()]
    for place, own_times in _times_of_loops(of_new, len(ones), times, errors, in_use).items():
        kept[keys[place]] = Loops(of_new[place], own_times)
    for key in [key for key in members if shared[key] in kept]:
        timed_rows = [row for row in members[key] if row in timed]
        alike, known = [ones[row] for row in timed_rows], [timed[row] for row in timed_rows]
        timed |= zip(
            timed_rows, _on_curve(kept[shared[key]], every[key], alike, known), strict=True
        )
    columns = TimeColumns.of_predictions([timed[row].time for row in rows])
    possible = _possible([timed[row].query for row in rows], columns, in_use).predictions()
    power: Sequence[Prediction | None] = [None] * len(rows)
    if with_power:
        power = powers([timed[row].query for row in rows], possible, in_use.loaded.predictor)
    loads = {row: UnderLoad(error, None) for row, error in errors.items()}
    for row, time, watts in zip(rows, possible, power, strict=True):
        watts = None if watts is None else _leveled(watts, queries[row])
        loads[row] = UnderLoad(time, watts, timed[row].capacity)
    return [_of_all(*pair, loads[row]) for row, pair in enumerate(zip(queries, ones, strict=True))]


def _alike(ones: Sequence[Query]) -> dict[tuple[Hashable, ...], list[int]]:
    """`at_any_load` -> positions of the answerable deployments that share it."""
    known = [row for row, worker in enumerate(ones)
             if worker.device.kind == "cpu" or closed_form().answers(worker)]  # fmt: skip
    alike = groups_of(at_any_load(ones[row]) for row in known)
    return {key: [known[place] for place in same] for key, same in alike.items()}


def _arrives_on_cpu(query: Query) -> bool:
    """Whether requests arrive at a rate on a CPU, whose predictor covers closed loops only."""
    return query.device.kind == "cpu" and query.deployment.load.concurrency is None


def _served(query: Query, every: float) -> Query:
    """The load to predict directly: a closed loop limited to the slots."""
    return in_closed_loop(query, 1.0) if _arrives_on_cpu(query) else as_served(query, every)


def _arriving(time: Prediction, query: Query) -> Prediction:
    """Times of a lone request on a CPU, with rates equal to the arrivals."""
    if not _arrives_on_cpu(query):
        return time
    load = query.deployment.load
    per_s = (load.requests_per_s or 0.0) / time.estimates[RATE].value
    rates = {name: time.estimates[name] for name in RATES if name in time.estimates}
    known = {
        name: Estimate(*(per_s * estimate.value,) * 3, estimate.coverage)
        for name, estimate in rates.items()
    }
    return replace(time, estimates={**time.estimates, **known})


def _leveled(found: Prediction, query: Query) -> Prediction:
    """The prediction with intervals of the query's level."""
    return replace(found, estimates=at_level(found.estimates, query))


def _on_curve(
    loops: Loops, every: float, asked: Sequence[Query], known: Sequence[_Timed]
) -> Iterator[_Timed]:
    """Times of deployments that differ only in load and level.

    Args:
        loops: closed loops of the deployment.
        every: its number of slots.
        asked: n deployments.
        known: the predictor's times of each, with intervals of its level.
    """
    capacity = loops.full(every).estimates.get(RATE)
    closed = [
        at for at, worker in enumerate(asked) if worker.deployment.load.concurrency is not None
    ]
    read: dict[int, Prediction] = {}
    for level, positions in groups_of(asked[at].level for at in closed).items():
        rows = [closed[place] for place in positions]
        limits = [(*without_place(asked[at], every), *known[at].time.limits) for at in rows]
        curve = loops.curve(level, every)
        found = curve.closed([asked[at] for at in rows], limits).predictions()
        read |= zip(rows, found, strict=True)
    for at, (worker, timed) in enumerate(zip(asked, known, strict=True)):
        rate = worker.deployment.load.requests_per_s
        if at in read:
            yield _Timed(timed.query, read[at], capacity if without_place(worker, every) else None)
        elif rate is None or capacity is None:
            yield timed
        elif rate >= (capacity.high or capacity.value):  # no deployment of it keeps up
            yield _Timed(in_closed_loop(worker, every), loops.full(every, worker.level), capacity)
        else:
            curve = loops.curve(worker.level, every)
            yield _Timed(worker, curve.at_arrivals(timed.time, capacity), capacity)


def _times_of_loops(
    loops: Sequence[Sequence[Query]],
    first: int,
    times: TimeColumns,
    errors: Mapping[int, InputError],
    in_use: InUse,
) -> dict[int, TimeColumns]:
    """The times of the closed loops of each deployment for which all loops can be answered.

    Args:
        loops: closed loops of each deployment.
        first: position of the first loop; the loops of all deployments follow one another.
        times: times at these positions.
        errors: position -> the error that prevents an answer.
        in_use: the predictor in use.
    """
    starts = first + np.cumsum([0, *map(len, loops)])
    able = [
        place
        for place, (start, end) in enumerate(pairwise(starts.tolist()))
        if errors.keys().isdisjoint(range(start, end))
    ]
    every = [loop for place in able for loop in loops[place]]
    rows = [row for place in able for row in range(starts[place], starts[place + 1])]
    possible = _possible(every, times.take(np.array(rows, dtype=np.intp)), in_use)
    found, end = {}, 0
    for place in able:
        start, end = end, end + len(loops[place])
        found[place] = possible.take(slice(start, end))
    return found


def _possible(queries: Sequence[Query], times: TimeColumns, in_use: InUse) -> TimeColumns:
    """The times of n deployments within what their devices allow."""
    # The least times of `within_sheets` are for GPUs; CPUs have large caches.
    rows = [row for row, query in enumerate(queries) if query.device.kind != "cpu"]
    on_gpus = [queries[row] for row in rows]
    measured = [measured_by_user(query.device, in_use) for query in on_gpus]
    found = within_sheets(on_gpus, times.take(np.array(rows, dtype=np.intp)), measured)
    estimates = {name: column.copy() for name, column in times.estimates.items()}
    for name, column in estimates.items():
        column[rows] = found.estimates[name]
    return replace(times, estimates=estimates)


def _of_all(query: Query, worker: Query, load: UnderLoad) -> UnderLoad:
    """The figures of a whole deployment from those of one of its workers."""
    workers = query.deployment.pool.workers / worker.deployment.pool.workers
    capacity = None if load.capacity is None else scaled(load.capacity, workers)
    if isinstance(load.time, InputError):
        return load._replace(capacity=capacity)
    estimates = {
        name: scaled(estimate, workers) if name in TOTALS else estimate
        for name, estimate in load.time.estimates.items()
    }
    return UnderLoad(replace(load.time, estimates=estimates), load.power, capacity)


def measured_by_user(device: Device, in_use: InUse) -> bool:
    """Whether the predictor of times was adapted to the user's runs on the device."""
    return not in_use.measured.get(device, {}).keys().isdisjoint(MEASURED_TIMES)


@cache
def closed_form() -> Predictor:
    """The analytical model: the predictor of times before fitting."""
    return unfitted("llm_latency")


def predicted_times(queries: Sequence[Query], in_use: InUse) -> Timed:
    """Times and rates of n deployments by the predictor of times, else by the analytical model.

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
        members = [queries[row] for row in rows]
        places, found, rejected = answered(predictor if fitted else closed_form(), members)
        errors |= {rows[place]: error for place, error in rejected.items()}
        if found is not None:
            parts.append(([rows[place] for place in places], found))
    others = (
        name
        for _, part in parts
        for name, values in part.values.items()
        if not np.isnan(values).all()
    )
    columns = PredictionColumns(len(queries), dict.fromkeys([*closed_form().metrics, *others]))
    for rows, part in parts:
        columns.put(rows, part)
    for row in (row for row, fitted in enumerate(able) if fitted is False):
        columns.limits[row] = (NOT_FITTED, *columns.limits[row])
    return TimeColumns.of(columns.predictions(), columns.values), errors


def _unanswerable(query: Query) -> InputError:
    device = query.device
    why = "its spec sheet lacks bandwidth, peaks or memory"
    if device.kind not in ("gpu", "cpu"):
        why = f"it is of kind {device.kind}, and only GPUs and processors are answered"
    return UnanswerableQuery(
        f"No predictor answers a deployed language model on {device.name}: {why}."
    )
