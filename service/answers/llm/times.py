"""Times, rates and power of deployed language models under their load.

Rates and times are those of one predictor, agree with the rate of the predictor of power
(`agreement`), and lie within what the devices allow (`physical`). Where requests arrive at a rate
of their own, the capacity is known too (`arrivals`).
"""

from collections.abc import Sequence
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
    saturated,
    within_capacity,
)
from forerun.service.answers.llm.costs import scaled
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
    """Times, power and capacity of n deployments, which go to each predictor in one call."""
    answered = _closed_form()
    bound = [
        row for row, q in enumerate(queries) if answered.answers(q) and may_wait_for_a_place(q)
    ]
    found = _times_and_power([*queries, *(saturated(queries[row]) for row in bound)], in_use)
    loads = found[: len(queries)]
    for row, full in zip(bound, found[len(queries) :], strict=True):
        own = loads[row].time
        if isinstance(own, Prediction) and isinstance(full.time, Prediction):
            measured = _measured_by_user(queries[row].device, in_use)
            time = within_capacity(queries[row], own, full.time, measured=measured)
            power = loads[row].power if time is own else full.power
            loads[row] = UnderLoad(time, power, full.time.estimates.get(RATE))
    return loads


def _times_and_power(queries: Sequence[Query], in_use: InUse) -> list[UnderLoad]:
    ones = [of_one_worker(query) for query in queries]
    times = _times(ones, in_use)
    power = powers(ones, times, in_use.loaded.predictor)
    together = {
        row: agreed(query, time, power[row], _runs(query.device, in_use))
        for row, (query, time) in enumerate(zip(ones, times, strict=True))
        if isinstance(time, Prediction)
    }
    possible = within_sheets(
        [ones[row] for row in together],
        list(together.values()),
        [_measured_by_user(ones[row].device, in_use) for row in together],
    )
    for row, time in zip(together, possible, strict=True):
        times[row] = time
    whole = [
        time if isinstance(time, InputError) else _of_all(query, one, time)
        for query, one, time in zip(queries, ones, times, strict=True)
    ]
    return [UnderLoad(*pair) for pair in zip(whole, power, strict=True)]


def _of_all(query: Query, one: Query, time: Prediction) -> Prediction:
    """The times and rates of a deployment from those of one of its workers."""
    workers = query.deployment.pool.workers / one.deployment.pool.workers
    estimates = {
        name: scaled(own, workers) if name in TOTALS else own
        for name, own in time.estimates.items()
    }
    return replace(time, estimates=estimates)


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
