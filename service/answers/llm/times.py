"""Times, rates and power of deployed language models under their load.

Rates and times are those of one predictor, agree with the rate of the predictor of power
(`agreement`), and lie within what the devices allow (`physical`). Where requests arrive at a rate
of their own, the capacity is known too, and times follow from those of closed loops (`load_curve`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import at_any_load, of_one_worker
from forerun.models.catalog import unfitted
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate, Prediction
from forerun.models.predictor import Predictor
from forerun.service.adaptation.in_use import InUse
from forerun.service.answers.llm.agreement import agreed
from forerun.service.answers.llm.arrivals import (
    RATE,
    may_wait_for_a_place,
    places,
    within_capacity,
)
from forerun.service.answers.llm.costs import scaled
from forerun.service.answers.llm.few_requests import (
    at_usual_lengths,
    weight,
    with_usual_correction,
)
from forerun.service.answers.llm.load_curve import LoadCurve, closed_loops
from forerun.service.answers.llm.physical import within_sheets
from forerun.service.answers.llm.power import powers, served_rates
from forerun.service.answers.serving import predicted

MEASURED_TIMES: Final = frozenset({"ttft_ms", "tpot_ms"})
NOT_FITTED: Final = Limit("times follow from the spec sheet in closed form, not from measured runs")

TOTALS: Final = (RATE, "tokens_per_s")
"""Rates of all workers together."""

Outcome = Prediction | InputError
_Timed = tuple[Query, Prediction]


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
    answered = _closed_form()
    bound = [row for row, q in enumerate(ones) if answered.answers(q) and may_wait_for_a_place(q)]
    alike = groups_of(at_any_load(ones[row]) for row in bound)
    members = [[bound[place] for place in same] for same in alike.values()]
    loops = [closed_loops(ones[rows[0]], places(ones[rows[0]])) for rows in members]
    loads, of_loops = _times_and_power(ones, [loop for own in loops for loop in own], in_use)
    curves = _with_ends(*_with_closer(loops, of_loops, in_use), in_use)
    later: dict[int, tuple[Query, Outcome]] = {
        row: (one, loads[row].time)
        for row, one in enumerate(ones)
        if one.deployment.load.concurrency is None
    }
    arriving: dict[int, Prediction] = {}
    for place, (curve, (best, fastest), (full, filled)) in curves.items():
        capacity = fastest.estimates[RATE]
        for row in members[place]:
            own, rate = loads[row].time, ones[row].deployment.load.requests_per_s
            if isinstance(own, InputError):
                continue
            loads[row] = loads[row]._replace(capacity=capacity)
            if rate is None:
                measured = _measured_by_user(ones[row].device, in_use)
                time = within_capacity(ones[row], own, filled, measured=measured)
                if time is not own:
                    later[row] = full, time
            elif rate > capacity.value:
                later[row] = best, fastest
            else:
                arriving[row] = curve.at_arrivals(own, capacity.value)
    possible = _possible([ones[row] for row in arriving], list(arriving.values()), in_use)
    later |= {row: (ones[row], own) for row, own in zip(arriving, possible, strict=True)}
    asked, times = [query for query, _ in later.values()], [own for _, own in later.values()]
    power = powers(asked, times, in_use.loaded.predictor)
    for row, outcome, own_power in zip(later, times, power, strict=True):
        loads[row] = loads[row]._replace(time=outcome, power=own_power)
    return [_of_all(*each) for each in zip(queries, ones, loads, strict=True)]


def _with_closer(
    loops: Sequence[Sequence[Query]], times: Sequence[Outcome], in_use: InUse
) -> tuple[list[Sequence[Query]], list[list[Outcome]]]:
    """Closed loops of each deployment and their times, with further ones near the greatest rate.

    Args:
        loops: closed loops of each deployment.
        times: times of all of them, one deployment after the other.
        in_use: the predictor in use.
    """
    each = iter(times)
    found = [[next(each) for _ in own] for own in loops]
    curves = [_curve(*pair) for pair in zip(loops, found, strict=True)]
    closer = [
        [] if curve is None else curve.closer(own) for own, curve in zip(loops, curves, strict=True)
    ]
    further = [loop for own in closer for loop in own]
    more = iter(_times_and_power([], further, in_use)[1] if further else [])
    every: list[Sequence[Query]] = []
    known: list[list[Outcome]] = []
    for own, own_times, new in zip(loops, found, closer, strict=True):
        pairs = [*zip(own, own_times, strict=True), *((loop, next(more)) for loop in new)]
        pairs.sort(key=lambda pair: pair[0].deployment.load.concurrency or 0.0)
        every.append([loop for loop, _ in pairs])
        known.append([time for _, time in pairs])
    return every, known


def _curve(loops: Sequence[Query], times: Sequence[Outcome]) -> LoadCurve | None:
    """The curve of closed loops; None where one of them cannot be answered."""
    known = [time for time in times if isinstance(time, Prediction)]
    return LoadCurve.of(loops, known) if len(known) == len(times) else None


def _with_ends(
    loops: Sequence[Sequence[Query]], times: Sequence[Sequence[Outcome]], in_use: InUse
) -> dict[int, tuple[LoadCurve, _Timed, _Timed]]:
    """Curves of deployments, with the fastest closed loop of each and the one without a free place.

    Args:
        loops: closed loops of each deployment.
        times: their times; there is no curve where one of them is not known.
        in_use: the predictor in use.
    """
    found = {place: _curve(*pair) for place, pair in enumerate(zip(loops, times, strict=True))}
    curves = {place: curve for place, curve in found.items() if curve is not None}
    ends = {place: (curve.best, len(curve.times) - 1) for place, curve in curves.items()}
    every = dict.fromkeys((place, end) for place, pair in ends.items() for end in pair)
    asked = [loops[place][end] for place, end in every]
    bounded = _possible(asked, [curves[place].times[end] for place, end in every], in_use)
    timed = dict(zip(every, zip(asked, bounded, strict=True), strict=True))
    return {
        place: (curve, timed[place, ends[place][0]], timed[place, ends[place][1]])
        for place, curve in curves.items()
    }


def _possible(
    queries: Sequence[Query], times: Sequence[Prediction], in_use: InUse
) -> list[Prediction]:
    """The times of deployments within what their devices allow."""
    measured = [_measured_by_user(query.device, in_use) for query in queries]
    return within_sheets(queries, times, measured)


def _times_and_power(
    ones: Sequence[Query], loops: Sequence[Query], in_use: InUse
) -> tuple[list[UnderLoad], list[Outcome]]:
    """Times and power of deployments, and times of closed loops that devices may not allow.

    All are predicted together. The power of requests that arrive at their own rate is left out.
    """
    asked = [*ones, *loops]
    few = {row: at_usual_lengths(query) for row, query in enumerate(asked) if weight(query) > 0.0}
    every = [*asked, *dict.fromkeys(few.values())]
    times = _times(every, in_use)
    predictor = in_use.loaded.predictor
    closed = [row for row, one in enumerate(ones) if one.deployment.load.concurrency is not None]
    power = powers([ones[row] for row in closed], [times[row] for row in closed], predictor)
    rates = served_rates(every[len(ones) :], times[len(ones) :], predictor)
    served = dict(zip([*closed, *range(len(ones), len(every))], [*power, *rates], strict=True))
    together = {
        row: agreed(query, time, served.get(row), _runs(query.device, in_use))
        for row, (query, time) in enumerate(zip(every, times, strict=True))
        if isinstance(time, Prediction)
    }
    usual = {query: row for row, query in enumerate(every) if row >= len(asked)}
    known = [row for row in few if row in together and usual[few[row]] in together]
    forms = _closed_form().predict([*(asked[row] for row in known), *(few[row] for row in known)])
    for number, row in enumerate(known):
        pair = forms[number], forms[len(known) + number]
        own, other = together[row], together[usual[few[row]]]
        together[row] = with_usual_correction(asked[row], own, other, *pair)
    rows = [row for row in together if row < len(ones)]
    possible = _possible([ones[row] for row in rows], [together[row] for row in rows], in_use)
    together |= zip(rows, possible, strict=True)
    whole = [together.get(row, time) for row, time in enumerate(times[: len(asked)])]
    loads = [UnderLoad(time, served.get(row)) for row, time in enumerate(whole[: len(ones)])]
    return loads, whole[len(ones) :]


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


def _measured_by_user(device: Device, in_use: InUse) -> bool:
    """Whether the predictor of times was adapted to runs on the device, which it then follows."""
    return not in_use.measured.get(device, {}).keys().isdisjoint(MEASURED_TIMES)


def _runs(device: Device, in_use: InUse) -> int:
    """Number of measurements of a user that the predictor of times was adapted to."""
    return in_use.rows.get(device, 0) if _measured_by_user(device, in_use) else 0


@cache
def _closed_form() -> Predictor:
    """The predictor of times as it is before it is fitted."""
    return unfitted("llm_latency")


def _times(queries: Sequence[Query], in_use: InUse) -> list[Outcome]:
    """Times and rates of each deployment."""
    predictor, closed_form = in_use.loaded.predictor, _closed_form()
    outcomes: dict[int, Outcome] = {}
    able: list[bool | None] = [None] * len(queries)
    for rows in groups_of(map(at_any_load, queries)).values():
        first = queries[rows[0]]
        known = predictor.answers(first)
        if known or closed_form.answers(first):
            for row in rows:
                able[row] = known
    for fitted, rows in groups_of(able).items():
        asked = [queries[row] for row in rows]
        if fitted is None:
            found: Sequence[Outcome] = [_unanswerable(query) for query in asked]
        else:
            found = predicted(predictor if fitted else closed_form, asked)
        if fitted is False:
            found = [_not_fitted(outcome) for outcome in found]
        outcomes |= zip(rows, found, strict=True)
    return [outcomes[row] for row in range(len(queries))]


def _unanswerable(query: Query) -> InputError:
    name = query.device.name
    return UnanswerableQuery(
        f"No predictor answers a deployed language model on {name}: it takes a GPU with a spec "
        "sheet."
    )


def _not_fitted(outcome: Outcome) -> Outcome:
    """The prediction with a limit that says that it is the closed form alone."""
    if isinstance(outcome, InputError):
        return outcome
    return replace(outcome, in_domain=False, limits=(NOT_FITTED, *outcome.limits))
