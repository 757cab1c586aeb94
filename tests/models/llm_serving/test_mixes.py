"""Mixes of types: laws of the programme, and agreement with trying every mix."""

from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np
import pytest

from forerun.data.language_models.deployment import Engine, RequestLoad
from forerun.data.query import Query
from forerun.models.llm_serving import mixes
from forerun.models.llm_serving.mixes import Change, Mix, grouped, least_cost, mix, rates_of
from forerun.models.llm_serving.plans import ServingLimits, Stock, keeps, units_of
from tests.models.llm_serving.test_plans import CATALOG, LLAMA, Formula, Made

SMALL, LARGE = RequestLoad(100.0, 100.0, None, 12.0), RequestLoad(6000.0, 500.0, None, 2.0)
STOCKS = [Stock(CATALOG.get("l4"), None, 0.4), Stock(CATALOG.get("h100-sxm-80gb"), None, 7.0)]
LIMITS = ServingLimits({"tpot_ms": 600.0})


@dataclass
class Sized(Formula):
    """Small devices lose more by long requests."""

    def _one(self, query: Query, with_power: bool) -> Made:
        made = super()._one(query, with_power)
        load, gbs = query.deployment.load, query.device.bandwidth_gbs
        slower = 1.0 + (load.input_tokens + load.output_tokens) / gbs
        assert made.capacity is not None
        capacity = replace(
            made.capacity, value=made.capacity.value / slower, low=made.capacity.low / slower
        )
        return Made(made.estimates, capacity)


def mixed(
    *loads: RequestLoad, stocks: list[Stock] = STOCKS, limits: ServingLimits = LIMITS, **asked
) -> Mix:
    """A mix by the formula."""
    return mix([LLAMA], loads, [Engine()], stocks, Sized(), limits=limits, **asked)


def scaled(times: float) -> list[RequestLoad]:
    """Traffic so many times as large."""
    return [replace(own, requests_per_s=times * own.requests_per_s) for own in (SMALL, LARGE)]


def drawn(seed: int) -> tuple[np.ndarray, ...]:
    """A small programme: costs, rates, demands, uses and supplies."""
    generator = np.random.default_rng(seed)
    cost = generator.uniform(1.0, 5.0, 3)
    rates = generator.uniform(0.5, 4.0, (3, 2)) * (generator.random((3, 2)) > 0.2)
    return cost, rates, generator.uniform(0.5, 4.0, 2), np.eye(3), np.array([2.0, 2.0, 3.0])


def tried(cost, rates, demand, most) -> float:
    """The least cost over all numbers of replicas and all ways to deal out the slices."""
    parts = range(mixes.SLICES + 1)
    ways = [own for own in product(parts, repeat=3) if sum(own) == mixes.SLICES]
    least = inf
    for dealt in product(ways, repeat=2):
        shares = np.array(dealt).T / mixes.SLICES
        if (shares[rates == 0.0] > 0.0).any():
            continue
        busy = (shares * demand / np.where(rates > 0.0, rates, 1.0)).sum(axis=1)
        numbers = np.ceil(busy - 1e-9)
        if (numbers <= most).all():
            least = min(least, float(cost @ numbers))
    return least


@pytest.mark.parametrize("seed", range(12))
def test_the_programme_finds_the_least_cost_of_all_mixes(seed):
    cost, rates, demand, uses, most = drawn(seed)
    found, least = least_cost(cost, rates, demand, uses, most), tried(cost, rates, demand, most)
    assert (found is None) == (least == inf)
    if found is not None:
        numbers, shares = found
        assert float(cost @ numbers) == pytest.approx(least)
        assert shares.sum(axis=0) == pytest.approx(1.0)
        assert (numbers <= most).all()
        assert not shares[rates == 0.0].any()


@pytest.mark.parametrize("seed", [70, 94, 104])
def test_the_programme_writes_nothing_to_standard_output(seed, capfd):
    generator = np.random.default_rng(seed)
    devices = np.tile([1.0, 2.0], 3)
    cost = np.repeat([0.7, 1.01, 3.67], 2) * devices
    rates = cost[:, np.newaxis] * generator.uniform(0.5, 1.5, (6, 8))
    least_cost(cost, rates, generator.uniform(0.1, 1.0, 8), [devices], [1024.0])
    assert capfd.readouterr().out == ""


def test_a_mix_is_never_dearer_than_one_type_and_sometimes_cheaper():
    savings = []
    for times in (0.1, 0.5, 1.0, 2.0, 5.0):
        found = mixed(*scaled(times))
        assert found.cost <= min(found.singles.values())
        savings.append(found.saving)
    assert max(savings) > 0.02


def test_each_type_alone_costs_what_a_mix_of_it_alone_does():
    found = mixed(SMALL, LARGE)
    for stock in STOCKS:
        assert found.singles[stock.device.name] == mixed(SMALL, LARGE, stocks=[stock]).cost


@pytest.mark.parametrize("objective", ["price", "devices"])
def test_more_traffic_is_never_cheaper(objective):
    costs = [mixed(*scaled(times), objective=objective).cost for times in (0.2, 0.7, 1.0, 1.5, 4)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_every_group_is_served_and_no_replica_is_too_busy():
    loads = scaled(3.0)
    found = mixed(*loads)
    assert found.shares.sum(axis=0) == pytest.approx(1.0)
    for part, shares in zip(found.parts, found.shares, strict=True):
        units = [
            replace(part.unit, query=replace(part.unit.query, workload=replace(
                part.unit.query.deployment, load=load)))
            for load in loads
        ]  # fmt: skip
        rates = rates_of(units, Sized(), LIMITS)
        busy = sum(
            share * load.requests_per_s / rate
            for share, load, rate in zip(shares, loads, rates, strict=True)
            if share
        )
        assert busy <= part.replicas * (1.0 + 1e-6)


def test_no_more_devices_are_taken_than_there_are():
    free = mixed(*scaled(2.0))
    taken = {part.unit.query.device.name: 0 for part in free.parts}
    for part in free.parts:
        taken[part.unit.query.device.name] += part.devices
    scarce = next(name for name, count in taken.items() if count > 1)
    most = taken[scarce] - 1
    stocks = [replace(s, most=most if s.device.name == scarce else None) for s in STOCKS]
    found = mixed(*scaled(2.0), stocks=stocks)
    used = sum(p.devices for p in found.parts if p.unit.query.device.name == scarce)
    assert used <= most
    assert found.cost >= free.cost


def test_a_budget_is_kept_or_nothing_is_found():
    cost = mixed(SMALL, LARGE).cost
    assert mixed(SMALL, LARGE, limits=replace(LIMITS, usd_per_hour=cost + 0.01)).cost == cost
    assert not mixed(SMALL, LARGE, limits=replace(LIMITS, usd_per_hour=cost - 0.01)).parts


def test_a_rate_keeps_the_limits_and_the_next_step_does_not():
    load = replace(SMALL, requests_per_s=1.0)
    units = [own for stock in STOCKS for own in units_of(LLAMA, load, Engine(), stock)]
    pricing, limits = Sized(), ServingLimits({"tpot_ms": 45.0})
    rates = rates_of(units, pricing, limits)
    capacities = [own.capacity.low for own in pricing.figures([unit.query for unit in units])]
    inside = 0
    for unit, rate, most in zip(units, rates, capacities, strict=True):
        step = most / mixes.STEPS
        at = [
            keeps(pricing.figures([unit.share(1.0 / own)])[0].estimates, limits)
            for own in (max(rate, step), rate + step)
        ]
        assert at == [rate > 0.0, False] or rate == pytest.approx(most - step)
        inside += 0.0 < rate < most - 2 * step
    assert inside


def test_groups_have_the_traffic_of_all():
    generator = np.random.default_rng(3)
    lengths = np.exp(generator.normal(6.0, 1.5, (2, 5000)))
    load = RequestLoad(1.0, 1.0, None, 7.0, 0.25)
    found = grouped(load, *lengths, np.ones(5000))
    rates = np.array([own.requests_per_s for own in found])
    assert 4 < len(found) <= mixes.MOST_GROUPS
    assert rates.sum() == pytest.approx(7.0)
    means = [(own.input_tokens, own.output_tokens) for own in found]
    assert rates @ np.array(means) / 7.0 == pytest.approx(lengths.mean(axis=1))
    assert {own.cached_share for own in found} == {0.25}


L4, H100 = STOCKS


def with_spot(count: int | None, usd: float = 0.15) -> list[Stock]:
    """L4 at a spot price, so many of them."""
    return [replace(L4, spot=Stock(L4.device, count, usd, is_spot=True)), H100]


def test_more_spot_devices_are_never_dearer_and_no_more_are_taken_than_there_are():
    free = mixed(*scaled(3.0))
    found = {count: mixed(*scaled(3.0), stocks=with_spot(count)) for count in (1, 2, 4, 16, None)}
    costs = [free.cost, *(one.cost for one in found.values())]
    assert costs == sorted(costs, reverse=True) and costs[-1] < costs[0]
    for count, own in found.items():
        spot = [part for part in own.parts if part.unit.stock.is_spot]
        assert sum(part.devices for part in spot) <= (count or inf)
        assert own.cost == pytest.approx(sum(part.usd_per_hour for part in own.parts))
    assert spot


def running(found: Mix) -> list[Stock]:
    """The devices, of which a mix runs now."""
    counts = {stock.device.name: 0 for stock in STOCKS}
    for part in found.parts:
        counts[part.unit.query.device.name] += part.devices
    return [replace(stock, current=counts[stock.device.name]) for stock in STOCKS]


def test_without_a_cost_of_change_the_mix_is_that_of_today():
    for times in (0.2, 1.0, 2.0):
        now = running(mixed(*scaled(3.0)))
        assert mixed(*scaled(times), stocks=now).parts == tuple(
            replace(part, unit=replace(part.unit, stock=stock))
            for part in mixed(*scaled(times)).parts
            for stock in now
            if stock.device == part.unit.query.device
        )


@pytest.mark.parametrize("times", [0.2, 1.7, 5.0])
def test_a_dearer_change_never_moves_more_devices(times):
    """And no move at all where the load is the same; a price has to make up for each."""
    now = running(mixed(*scaled(1.0)))
    moved, costs = [], []
    for price in (0.0, 0.3, 3.0, 1000.0):
        found = mixed(*scaled(times), stocks=now, change=Change(price))
        moved.append(sum(map(abs, found.changes.values())))
        costs.append(found.cost)
    assert moved == sorted(moved, reverse=True) and costs == sorted(costs)
    assert mixed(*scaled(1.0), stocks=now, change=Change(1.0)).changes == {}


def test_devices_that_cannot_serve_stop_and_count_as_moved():
    """A type that is too small for the model."""
    t4 = Stock(CATALOG.get("t4").model_copy(update={"memory_gib": 4.0}), None, 0.1, current=3)
    now = [*running(mixed(*scaled(1.0))), t4]
    assert not mixed(*scaled(1.0), stocks=now, change=Change(most=2)).parts
    found = mixed(*scaled(1.0), stocks=now, change=Change(most=3))
    assert found.changes == {"t4": -3}


def test_no_more_devices_move_than_may():
    now = running(mixed(*scaled(1.0)))
    free = mixed(*scaled(5.0), stocks=now)
    most = sum(map(abs, free.changes.values()))
    costs = []
    for limit in (0, most // 2, most - 1, most):
        found = mixed(*scaled(5.0), stocks=now, change=Change(most=limit))
        if found.parts:
            assert sum(map(abs, found.changes.values())) <= limit
        costs.append(found.cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == inf and costs[-1] == pytest.approx(free.cost)
