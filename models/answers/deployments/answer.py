"""Answers questions about deployed language models.

One predictor gives the times and another the power; energy and price are derived from rates and
power.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final, NamedTuple

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.device_slices import no_power
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.language_models.engine_formats import not_run
from forerun.data.level import USUAL
from forerun.data.list_prices import Price, list_price
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import setup_of
from forerun.features.llm_serving.memory import MIB, PoolMemory
from forerun.models.answers.deployments.arrivals import kept_up, replicas, within_reach
from forerun.models.answers.deployments.bounds import parts_within_wholes
from forerun.models.answers.deployments.derived import inverse, product, scaled
from forerun.models.answers.deployments.limits import limits_of, sound_limits
from forerun.models.answers.deployments.memory import bytes_on_processors, memory_of
from forerun.models.answers.deployments.metrics import METRICS, sources_of
from forerun.models.answers.deployments.parts import (
    Foundation,
    Part,
    Shares,
    foundations_of,
    limited_by,
    parts_of,
    shares_of,
)
from forerun.models.answers.deployments.power import occupancy
from forerun.models.answers.deployments.times import UnderLoad, under_load
from forerun.models.answers.interval_level import at_level, level_notes
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import Evidence, Trust, trust_in
from forerun.models.limit import PEAK_MEMORY, POWER, Limit
from forerun.models.prediction import WIDEST_RATIO, Estimate, Prediction, too_wide

RATE, ENERGY, PRICE = "tokens_per_s", "energy_per_token_j", "usd_per_million_tokens"
PER_DEVICE: Final = "tokens_per_s_per_device"
FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    ENERGY: (POWER, RATE),
    PRICE: (RATE,),
    PER_DEVICE: (RATE,),
}
"""Derived metric -> the metrics it is computed from; its grade is the lowest of theirs."""
WAITING: Final = ("ttft_ms", "ttft_service_ms")
"""Times that were only measured with clients that all start at once."""
WIDE: Final = Trust("C", f"the interval spans a factor of more than {WIDEST_RATIO:.0f}")
NOT_MEASURED: Final = Trust(
    "C", "extrapolated: no measured run has requests that arrive one by one"
)
CANNOT_RUN: Final = "weights and one request do not fit: it cannot run as asked"
SECONDS_PER_HOUR: Final = 3600.0
NO_PRICE: Final = "no list price of this device is known; give usd_per_device_hour"


@dataclass(frozen=True)
class Deployed:
    """The answer about one deployment.

    Attributes:
        query: the deployment and its device.
        estimates: metric -> estimate, in the order of `METRICS`.
        missing: metric without an estimate -> the reason.
        limits: limits of all estimates.
        trust: metric -> grade of its estimate.
        memory: memory of one device per phase; empty where the device's memory is unknown.
        capacity: largest arrival rate that the deployment sustains, requests per second; None if it
            does not fit, or in a closed loop where every request has a slot.
        replicas: number of such deployments needed to sustain the arrivals, from the lower end of
            the capacity; None without an arrival rate.
        limited_by: what bounds the rate; None if unknown.
        price: price of a device; None if unknown.
        parts: parts of the work, and what the estimate of each rests on.
    """

    query: Query
    estimates: Mapping[str, Estimate]
    missing: Mapping[str, str]
    limits: tuple[Limit, ...]
    trust: Mapping[str, Trust]
    memory: Sequence[PoolMemory]
    capacity: Estimate | None
    replicas: int | None
    limited_by: str | None
    price: Price | None
    parts: Sequence[Part]


class Priced(NamedTuple):
    """The figures of one deployment.

    Attributes:
        estimates: metric -> estimate, in the order of `METRICS`.
        time, power: the underlying predictions; power is None where the deployment does not run or
            no predictor answers it.
        memory, capacity: as in `Deployed`; the capacity's interval has the usual level.
    """

    estimates: Mapping[str, Estimate]
    time: Prediction
    power: Prediction | None
    memory: Sequence[PoolMemory]
    capacity: Estimate | None


class _Work(NamedTuple):
    """Requests in flight, the breakdown of their time, and what each part's estimate rests on."""

    in_flight: float
    shares: Shares
    foundations: Mapping[str, Foundation]


def deployed_all(
    queries: Sequence[Query], in_use: InUse, usd_per_device_hour: Sequence[float | None] = ()
) -> list[Deployed | InputError]:
    """The answer about each deployment, or the error that prevents it.

    Args:
        queries: n deployments on devices; each predictor receives them in one call.
        in_use: the predictor in use; deployments that it does not cover are answered by the
            analytical model, without intervals.
        usd_per_device_hour: price of a device for each deployment; None stands for the list price.
    """
    found = _deployed_all(queries, in_use, usd_per_device_hour)
    unusual = [row for row, query in enumerate(queries) if query.level != USUAL]
    if unusual:  # grades are those of intervals at the usual level
        usual = _deployed_all([replace(queries[row], level=USUAL) for row in unusual], in_use)
        for row, at_usual in zip(unusual, usual, strict=True):
            deployed = found[row]
            if isinstance(deployed, Deployed) and isinstance(at_usual, Deployed):
                trust = {
                    n: _of_usual(t, at_usual.trust.get(n, t)) for n, t in deployed.trust.items()
                }
                found[row] = replace(deployed, trust=trust)
    return found


def _of_usual(requested: Trust, usual: Trust) -> Trust:
    """The grade at the usual level; its reason is that of the requested level if grades agree."""
    return requested if requested.grade == usual.grade else usual


def _deployed_all(
    queries: Sequence[Query], in_use: InUse, usd_per_device_hour: Sequence[float | None] = ()
) -> list[Deployed | InputError]:
    """As `deployed_all`, but graded by the intervals of each query's own level."""
    loads = under_load(queries, in_use)
    times = [load.time for load in loads]
    evidence = _evidence(queries, in_use)
    in_flight = [_in_flight(*pair) for pair in zip(queries, times, strict=True)]
    shares = shares_of(queries, in_flight)
    setups = [setup_of(query) for query in queries]
    foundations = {
        setup: foundations_of(queries[rows[0]], in_use) for setup, rows in groups_of(setups).items()
    }
    return [
        time
        if isinstance(time, InputError)
        else _deployed(
            query,
            time,
            loads[row],
            _Work(in_flight[row], shares[row], foundations[setups[row]]),
            evidence[row],
            _price(query.device, usd_per_device_hour[row] if usd_per_device_hour else None),
        )
        for row, (query, time) in enumerate(zip(queries, times, strict=True))
    ]


def _price(device: Device, usd_per_hour: float | None) -> Price | None:
    return list_price(device.name) if usd_per_hour is None else Price(usd_per_hour, "as given")


def _in_flight(query: Query, time: Prediction | InputError) -> float:
    """Requests in flight; 1 where that is unknown."""
    known = None if isinstance(time, InputError) else occupancy(query, time)
    return 1.0 if known is None else known.in_flight


def _deployed(
    query: Query,
    time: Prediction,
    load: UnderLoad,
    work: _Work,
    evidence: Evidence,
    price: Price | None,
) -> Deployed | InputError:
    estimates, time, power, memory, capacity = priced(query, time, load, price)
    if not all(isfinite(estimate.value) for estimate in estimates.values()):
        return UnanswerableQuery(
            "The answer overflows; check the sizes and the figures of the spec sheet."
        )
    limits = limits_of(query, time, power, memory)
    rate = requests.value if (requests := estimates.get("requests_per_s")) is not None else None
    limits += sound_limits(query, rate)
    kept = kept_up(query, rate, capacity)
    capacity = None if capacity is None else at_level({RATE: capacity}, query)[RATE]
    return Deployed(
        query=query,
        estimates=estimates,
        missing=_missing(estimates, time, power, price, query.device),
        limits=(*limits, *level_notes(estimates, query)),
        trust=_trust(estimates, query, limits, evidence),
        memory=memory,
        capacity=capacity,
        replicas=replicas(query, capacity),
        limited_by=limited_by(work.shares, memory, work.in_flight, kept_up=kept),
        price=price,
        parts=parts_of(work.shares, work.foundations, estimates),
    )


def priced(query: Query, time: Prediction, load: UnderLoad, price: Price | None = None) -> Priced:
    """The figures of a deployment with its load.

    Args:
        query: the deployment.
        time: its predicted times.
        load: its power and capacity.
        price: price of a device; None if unknown.
    """
    in_flight = _in_flight(query, time)
    time = parts_within_wholes(time, query.deployment.load.output_tokens)
    memory, deployment = memory_of(query, in_flight), query.deployment
    why = not_run(deployment.engine.name, query.device, deployment.model)
    if why is None and not all(pool.fits for pool in memory):
        why = CANNOT_RUN
    capacity, power = (load.capacity, load.power) if why is None else (None, None)
    time = within_reach(query, time, capacity)
    if why is not None:
        time = replace(time, estimates={}, withheld=dict.fromkeys(METRICS, why))
    return Priced(_estimates(query, time, power, memory, price), time, power, memory, capacity)


def _estimates(
    query: Query,
    time: Prediction,
    power: Prediction | None,
    memory: Sequence[PoolMemory],
    price: Price | None,
) -> dict[str, Estimate]:
    """All metrics that can be estimated."""
    known = dict(time.estimates)
    if query.deployment.load.output_tokens <= 1.0:
        known.pop("tpot_ms", None)
    devices, rate = query.deployment.devices, known.get(RATE)
    if memory:
        known[PEAK_MEMORY] = Estimate(max(pool.needed_mib for pool in memory))
    elif query.device.kind == "cpu":
        known[PEAK_MEMORY] = Estimate(bytes_on_processors(query) / MIB)
    if power is not None and POWER in power.estimates:
        known[POWER] = _within(power.estimates[POWER], query.device.tdp_w)
    if rate is not None:
        known.setdefault(PER_DEVICE, scaled(rate, 1.0 / devices))
        known = with_rate(known, rate, devices, price)
    return {name: known[name] for name in METRICS if name in known}


def with_rate(
    known: Mapping[str, Estimate], rate: Estimate, devices: int, price: Price | None
) -> dict[str, Estimate]:
    """The estimates with energy and price added, which follow from the total rate."""
    found = dict(known)
    if POWER in found:
        found[ENERGY] = product(found[POWER], inverse(rate, devices))
    if price is not None:
        dollars = price.usd_per_device_hour * devices / SECONDS_PER_HOUR * 1e6
        found[PRICE] = inverse(rate, dollars)
    return found


def _within(power: Estimate, tdp_w: float | None) -> Estimate:
    """The power with value and interval capped at the thermal design power."""
    if tdp_w is None:
        return power
    low, high = (None if end is None else min(end, tdp_w) for end in (power.low, power.high))
    return replace(power, value=min(power.value, tdp_w), low=low, high=high)


def _missing(
    estimates: Mapping[str, Estimate],
    time: Prediction,
    power: Prediction | None,
    price: Price | None,
    device: Device,
) -> dict[str, str]:
    """Metric without an estimate -> the reason."""
    withheld = {**time.withheld, **({} if power is None else power.withheld)}
    usual = {
        "tpot_ms": "answers have one token, and none after it",
        POWER: "no predictor answers the power of such a model on this device",
        ENERGY: "it is computed from power and rate, one of which is unknown",
        PRICE: NO_PRICE if price is None else "it is computed from the rate, which is unknown",
    }
    if (why := no_power(device)) is not None:
        usual[POWER] = why
    return {
        name: withheld.get(name) or usual.get(name, "no predictor answers it")
        for name in METRICS
        if name not in estimates
    }


def _evidence(queries: Sequence[Query], in_use: InUse) -> list[Evidence]:
    """What the answer to each query rests on, looked up once per device and engine."""
    known: dict[tuple[Device, str], Evidence] = {}
    found = []
    for query in queries:
        key = query.device, query.deployment.engine.name
        if key not in known:
            measured = in_use.measured.get(query.device, {})
            known[key] = Evidence(in_use.loaded.record, sources_of(query, in_use), measured)
        found.append(known[key])
    return found


def _trust(
    estimates: Mapping[str, Estimate],
    query: Query,
    limits: Sequence[Limit],
    evidence: Evidence,
) -> dict[str, Trust]:
    """The grade of each estimate; a derived metric gets the lowest grade of its sources.

    Memory follows from sizes alone, so limits of times and rates do not affect it.
    """
    grades = {}
    for name, estimate in estimates.items():
        concerning = [e for e in limits if name != PEAK_MEMORY or e.concerns(PEAK_MEMORY)]
        wide = too_wide(name, estimate) is not None
        grades[name] = WIDE if wide else trust_in(name, estimates, query, concerning, evidence)
        if name in WAITING and query.deployment.load.concurrency is None:
            grades[name] = NOT_MEASURED
    for name, sources in FOLLOWS.items():
        if name in grades:
            known = [grades[source] for source in sources if source in grades]
            grades[name] = max(known, key=lambda trust: trust.grade, default=grades[name])
    return grades
