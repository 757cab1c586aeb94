"""Times, rates and power of deployed language models under their load.

Rates and times are those of one predictor, agree with the rate of the predictor of power
(`agreement`), and lie within what the devices allow (`physical`). Where requests arrive at a rate
of their own, the capacity is known too, and times follow from those of closed loops (`load_curve`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import of_one_worker
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
from forerun.service.answers.llm.power import powers
from forerun.service.answers.serving import predicted

MEASURED_TIMES: Final = frozenset({"ttft_ms", "tpot_ms"})
NOT_FITTED: Final = Limit("times follow from the spec sheet in closed form, not from measured runs")

TOTALS: Final = (RATE, "tokens_per_s")
"""Rates of all workers together."""

Outcome = Prediction | InputError


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
    loops = {row: tuple(closed_loops(ones[row], places(ones[row]))) for row in bound}
    every = list(dict.fromkeys(loop for row in bound for loop in loops[row]))
    found = _times_and_power([*ones, *every], in_use)
    loads, of_loops = found[: len(ones)], dict(zip(every, found[len(ones) :], strict=True))
    arriving: dict[int, Prediction] = {}
    for row in bound:
        own, curve = loads[row].time, _curve(loops[row], of_loops)
        if not isinstance(own, Prediction) or curve is None:
            continue
        load, measured = ones[row].deployment.load, _measured_by_user(ones[row].device, in_use)
        best, full = of_loops[loops[row][curve.best]], of_loops[loops[row][-1]]
        if load.requests_per_s is None and isinstance(full.time, Prediction):
            time = within_capacity(ones[row], own, full.time, measured=measured)
            power = loads[row].power if time is own else full.power
            loads[row] = UnderLoad(time, power, curve.capacity)
        elif (load.requests_per_s or 0.0) > curve.capacity.value:
            loads[row] = UnderLoad(best.time, best.power, curve.capacity)
        else:
            arriving[row] = curve.at_arrivals(own)
            loads[row] = UnderLoad(own, None, curve.capacity)
    loads = _with_arrivals(ones, loads, arriving, in_use)
    return [_of_all(*each) for each in zip(queries, ones, loads, strict=True)]


def _curve(loops: Sequence[Query], found: Mapping[Query, UnderLoad]) -> LoadCurve | None:
    """The curve of closed loops; None where one of them cannot be answered."""
    times = [found[loop].time for loop in loops]
    known = [time for time in times if isinstance(time, Prediction)]
    return LoadCurve.of(loops, known) if len(known) == len(times) else None


def _with_arrivals(
    ones: Sequence[Query],
    loads: Sequence[UnderLoad],
    arriving: Mapping[int, Prediction],
    in_use: InUse,
) -> list[UnderLoad]:
    """The loads with other times of some rows, and the power that goes with these."""
    rows = list(arriving)
    asked = [ones[row] for row in rows]
    measured = [_measured_by_user(query.device, in_use) for query in asked]
    times = within_sheets(asked, list(arriving.values()), measured)
    power = powers(asked, times, in_use.loaded.predictor)
    changed = {
        row: loads[row]._replace(time=time, power=own)
        for row, time, own in zip(rows, times, power, strict=True)
    }
    return [changed.get(row, load) for row, load in enumerate(loads)]


def _times_and_power(ones: Sequence[Query], in_use: InUse) -> list[UnderLoad]:
    """Times and power of n deployments, which go to each predictor in one call."""
    few = {row: at_usual_lengths(query) for row, query in enumerate(ones) if weight(query) > 0.0}
    every = [*ones, *dict.fromkeys(few.values())]
    times = _times(every, in_use)
    power = powers(every, times, in_use.loaded.predictor)
    together = {
        row: agreed(query, time, power[row], _runs(query.device, in_use))
        for row, (query, time) in enumerate(zip(every, times, strict=True))
        if isinstance(time, Prediction)
    }
    usual = {query: row for row, query in enumerate(every) if row >= len(ones)}
    known = [row for row in few if row in together and usual[few[row]] in together]
    closed = _closed_form().predict([*(ones[row] for row in known), *(few[row] for row in known)])
    for number, row in enumerate(known):
        forms = closed[number], closed[len(known) + number]
        own, other = together[row], together[usual[few[row]]]
        together[row] = with_usual_correction(ones[row], own, other, *forms)
    rows = [row for row in together if row < len(ones)]
    possible = within_sheets(
        [ones[row] for row in rows],
        [together[row] for row in rows],
        [_measured_by_user(ones[row].device, in_use) for row in rows],
    )
    for row, time in zip(rows, possible, strict=True):
        times[row] = time
    return [UnderLoad(*pair) for pair in zip(times[: len(ones)], power[: len(ones)], strict=True)]


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
    able = [
        True if predictor.answers(query) else False if closed_form.answers(query) else None
        for query in queries
    ]
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
