"""What to serve a language model on: layouts on devices at hand, with as few replicas as will do.

A replica is a copy of the model with its scheduler, or pools for prompts and answers that belong
together. Of each, the smallest number is sought with which every limit holds and the rate is below
the capacity: by the ends of intervals that are worse, or by best estimates. What cannot hold by the
memory or by the least times of the spec sheet is not priced.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, floor, inf, isfinite, log
from typing import Final, Literal, Protocol

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.device_slices import no_link
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.engine_formats import not_run
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.data.level import HALF_WIDTH
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.engine_settings import default_limits
from forerun.features.llm_serving.least_times import LeastTimes, least_times
from forerun.features.llm_serving.memory import MOST_TENSOR, divides_heads, serving_memory
from forerun.models.limit import POWER
from forerun.models.plans import (
    DRAWN,
    DRAWS,
    SAME,
    close_call,
    front,
    powers_of_two,
    wins_of,
)
from forerun.models.prediction import Estimate, too_wide

ServingObjective = Literal["price", "devices", "vcpus", "energy", "carbon", "speed"]
Risk = Literal["upper", "value"]
LATENCY: Final = "request_latency_ms"
MOST_WORKER: Final = 32
"""Devices of one worker that are tried at most."""
MOST_STAGES: Final = 8
"""Pipeline stages that are tried at most."""
MOST_DEVICES: Final = 1024
"""Devices of one type at most, where no number is given."""
ENOUGH: Final = 1_000_000
"""Replicas at most where their number does not count."""
SEQUENCES: Final = (None, 32, 128)
BATCHED: Final = (None, 2048, 8192)
"""Settings of the scheduler that are tried; None is the engine's default."""
RATIOS: Final = ((1, 1), (2, 1), (1, 2), (1, 3))
"""Workers for prompts and for answers of one replica, where they are apart."""
MEMORY, STOCK, USD = "memory", "devices", "usd_per_hour"
SCHEDULER, UNKNOWN, UNCHECKED = "scheduler", "unknown", "unchecked"
NO_PRICE: Final = "no price is known: give usd_per_device_hour, or another objective than price"
NO_VCPUS: Final = "only instance types of clouds have vCPUs: give another objective than vcpus"
NO_POWER: Final = "no power is known: give another objective than energy, and no limit of it"
NO_INTERVAL: Final = "no interval of its times or of its capacity is known"
CHECKED, MOST_CHECKED = 8, 32
"""Options, those of least cost, whose percentiles are checked, and as many at most: more are while
they may cost less than the best."""
GROWTH: Final = 1.5
"""Ratio of numbers of replicas that are tried until one holds."""
SHARED: Final = 0.87
"""Share of the variance of log errors that layouts of a model on a device have in common, with all
runs of the model on the device left out (40 settings of `forerun.training.reports.serving_plans`:
standard deviations of 0.28 between settings and of 0.11 between layouts of a setting)."""


@dataclass(frozen=True, slots=True)
class Stock:
    """Devices of one type.

    Attributes:
        device: the type.
        most: how many there are; None for as many as are needed.
        usd_per_device_hour: price of one; None where it is not known.
        vcpus: virtual processors of one; None where it is no instance type of a cloud.
        current: how many run now.
        spot: the same devices at a spot price; None where there are none.
        is_spot: whether they may be taken away.
        left_out: models that are not tried on them, beyond those that `not_run` names.
    """

    device: Device
    most: int | None = None
    usd_per_device_hour: float | None = None
    vcpus: int | None = None
    current: int = 0
    spot: "Stock | None" = None
    is_spot: bool = False
    left_out: frozenset[LanguageModel] = frozenset()

    @property
    def at_hand(self) -> int:
        """Devices that are tried at most."""
        return MOST_DEVICES if self.most is None else self.most

    @property
    def usd(self) -> float:
        """The price, which is infinite where it is not known."""
        return inf if self.usd_per_device_hour is None else self.usd_per_device_hour


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """What a plan keeps to.

    Attributes:
        times: metric, such as `tpot_ms` -> its most.
        tails: what the event model answers -> its most: a percentile over requests, such as
            `tpot_p99_ms`, or a mean or percentile of a class of them, such as `chat.tpot_ms`.
        usd_per_hour: most price of all devices.
        power_w: most power of all devices.
        risk: `upper`: limits hold at the upper ends of intervals; `value`: at best estimates.
    """

    times: Mapping[str, float] = field(default_factory=dict)
    tails: Mapping[str, float] = field(default_factory=dict)
    usd_per_hour: float = inf
    power_w: float = inf
    risk: Risk = "upper"

    def bounded(self) -> "ServingLimits":
        """The same, with limits of percentiles and classes as those of the means, too, which they
        bound: of all requests, and of a class that is served alone.
        """
        times = dict(self.times)
        for name, most in self.tails.items():
            times[mean_of(name)] = min(most, times.get(mean_of(name), inf))
        return replace(self, times=times)

    def end(self, own: Estimate) -> float | None:
        """The end of an interval that counts for a limit from above."""
        return own.high if self.risk == "upper" else own.value


class Figures(Protocol):
    """Estimates of a deployment, and the rate that it keeps up with."""

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """Metric -> estimate."""
        ...

    @property
    def capacity(self) -> Estimate | None:
        """The largest rate of arrivals, requests a second."""
        ...


class Pricing(Protocol):
    """Figures of deployments, as whole answers have them."""

    def figures(
        self, queries: Sequence[Query], *, with_power: bool = False
    ) -> Sequence[Figures | InputError]:
        """Those of n deployments."""
        ...


class Tails(Protocol):
    """Means and percentiles of times by the event model."""

    def figures_ms(self, query: Query, replicas: int) -> Mapping[str, float]:
        """Names as of `ServingLimits.tails` -> figure over the requests that reach one of so many
        replicas.
        """
        ...


@dataclass(frozen=True, slots=True)
class Unit:
    """A replica on devices of one type.

    Attributes:
        query: the replica with the rate of all requests.
        stock: the devices.
        fewest: replicas that the sheet's arithmetic asks for at least.
        most: replicas that there are devices for, or that are tried.
        beaten: whether another scheduler of the layout keeps the limits with `most`.
    """

    query: Query
    stock: Stock
    fewest: int = 1
    most: int = 1
    beaten: bool = False

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.query.deployment.devices

    def share(self, replicas: int) -> Query:
        """One replica with its share of the rate."""
        return at_rate(self.query, _rate_of(self.query) / replicas)


def at_rate(query: Query, requests_per_s: float) -> Query:
    """A deployment at another rate of its requests."""
    return at_load(query, query.deployment.load, requests_per_s)


def at_load(query: Query, load: RequestLoad, requests_per_s: float | None) -> Query:
    """A deployment with requests of these lengths at a rate."""
    load = replace(load, requests_per_s=requests_per_s)
    return replace(query, workload=replace(query.deployment, load=load))


def _rate_of(query: Query) -> float:
    return query.deployment.load.requests_per_s or 0.0


@dataclass(frozen=True, slots=True)
class ServingOption:
    """A replica and how many of it.

    Attributes:
        unit: the replica.
        replicas: how many.
        estimates: metric -> estimate of one replica at its share of the rate.
        over: limit that it misses -> figure over limit; empty where all hold.
        tails: figures of the event model, where some are limited.
        wins: share of draws from the intervals in which no other option is better.
        why: why it cannot be compared, of those that are `unknown`.
        fewer: the same with the fewest replicas that keep up, where these miss something.
    """

    unit: Unit
    replicas: int
    estimates: Mapping[str, Estimate]
    over: Mapping[str, float] = field(default_factory=dict)
    tails: Mapping[str, float] = field(default_factory=dict)
    wins: float = 0.0
    why: str = NO_INTERVAL
    fewer: "ServingOption | None" = None

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.unit.devices

    @property
    def usd_per_hour(self) -> float:
        """Price of all devices; infinite where it is not known."""
        return self.devices * self.unit.stock.usd

    @property
    def power_w(self) -> float:
        """Power of all devices by the best estimate; infinite where it is not known."""
        own = self.estimates.get(POWER)
        return inf if own is None else self.devices * own.value

    def cost(self, objective: ServingObjective) -> float:
        """What is least: the rate of requests is the same for all options."""
        match objective:
            case "price":
                return self.usd_per_hour
            case "devices":
                return float(self.devices)
            case "vcpus":
                return self.devices * float(self.unit.stock.vcpus or inf)
            case "energy" | "carbon":
                return self.power_w
            case "speed":
                return self.estimates[LATENCY].value


@dataclass(frozen=True)
class ServingPlan:
    """The options that were searched.

    Attributes:
        best: those that keep all limits, best first, and the rival; of one layout its best
            scheduler alone.
        misses: of those that miss a time, the price or the power, those nearest to the limits, each
            of less cost than the one before it and than the best; where there are none and nothing
            keeps all limits, the one of all that misses its worst limit by least.
        front: those that keep all limits and that no other beats in time, price and power.
        searched: number of options.
        fitting: how many keep all limits.
        unanswered: type of devices of which no option can be compared, as some are unknown -> why.
        failed: what others fail by -> how many; the first of `memory`, `devices`, `usd_per_hour`,
            times, `power_w` and percentiles. Of a `scheduler`, another one of the layout needs no
            more replicas. Those `unknown` have no interval or no answer, and percentiles of those
            `unchecked` were not asked for, as they cost more than `CHECKED` others.
        withheld: how many were left out of an order by speed, since the interval of their time is
            too wide.
        rival: the option that a measurement should compare with the first; None where that wins
            in 90 % of draws.
    """

    best: tuple[ServingOption, ...]
    misses: tuple[ServingOption, ...]
    front: tuple[ServingOption, ...]
    searched: int
    fitting: int
    unanswered: Mapping[str, str]
    failed: Mapping[str, int]
    withheld: int
    rival: ServingOption | None


def plan(
    models: Sequence[LanguageModel],
    load: RequestLoad,
    engines: Sequence[Engine],
    stocks: Sequence[Stock],
    pricing: Pricing,
    *,
    limits: ServingLimits,
    objective: ServingObjective = "price",
    apart: bool = False,
    kept: int = 5,
    seed: int = 0,
    tails: Tails | None = None,
    classes: Sequence[RequestLoad] = (),
) -> ServingPlan:
    """The best ways to serve requests that arrive at a rate.

    Args:
        models: the model in each number format to choose from.
        load: lengths and rate of all requests.
        engines: settings to choose from, such as with drafts and without; limits of the scheduler
            that they give are kept, others are chosen.
        stocks: types of devices to choose from; one option has one type. Formats that the engine
            does not run on a type are not searched there.
        pricing: what answers times, capacity and power.
        limits: what must hold.
        objective: what is minimised.
        apart: whether pools of their own for prompts are tried too.
        kept: number of options that are kept.
        seed: of the draws.
        tails: what answers percentiles; needed where they are limited.
        classes: requests of each class, which must fit the memory.
    """
    out: list[ServingOption] = []
    limits = limits.bounded()
    costly = {one.device.name: why for one in stocks if (why := no_cost(one, limits, objective))}
    known = [one for one in stocks if one.device.name not in costly]
    units = _bounded(models, [load, *classes], engines, known, limits, apart, out)
    failed = Counter(next(iter(one.over)) for one in out)
    able, missing = _holding(units, pricing, limits, objective, failed)
    unanswered = costly | _unanswered(able, missing)
    wide = [o for o in able if objective == "speed" and too_wide(LATENCY, o.estimates[LATENCY])]
    fitting = _by_cost((one for one in able if one not in wide), objective)
    if limits.tails and tails is not None:
        fitting, late = _checked(fitting, tails, pricing, limits, objective, failed)
        missing += [*late, *(one.fewer for one in fitting if one.fewer is not None)]
    best = _with_wins(fitting[:DRAWN], pricing, limits, objective, seed)
    misses = _nearest(missing, limits, objective, best, pricing)
    if not fitting and not misses and len(unanswered) < len(stocks):
        misses = _nearest_of_all([*out, *missing], limits, pricing)
    close = close_call([one.wins for one in best])
    return ServingPlan(
        best=tuple(best[:kept] if close is None or close < kept else (*best[:kept], best[close])),
        misses=tuple(misses),
        front=tuple(fitting[row] for row in front(_criteria(fitting))),
        searched=len(fitting) + len(wide) + failed.total(),
        fitting=len(fitting),
        unanswered=unanswered,
        failed={name: count for name, count in failed.most_common() if count},
        withheld=len(wide),
        rival=None if close is None else best[close],
    )


def _holding(
    units: Sequence[Unit],
    pricing: Pricing,
    limits: ServingLimits,
    objective: ServingObjective,
    failed: Counter[str],
) -> tuple[list[ServingOption], list[ServingOption]]:
    """Options of a known cost that keep all limits but percentiles, one of each layout; and those
    that miss something.
    """
    found = fewest_of_each(units, pricing, limits, fastest=objective == "speed")
    holding = sorted(
        (one for one in found if not one.over),
        key=lambda one: (one.replicas, one.estimates[LATENCY].value),
    )
    layouts = _one_a_layout(holding)
    failed[SCHEDULER] += len(holding) - len(layouts)
    holding = _with_power(layouts, pricing, limits)
    holding = [
        one if isfinite(one.cost(objective)) else replace(one, over={UNKNOWN: 1.0}, why=NO_POWER)
        for one in holding
    ]
    missing = [one for one in (*found, *holding) if one.over]
    failed.update(next(iter(one.over)) for one in missing)
    missing += [one.fewer for one in found if one.fewer is not None]
    return [one for one in holding if not one.over], missing


def no_cost(stock: Stock, limits: ServingLimits, objective: ServingObjective) -> str | None:
    """Why options on devices of a type cannot be compared; None where they can."""
    if stock.usd_per_device_hour is None and (objective == "price" or limits.usd_per_hour < inf):
        return NO_PRICE
    return NO_VCPUS if objective == "vcpus" and not stock.vcpus else None


def _unanswered(able: Iterable[ServingOption], missing: Iterable[ServingOption]) -> dict[str, str]:
    """Type of devices with unknown options, none of which can be compared -> why."""
    whys = {one.unit.query.device.name: one.why for one in missing if UNKNOWN in one.over}
    known = {one.unit.query.device.name for one in able}
    return {name: why for name, why in whys.items() if name not in known}


def _by_cost(options: Iterable[ServingOption], objective: ServingObjective) -> list[ServingOption]:
    """Those of least cost first, then by the time of a request."""
    return sorted(options, key=lambda one: (one.cost(objective), one.estimates[LATENCY].value))


def _nearest(
    missing: Sequence[ServingOption],
    limits: ServingLimits,
    objective: ServingObjective,
    best: Sequence[ServingOption],
    pricing: Pricing,
) -> list[ServingOption]:
    """Those that miss nothing but times, the price or the power, nearest first; each costs less
    than the one before it, and than the best.
    """
    named = {*limits.times, *limits.tails, USD, POWER}
    known = [one for one in missing if one.over.keys() <= named]
    if objective in ("energy", "carbon"):
        known = _with_power(known, pricing, limits)
    cost, found = min((one.cost(objective) for one in best), default=inf), []
    for one in sorted(known, key=lambda one: (_worst(one), one.cost(objective))):
        if one.cost(objective) < cost * (1.0 - SAME):
            cost = one.cost(objective)
            found.append(one)
    return found


def _nearest_of_all(
    options: Iterable[ServingOption], limits: ServingLimits, pricing: Pricing
) -> list[ServingOption]:
    """The option whose worst limit, also of devices, is missed by least; where none fits the
    memory, that which needs least.

    Of those that are nearest by least times and least devices, figures decide.
    """
    known = (one for one in options if one.over.keys().isdisjoint({SCHEDULER, UNKNOWN}))
    layouts = {layout_of(one.unit): one for one in known}
    near = sorted(layouts.values(), key=_last_without_memory)[:DRAWN]
    units = [replace(one.unit, most=ENOUGH, beaten=False)
             for one in near if MEMORY not in one.over]  # fmt: skip
    found = [one for one in near if MEMORY in one.over]
    for one in fewest_replicas(units, pricing, limits):
        more = one.devices / one.unit.stock.at_hand
        if UNKNOWN not in one.over:
            found.append(replace(one, over={**one.over, STOCK: more} if more > 1.0 else one.over))
    return sorted(found, key=_last_without_memory)[:1]


def _last_without_memory(option: ServingOption) -> tuple[bool, float]:
    return MEMORY in option.over, _worst(option)


def _worst(option: ServingOption) -> float:
    """How many times over an option is the limit that it misses most."""
    return max(option.over.values())


def _criteria(options: Sequence[ServingOption]) -> Matrix:
    """Time of a request, price and power of n options, (n, 3)."""
    rows = [(one.estimates[LATENCY].value, one.usd_per_hour, one.power_w) for one in options]
    return np.minimum(np.array(rows, dtype=np.float64).reshape(-1, 3), 1e300)


def _one_a_layout(options: Sequence[ServingOption]) -> list[ServingOption]:
    """The first option of each layout, whatever its scheduler."""
    first: dict[tuple[object, ...], ServingOption] = {}
    for one in options:
        first.setdefault(layout_of(one.unit), one)
    return list(first.values())


def layout_of(unit: Unit) -> tuple[object, ...]:
    """What replicas share whose schedulers alone differ."""
    own = unit.query.deployment
    drafts = own.engine.draft_tokens, own.engine.draft_acceptance
    return unit.query.device.name, own.model, own.pool, own.prefill, drafts


def units_of(
    model: LanguageModel, load: RequestLoad, engine: Engine, stock: Stock, *, apart: bool = False
) -> Iterator[Unit]:
    """Each layout of a replica on devices of one type, by the default scheduler of an engine."""
    if stock.device.kind == "cpu" or no_link(stock.device):
        layouts, apart = [Parallelism()], False
    else:
        layouts = list(_layouts(model, engine, min(stock.at_hand, MOST_WORKER)))
    pools: list[tuple[Pool, Pool | None]] = [(Pool(own), None) for own in layouts]
    if apart:
        alone = [own for own in layouts if own.pipeline == 1]
        pools += [
            (Pool(second, decode), Pool(first, prompts))
            for first, second, (prompts, decode) in product(alone, alone, RATIOS)
        ]
    for pool, prefill in pools:
        deployment = LlmDeployment(model, load, engine, pool, prefill)
        query = Query(deployment, stock.device, operation=Operation(deployment.devices))
        unit = Unit(query, stock)
        yield replace(unit, most=most_of(unit))


def _layouts(model: LanguageModel, engine: Engine, most: int) -> Iterator[Parallelism]:
    """Degrees that an engine can divide a model by, over at most so many devices."""
    parts = (part for layer in model.layers for part in layer.feed_forward)
    experts = max((part.experts for part in parts if isinstance(part, Experts)), default=0)
    tensors = [own for own in powers_of_two(min(MOST_TENSOR, most)) if divides_heads(model, own)]
    stages = powers_of_two(min(MOST_STAGES, most, len(model.layers)))
    for tensor, pipeline in product(tensors, stages):
        if engine.name == "llama.cpp" and tensor > 1:
            continue
        if tensor * pipeline <= most:
            yield Parallelism(tensor, pipeline)
        if pipeline > 1 or not experts or engine.name == "llama.cpp":
            continue
        for ranks in powers_of_two(most // tensor):
            shared = tensor * ranks
            if shared > 1 and shared <= experts:
                yield Parallelism(tensor, 1, ranks, shared)


def _units(
    models: Sequence[LanguageModel],
    load: RequestLoad,
    engines: Sequence[Engine],
    stocks: Sequence[Stock],
    apart: bool,
) -> list[Unit]:
    """Each layout of each model on each type of devices that an engine runs it on; drafts are not
    answered on processors, nor run by engines in stages of a pipeline.
    """
    return [
        unit
        for model, stock, engine in product(models, stocks, engines)
        if model not in stock.left_out
        and not_run(engine.name, stock.device, model) is None
        and not (engine.draft_tokens and stock.device.kind == "cpu")
        for unit in units_of(model, load, engine, stock, apart=apart)
        if not engine.draft_tokens or unit.query.deployment.pool.parallelism.pipeline == 1
    ]


def _bounded(
    models: Sequence[LanguageModel],
    loads: Sequence[RequestLoad],
    engines: Sequence[Engine],
    stocks: Sequence[Stock],
    limits: ServingLimits,
    apart: bool,
    out: list[ServingOption],
) -> list[Unit]:
    """The replicas that may keep the limits by memory and sheets, with each scheduler; the others
    are added to `out`. Of the loads, the first is that of all requests.
    """
    every = _units(models, loads[0], engines, stocks, apart)
    excess = [max(_excess(at_load(unit.query, own, 0.0)) for own in loads) for unit in every]
    held = [unit for unit, own in zip(every, excess, strict=True) if own <= 1.0 and unit.most > 0]
    some = [unit for unit in held if unit.query.device.kind != "cpu"]
    # Least times are those of GPUs.
    reasons: dict[int, tuple[dict[str, float], int]] = {id(unit): ({}, 1) for unit in held}
    least = least_times([unit.query for unit in some], np.ones(len(some)))
    reasons |= zip(map(id, some), _reasons(some, least, limits), strict=True)
    able = []
    for unit, own in zip(every, excess, strict=True):
        pairs = ((MEMORY, own), (STOCK, unit.devices / unit.stock.at_hand))
        over, fewest = reasons.get(id(unit), ({n: by for n, by in pairs if by > 1.0}, 1))
        schedulers = _schedulers(unit.query.deployment.engine, unit.query.device)
        if over:
            out += [ServingOption(unit, fewest, {}, over)] * len(schedulers)
            continue
        for each in schedulers:
            deployment = replace(unit.query.deployment, engine=each)
            able.append(
                replace(unit, query=replace(unit.query, workload=deployment), fewest=fewest)
            )
    return able


def may_keep(
    models: Sequence[LanguageModel],
    load: RequestLoad,
    engines: Sequence[Engine],
    stocks: Sequence[Stock],
    limits: ServingLimits,
    *,
    apart: bool,
) -> list[Unit]:
    """The replicas that may keep the times of some requests, each with its first scheduler."""
    times = ServingLimits(limits.times, risk=limits.risk)
    few = replace(load, requests_per_s=0.0)
    able = _bounded(models, [few], engines, stocks, times, apart, [])
    first = {layout_of(unit): unit for unit in reversed(able)}
    return [replace(unit, query=at_rate(unit.query, load.requests_per_s or 0.0))
            for unit in first.values()]  # fmt: skip


def keeps(estimates: Mapping[str, Estimate], limits: ServingLimits) -> bool:
    """Whether all times hold."""
    return not _over(estimates, limits)


def _excess(query: Query) -> float:
    """What weights and one request need over what the engine may take of a device; 0 where its
    memory is not known.
    """
    if query.device.memory_gib is None:
        return 0.0
    memory = serving_memory(query.deployment, query.device, 1.0)
    return max(own.needed_mib / own.reserved_mib for own in memory)


def _schedulers(engine: Engine, device: Device) -> list[Engine]:
    """An engine with each limit of its scheduler that is tried and is not its default; on
    processors, which were measured with these alone, as it is.
    """
    if device.kind == "cpu":
        return [engine]
    tokens, sequences = default_limits(engine, device)
    batched = [own for own in BATCHED if own != tokens]
    at_once = [own for own in SEQUENCES if own != sequences]
    if engine.max_batched_tokens is not None:
        batched = [engine.max_batched_tokens]
    if engine.max_sequences is not None:
        at_once = [engine.max_sequences]
    return [
        replace(engine, max_batched_tokens=own, max_sequences=most)
        for own, most in product(batched, at_once)
    ]


def _reasons(
    units: Sequence[Unit], least: LeastTimes, limits: ServingLimits
) -> list[tuple[dict[str, float], int]]:
    """What each of n replicas misses at its least times -> how many times over; fewest replicas."""
    deployments = [unit.query.deployment for unit in units]
    after = np.array([max(own.load.output_tokens - 1.0, 0.0) for own in deployments])
    rate = np.array([own.load.requests_per_s or 0.0 for own in deployments])
    decoded, prompts = (
        np.array([_at_once(pool) for pool in pools])
        for pools in ([o.pool for o in deployments], [o.prefill or o.pool for o in deployments])
    )
    apart = np.array([own.prefill is not None for own in deployments])
    prompt, answer = least.prompt / prompts, after * least.token / decoded
    busy = np.maximum(prompt, answer + np.where(apart, 0.0, prompt))
    fewest = np.maximum(np.ceil(rate * busy * (1.0 - 1e-9)), 1.0).astype(int)
    times: dict[str, Column] = {"ttft_ms": 1e3 * least.ttft, "tpot_ms": 1e3 * least.tpot}
    times[LATENCY] = times["ttft_ms"] + after * times["tpot_ms"]
    found = []
    for row, (unit, number) in enumerate(zip(units, fewest.tolist(), strict=True)):
        over = {n: times[n][row] / m for n, m in limits.times.items() if n in times}
        over = {n: float(by) for n, by in over.items() if by > 1.0}
        if number > unit.most:
            over = {STOCK: number * unit.devices / unit.stock.at_hand}
        elif (by := _over_price(unit, number, limits)) > 1.0:
            over = {USD: by}
        found.append((over, number))
    return found


def _with_price(option: ServingOption, limits: ServingLimits) -> ServingOption:
    """The option with how far it misses the limit of the price, too."""
    by = _over_price(option.unit, option.replicas, limits)
    return replace(option, over={**option.over, USD: by}) if by > 1.0 else option


def _over_price(unit: Unit, replicas: int, limits: ServingLimits) -> float:
    """The price of replicas over its limit; 0, or no number, where there is none."""
    return replicas * unit.devices * unit.stock.usd / limits.usd_per_hour


def _at_once(pool: Pool) -> int:
    """Requests that all ranks and stages of a pool work on at a time."""
    split = pool.parallelism
    return pool.workers * split.attention_data * split.pipeline


def fewest_of_each(
    units: Sequence[Unit], pricing: Pricing, limits: ServingLimits, *, fastest: bool = False
) -> list[ServingOption]:
    """As `fewest_replicas`, of layouts with several schedulers.

    Schedulers after the first of a layout are tried with at most as many replicas as that needs,
    and not at all where fewer cannot do and the time of a request is not what is to be least.
    """
    first: dict[tuple[object, ...], int] = {}
    for row, unit in enumerate(units):
        first.setdefault(layout_of(unit), row)
    options = fewest_replicas([units[row] for row in first.values()], pricing, limits)
    known = dict(zip(first, options, strict=True))
    others, found = [], list(options)
    for unit in (own for row, own in enumerate(units) if first[layout_of(own)] != row):
        own = known[layout_of(unit)]
        if own.over:
            others.append(unit)
        elif fastest or own.replicas > unit.fewest:
            others.append(replace(unit, most=own.replicas, beaten=True))
        else:
            found.append(ServingOption(unit, own.replicas, {}, {SCHEDULER: 1.0}))
    return [*found, *fewest_replicas(others, pricing, limits)]


def fewest_replicas(
    units: Sequence[Unit], pricing: Pricing, limits: ServingLimits
) -> list[ServingOption]:
    """Each replica with the smallest number of it that keeps the times and the rate.

    Those that never do have what they miss with the fewest that keep up with the rate.
    """
    searches = [_Search(own, own.most if own.beaten else own.fewest, own.fewest - 1)
                for own in units]  # fmt: skip
    asked = [own for own in searches if 0 < own.tried <= own.unit.most]
    while asked:
        shares = [own.unit.share(own.tried) for own in asked]
        for own, found in zip(asked, pricing.figures(shares), strict=True):
            own.learn(found, limits)
        asked = [own for own in asked if own.tried]
    return [own.option(limits) for own in searches]


@dataclass
class _Search:
    """How many of a replica are needed: up to `low` are too few, `high` is enough.

    Attributes:
        unit: the replica.
        tried: the number that is tried next; 0 where nothing is left to try.
        low, high: bounds; `high` is 0 where none was enough yet.
        held: the option at `high`.
        first: the option with the fewest that keep up with the rate, which misses something.
    """

    unit: Unit
    tried: int
    low: int
    high: int = 0
    held: ServingOption | None = None
    first: ServingOption | None = None

    def learn(self, found: Figures | InputError, limits: ServingLimits) -> None:
        """Take the figures at the tried number, and choose the next."""
        tried, unit = self.tried, self.unit
        self.tried = 0
        needed = None if isinstance(found, InputError) else _needed(unit, found.capacity, limits)
        if isinstance(found, InputError) or needed is None:
            self.first = ServingOption(unit, tried, {}, {UNKNOWN: 1.0})
            if isinstance(found, InputError):
                self.first = replace(self.first, why=str(found).rstrip("."))
            return
        option = ServingOption(unit, tried, found.estimates, _over(found.estimates, limits))
        if needed > tried:
            self.low = needed - 1
        elif not option.over:
            self.high, self.held = tried, option
        else:
            self.low, self.first = tried, self.first or option
            if UNKNOWN in option.over:
                return
        self.tried = self._next()

    def _next(self) -> int:
        """The next number; 0 where the smallest is known, or there is none."""
        if self.high:
            middle = (self.low + self.high) // 2
            if self.first is not None:
                middle = min(ceil(GROWTH * self.low), middle)
            number = max(middle, self.low + 1)
            return number if number < self.high else 0
        # What misses a time with all devices that there are, at the least load, always does.
        number = self.low + 1 if self.first is None else self.unit.most
        return number if self.low < number <= self.unit.most else 0

    def option(self, limits: ServingLimits) -> ServingOption:
        """What was found."""
        found = self.held or self.first
        if self.held is None and self.unit.beaten:
            return ServingOption(self.unit, self.unit.most, {}, {SCHEDULER: 1.0})
        if found is None:  # there are not enough devices to keep up with the rate
            return ServingOption(self.unit, self.unit.most, {}, {STOCK: 1.0})
        found = replace(found, fewer=None if found is self.first else self.first)
        return _with_price(found, limits)


def _needed(unit: Unit, capacity: Estimate | None, limits: ServingLimits) -> int | None:
    """Replicas that keep up with the rate; None where the capacity is not known."""
    rate = _rate_of(unit.query)
    if capacity is None or (limits.risk == "upper" and not capacity.low):
        return None
    if limits.risk == "upper":
        return ceil(rate / (capacity.low or capacity.value) * (1.0 - 1e-12))
    return floor(rate / capacity.value) + 1


def _over(estimates: Mapping[str, Estimate], limits: ServingLimits) -> dict[str, float]:
    """Limit of a time that is missed -> how many times over, the most first."""
    found = {}
    for name, most in limits.times.items():
        own = estimates.get(name)
        end = None if own is None else limits.end(own)
        if own is None or end is None:
            return {UNKNOWN: 1.0}
        if end > most:
            found[name] = end / most
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def tail_of(metric: str, percent: int = 99) -> str:
    """Name of a percentile of a time."""
    return f"{metric.removesuffix('_ms')}_p{percent}_ms"


def mean_of(name: str) -> str:
    """Name of the mean of a time by that of a percentile, or of the mean."""
    return re.sub(r"_p\d\d_ms$", "_ms", name)


def _checked(
    options: Sequence[ServingOption],
    tails: Tails,
    pricing: Pricing,
    limits: ServingLimits,
    objective: ServingObjective,
    failed: Counter[str],
) -> tuple[list[ServingOption], list[ServingOption]]:
    """Of the first options, those that keep percentiles, too, best first; and those that miss
    something by them.
    """
    checked: list[ServingOption] = []
    for one in options[:MOST_CHECKED]:
        least = min((own.cost(objective) for own in checked if not own.over), default=inf)
        if len(checked) >= CHECKED and one.cost(objective) >= least:
            break
        checked.append(_with_tails(one, tails, limits))
    failed[UNCHECKED] += len(options) - len(checked)
    found = _with_power(checked, pricing, limits)
    late = [one for one in found if one.over]
    failed.update(next(iter(one.over)) for one in late)
    return _by_cost((one for one in found if not one.over), objective), late


def _with_tails(option: ServingOption, tails: Tails, limits: ServingLimits) -> ServingOption:
    """An option with the fewest replicas, of as many or more, that also keep what the event model
    answers; or with what it misses with as many.

    Upper ends are as far above that as of the mean of all requests.
    """
    most = most_of(option.unit)

    def of(replicas: int) -> ServingOption:
        found = tails.figures_ms(option.unit.share(replicas), replicas)
        over = {}
        for name, limit in limits.tails.items():
            own = option.estimates[mean_of(name).rpartition(".")[2]]
            end = found[name] * (limits.end(own) or own.value) / own.value
            if end > limit:
                over[name] = end / limit
        over = dict(sorted(over.items(), key=lambda item: -item[1]))
        unit = replace(option.unit, fewest=replicas, most=most, beaten=False)
        return replace(option, unit=unit, replicas=replicas, over=over, tails=found)

    first = of(option.replicas)
    if not first.over or most <= option.replicas or of(most).over:
        return first
    low, held = option.replicas, None
    while held is None or held.replicas - low > 1:
        middle = min(ceil(GROWTH * low), most) if held is None else (low + held.replicas) // 2
        tried = of(middle)
        low, held = (middle, held) if tried.over else (low, tried)
    return _with_price(replace(held, fewer=first), limits)


def _with_power(
    options: Sequence[ServingOption], pricing: Pricing, limits: ServingLimits
) -> list[ServingOption]:
    """The options with the power of their devices, and whether it keeps its limit."""
    shares = [one.unit.share(one.replicas) for one in options]
    found = []
    for one, own in zip(options, pricing.figures(shares, with_power=True), strict=True):
        assert not isinstance(own, InputError), "it was answered without power"
        option, over = replace(one, estimates=own.estimates), dict(one.over)
        if limits.power_w < inf and not over:
            power = own.estimates.get(POWER)
            watts = 0.0 if power is None else limits.end(power) or power.value
            if power is None:
                option, over = replace(option, why=NO_POWER), {UNKNOWN: 1.0}
            elif one.devices * watts > limits.power_w:
                over = {POWER: one.devices * watts / limits.power_w}
        found.append(replace(option, over=over))
    return found


def _with_wins(
    best: Sequence[ServingOption],
    pricing: Pricing,
    limits: ServingLimits,
    objective: ServingObjective,
    seed: int,
) -> list[ServingOption]:
    """The same options with the share of draws that each wins.

    Layouts on devices of one type share most of their error. Between best estimates and the upper
    ends of intervals, the logarithm of the number of replicas is linear in the deviate of the
    error; it is at least what the sheet asks for.
    """
    if len(best) < 2:
        return [replace(one, wins=1.0) for one in best]
    names, types = np.unique([_same_error(one.unit.query.device) for one in best],
                             return_inverse=True)  # fmt: skip
    normal = np.random.default_rng(seed).standard_normal((DRAWS, len(names) + len(best)))
    shared, own = normal[:, types], normal[:, len(names) :]
    deviates = SHARED**0.5 * shared + (1.0 - SHARED) ** 0.5 * own
    logs = np.log([one.cost(objective) for one in best])
    if objective == "speed":
        drawn = logs + deviates * np.array([_spread(one.estimates[LATENCY]) for one in best])
    else:
        few, many = (
            np.log(_replicas(best, pricing, replace(limits, risk=risk)))
            for risk in ("value", "upper")
        )
        least = np.log([one.unit.fewest for one in best])
        number = np.maximum(few + deviates * (many - few) / HALF_WIDTH, least)
        whole = np.log(np.ceil(np.exp(number) * (1.0 - SAME)))
        drawn = logs - np.log([one.replicas for one in best]) + whole
    wins = wins_of(drawn).tolist()
    return [replace(one, wins=share) for one, share in zip(best, wins, strict=True)]


def _same_error(device: Device) -> str:
    """What devices with mostly the same error have in common: of processors, their cores."""
    return device.architecture or device.name if device.kind == "cpu" else device.name


def _replicas(best: Sequence[ServingOption], pricing: Pricing, limits: ServingLimits) -> Column:
    """Replicas of n options that other limits ask for; all that are tried where none do, (n,)."""
    units = [replace(one.unit, beaten=False, most=most_of(one.unit)) for one in best]
    found = fewest_replicas(units, pricing, limits)
    return np.array([own.unit.most if own.over else own.replicas for own in found], dtype=float)


def most_of(unit: Unit) -> int:
    """Replicas of a unit that there are devices for."""
    return unit.stock.at_hand // unit.devices


def _spread(own: Estimate) -> float:
    """Standard deviation of the logarithm of an estimate, by the upper end of its interval."""
    return 0.0 if not own.high else log(own.high / own.value) / HALF_WIDTH
