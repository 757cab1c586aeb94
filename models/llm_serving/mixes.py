"""Which requests go to which type of device, and how many replicas of each, at least cost.

Requests are grouped by their lengths. Of each group, a replica keeps up with some rate within the
limits; one that serves several groups is busy for the sum of their rates over these. An integer
programme finds the numbers of replicas and how many slices of each group go to each kind (Melange,
arXiv 2404.14527; solved by HiGHS).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import inf, isfinite
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import Engine, RequestLoad
from forerun.data.language_models.model import LanguageModel
from forerun.models.llm_serving.plans import (
    MOST_DEVICES,
    Figures,
    Pricing,
    ServingLimits,
    ServingOption,
    Stock,
    Unit,
    at_rate,
    keeps,
    layout_of,
    may_keep,
    no_cost,
)

MixObjective = Literal["price", "devices"]
MOST_GROUPS: Final = 24
"""Groups of lengths at most."""
STEPS: Final = 64
"""Parts of the capacity in which the rate that keeps the limits is sought."""
SLICES: Final = 8
"""Parts of a group that may go to different replicas, as in Melange. With any share in their place,
HiGHS 1.12 writes lines to standard output."""
MOST_NODES: Final = 500
"""Nodes of the search after which the best mix that was found is taken."""


@dataclass(frozen=True, slots=True)
class Change:
    """What it costs to change how many devices of each type run.

    Attributes:
        cost: of each device that starts or stops, in the unit of what is minimised.
        most: devices that start or stop at most.
    """

    cost: float = 0.0
    most: float = inf


@dataclass(frozen=True, slots=True)
class Mix:
    """Replicas that together serve all requests.

    Attributes:
        parts: those of each kind, k of them; empty where nothing serves all.
        shares: share of each of n groups that goes to each kind, (k, n).
        singles: type of device -> cost of serving all with it alone; infinite where it cannot.
        cost: USD an hour, or devices; infinite where nothing serves all.
        changes: type of device -> how many more run than now; None where none runs now.
    """

    parts: tuple[ServingOption, ...]
    shares: Matrix
    singles: Mapping[str, float]
    cost: float
    changes: Mapping[str, int] | None = None

    @property
    def saving(self) -> float | None:
        """Share of the cost of the best single type that is saved; None where none serves all."""
        best = min(self.singles.values(), default=inf)
        return 1.0 - self.cost / best if isfinite(best) and best > 0.0 else None


NO_MIX: Final = Mix((), np.zeros((0, 0)), {}, inf)
"""Where nothing serves all."""


def grouped(
    load: RequestLoad, inputs: Column, outputs: Column, weights: Column
) -> list[RequestLoad]:
    """Requests by lengths that differ by a factor of two at most, or of more in many groups.

    Args:
        load: all requests.
        inputs: length of the prompt of each of n requests, tokens, (n,).
        outputs: length of the answer of each, tokens, (n,).
        weights: how many of each there are, in any unit, (n,).
    """
    lengths = np.stack([inputs, outputs]).astype(float)
    logs, ratio = np.log2(np.maximum(lengths, 1.0)), 1.0
    while True:
        _, cell = np.unique(np.floor(logs / ratio), axis=1, return_inverse=True)
        cell, number = cell.reshape(-1), int(cell.max()) + 1
        if number <= MOST_GROUPS:
            break
        ratio *= 1.5
    totals = np.bincount(cell, weights)
    means = [np.bincount(cell, weights * own) / totals for own in lengths]
    spreads = [
        np.sqrt(np.bincount(cell, weights * (own - mean[cell]) ** 2) / totals) / mean
        for own, mean in zip(lengths, means, strict=True)
    ]
    rates = (load.requests_per_s or 0.0) * totals / totals.sum()
    columns = np.stack([*means, rates, *spreads], axis=1).tolist()
    return [
        RequestLoad(given_in, given_out, None, rate, load.cached_share, varied_in, varied_out)
        for given_in, given_out, rate, varied_in, varied_out in columns
    ]


def mix(
    models: Sequence[LanguageModel],
    loads: Sequence[RequestLoad],
    engines: Sequence[Engine],
    stocks: Sequence[Stock],
    pricing: Pricing,
    *,
    limits: ServingLimits,
    objective: MixObjective = "price",
    apart: bool = False,
    change: Change = Change(),
) -> Mix:
    """The mix of replicas that serves requests of several lengths at least cost.

    Args:
        models: the model in each number format to choose from.
        loads: lengths and rate of each of n groups of requests.
        engines: settings to choose from; limits of the scheduler that they do not give are its
            defaults.
        stocks: types of devices to choose from.
        pricing: what answers times and capacity.
        limits: what must hold of each group, and the most price; not the power.
        objective: what is minimised.
        apart: whether pools of their own for prompts are tried too.
        change: what it costs to start and stop devices.
    """
    stocks = [one for one in stocks if no_cost(one, limits, objective) is None]
    pairs = [
        (place, unit)
        for place, load in enumerate(loads)
        for unit in may_keep(models, load, engines, stocks, limits, apart=apart)
    ]
    units, rates = _with_spot(*_priced(pairs, len(loads), pricing, limits))
    demand = np.array([load.requests_per_s or 0.0 for load in loads])
    names = [unit.query.device.name for unit in units]
    found = {
        name: _solved([own == name for own in names], units, rates, demand, limits, objective)
        for name in dict.fromkeys(one.device.name for one in stocks)
    }
    current = {one.device.name: one.current for one in stocks}
    stopped = sum(now for name, now in current.items() if name not in names)
    left = replace(change, most=change.most - stopped)
    every = _solved([True] * len(units), units, rates, demand, limits, objective, left)

    def changes(one: Mix) -> dict[str, int]:
        runs: Counter[str] = Counter()
        for part in one.parts:
            runs[part.unit.query.device.name] += part.devices
        return {name: runs[name] - now for name, now in current.items() if runs[name] != now}

    def cost(one: Mix) -> float:
        moved = sum(map(abs, changes(one).values()))
        return one.cost + change.cost * moved if moved <= change.most else inf

    best = min(every, *found.values(), key=cost)
    if not isfinite(cost(best)):
        best = NO_MIX
    singles = {name: one.cost for name, one in found.items()}
    moved = changes(best) if best.parts and any(current.values()) else None
    return replace(best, singles=singles, changes=moved)


def _with_spot(units: Sequence[Unit], rates: Matrix) -> tuple[list[Unit], Matrix]:
    """Replicas with those on spot devices, which serve the same rates."""
    rows = [row for row, unit in enumerate(units) if unit.stock.spot]
    spot = [replace(units[row], stock=units[row].stock.spot or units[row].stock) for row in rows]
    return [*units, *spot], np.concatenate([rates, rates[rows]])


def _priced(
    pairs: Sequence[tuple[int, Unit]], groups: int, pricing: Pricing, limits: ServingLimits
) -> tuple[list[Unit], Matrix]:
    """Replicas, k of them, and the rate of each of n groups that one keeps up with, (k, n).

    Larger replicas of a type are tried until they serve no group at a higher rate per device.
    """
    units: dict[object, Unit] = {}
    rates: dict[object, Column] = {}
    best: dict[str, Column] = {}
    done: set[str] = set()
    for devices in sorted({unit.devices for _, unit in pairs}):
        own = [(place, unit) for place, unit in pairs
               if unit.devices == devices and unit.query.device.name not in done]  # fmt: skip
        before = dict(best)
        found = rates_of([unit for _, unit in own], pricing, limits).tolist()
        for (place, unit), rate in zip(own, found, strict=True):
            key, name = layout_of(unit), unit.query.device.name
            units.setdefault(key, unit)
            rates.setdefault(key, np.zeros(groups))[place] = rate
            best[name] = np.maximum(best.get(name, np.zeros(groups)), rates[key] / devices)
        done |= {n for n, most in before.items() if most.all() and (best[n] <= most).all()}
    return list(units.values()), np.array(list(rates.values())).reshape(-1, groups)


def rates_of(units: Sequence[Unit], pricing: Pricing, limits: ServingLimits) -> Column:
    """Largest rate of each of n replicas with which the times hold, requests a second, (n,).

    It is sought in steps of the capacity; 0 where not even the first keeps the limits.
    """
    idle = pricing.figures([unit.share(MOST_DEVICES) for unit in units]) if units else []
    ends = np.array([_end(own, limits) for own in idle])
    kept, step = np.zeros(len(units)), STEPS
    while step := step // 2:
        rows = np.flatnonzero(ends > 0.0).tolist()
        tried = [at_rate(units[row].query, ends[row] * (kept[row] + step) / STEPS) for row in rows]
        for row, own in zip(rows, pricing.figures(tried) if tried else [], strict=True):
            if not isinstance(own, InputError) and keeps(own.estimates, limits):
                kept[row] += step
    return np.asarray(ends * kept / STEPS)


def _end(found: Figures | InputError, limits: ServingLimits) -> float:
    """The end of the capacity that counts; 0 where it is not known."""
    if isinstance(found, InputError) or found.capacity is None:
        return 0.0
    own = found.capacity
    return (own.low if limits.risk == "upper" else own.value) or 0.0


def _solved(
    kept: Sequence[bool],
    units: Sequence[Unit],
    rates: Matrix,
    demand: Column,
    limits: ServingLimits,
    objective: MixObjective,
    change: Change = Change(),
) -> Mix:
    """The best mix of the replicas that are kept."""
    own = [*compress(units, kept)]
    devices = np.array([unit.devices for unit in own], dtype=float)
    usd = devices * np.array([unit.stock.usd for unit in own])
    stocks = [*dict.fromkeys(unit.stock for unit in own)]
    uses = [devices * [unit.stock == one for unit in own] for one in stocks]
    most = [float(one.at_hand) for one in stocks]
    if limits.usd_per_hour < inf:
        uses, most = [*uses, usd], [*most, limits.usd_per_hour]
    cost = usd if objective == "price" else devices
    moved = None
    if change != Change():
        names = np.array([unit.query.device.name for unit in own])
        now = {one.device.name: float(one.current) for one in stocks}
        moved = Moved(change, [devices * (names == name) for name in now], [*now.values()])
    found = least_cost(cost, rates[np.array(kept, dtype=bool)], demand, uses, most, moved)
    if found is None:
        return NO_MIX
    numbers, shares = found
    parts = [ServingOption(unit, int(one), {}) for unit, one in zip(own, numbers, strict=True)]
    taken = tuple(one for one in parts if one.replicas)
    return Mix(taken, shares[numbers > 0.0], {}, float(cost @ numbers))


class Moved(NamedTuple):
    """Devices that start and stop.

    Attributes:
        change: what they cost.
        uses: devices of one replica of each kind that are of each of t types, t of (k,).
        current: devices of each type that run now.
    """

    change: Change
    uses: Sequence[Column]
    current: Sequence[float]


def least_cost(
    cost: Column,
    rates: Matrix,
    demand: Column,
    uses: Sequence[Column],
    most: Sequence[float],
    moved: Moved | None = None,
) -> tuple[Column, Matrix] | None:
    """Numbers of k kinds of replicas, (k,), and the share of n groups of each, (k, n).

    Args:
        cost: of one replica of each kind, (k,).
        rates: rate of each group that one keeps up with, requests a second, (k, n); 0 for none.
        demand: rate of each group, requests a second, (n,).
        uses: what one replica of each kind takes of each of m supplies, m of (k,).
        most: the m supplies.
        moved: what starts and stops; None where that costs nothing.

    Returns:
        None where no mix serves all.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    kinds, groups = rates.shape
    if not kinds or not (rates > 0.0).any(axis=0).all():
        return None
    able = rates > 0.0
    busy = np.divide(demand, SLICES * rates, where=able, out=np.zeros_like(rates))
    own, none = np.eye(kinds), np.zeros((groups, kinds))
    of_each = (own[:, :, np.newaxis] * busy[:, np.newaxis]).reshape(kinds, -1)
    rows: list[tuple[Any, Any, Any]] = [
        (np.hstack([-own, of_each]), -inf, 0.0),
        (np.hstack([none, np.tile(np.eye(groups), kinds)]), SLICES, SLICES),
        (np.array(uses), -inf, most),
    ]
    weights = np.concatenate([cost, np.zeros(kinds * groups)])
    ends = np.concatenate([np.full(kinds, inf), SLICES * able.ravel()])
    if moved is not None:
        rows += _rows_of(moved, len(weights))
        types = len(moved.current)
        weights = np.concatenate([weights, np.full(types, moved.change.cost)])
        ends = np.concatenate([ends, np.full(types, inf)])
    width = len(weights)
    found = milp(
        weights,
        integrality=np.ones(width),
        bounds=Bounds(0.0, ends),
        constraints=[
            LinearConstraint(np.pad(matrix, ((0, 0), (0, width - matrix.shape[1]))), low, high)
            for matrix, low, high in rows
        ],
        options={"node_limit": MOST_NODES},
    )
    if found.x is None:
        return None
    whole = np.round(found.x[: kinds * (groups + 1)])
    return whole[:kinds], whole[kinds:].reshape(kinds, groups) / SLICES


def _rows_of(moved: Moved, before: int) -> Iterator[tuple[Any, Any, Any]]:
    """Constraints by a variable of each type, which is at least the devices that start and at
    least those that stop; there are so many variables before these.
    """
    taken = np.pad(moved.uses, ((0, 0), (0, before - len(moved.uses[0]))))
    own = np.eye(len(moved.current))
    yield np.hstack([taken, -own]), -inf, moved.current
    yield np.hstack([taken, own]), moved.current, inf
    yield np.hstack([np.zeros(before), np.ones(len(own))])[np.newaxis], -inf, moved.change.most
