"""Pipelines: rates and times of items that pass through stages and links, each of which is a queue.

Arrivals are Poisson. Waits are those of a GI/G/m queue (Allen and Cunneen, with Sakasegawa's M/M/m
and the correction of Kraemer and Langenbach-Belz); the variability of what leaves a queue follows
from what enters it, as in the queueing network analyzer of Whitt (Bell Syst. Tech. J. 62, 1983).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.errors import BadRequest

CLOSE: Final = 1e-9
"""Relative difference below which flows are equal."""


@dataclass(frozen=True, slots=True)
class Station:
    """A stage or a link: a queue before equal servers.

    Attributes:
        call_s: (3,) time of a call: best estimate, lower and upper end, seconds.
        servers: calls that run at once.
        items: items of one call.
        variation: standard deviation of the time of calls over its mean.
        after: names of the stations whose items enter.
        share: share of those items that enter; the others leave the pipeline.
        joins: whether a call waits for an item of each station before it; else each item of any
            passes by itself.
        delay_s: time that passes after a call while its server is free again.
    """

    call_s: Column
    servers: float = 1.0
    items: int = 1
    variation: float = 0.0
    after: tuple[str, ...] = ()
    share: float = 1.0
    joins: bool = True
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """What passes through a pipeline.

    Attributes:
        capacity_per_s: station -> (3,) items that enter the pipeline while it is always busy, 1/s;
            infinite for one that takes no time.
        throughput_per_s: (3,) least of these.
        bottleneck: station with the least best estimate.
        latency_s: (3,) time of an item that nothing delays, on the slowest path.
    """

    capacity_per_s: Mapping[str, Column]
    throughput_per_s: Column
    bottleneck: str
    latency_s: Column


def ordered(stations: Mapping[str, Station]) -> list[tuple[str, Station]]:
    """Names and stations, each after those whose items enter it.

    Raises:
        BadRequest: there is a cycle.
    """
    after = TopologicalSorter({name: station.after for name, station in stations.items()})
    try:
        return [(name, stations[name]) for name in after.static_order()]
    except CycleError as error:
        raise BadRequest(f"links: {', '.join(error.args[1])} is a cycle.") from None


def visits_of(stations: Mapping[str, Station]) -> dict[str, float]:
    """Items that enter each station for each one that enters the pipeline, in topological order.

    Raises:
        BadRequest: there is a cycle, or a call waits for items of unequal flows.
    """
    found: dict[str, float] = {}
    for name, station in ordered(stations):
        entering = [found[before] for before in station.after] or [1.0]
        if station.joins and max(entering) > min(entering) * (1.0 + CLOSE):
            raise BadRequest(f"links: {name} gets unequal shares; joins any lets each item pass.")
        found[name] = station.share * (entering[0] if station.joins else sum(entering))
    return found


def flow_of(stations: Mapping[str, Station]) -> Flow:
    """Rates and times of a pipeline without queues."""
    visits = visits_of(stations)
    with np.errstate(divide="ignore"):
        capacity = {
            name: one.servers * one.items / visits[name] / one.call_s[[0, 2, 1]]
            for name, one in stations.items()
        }
    return Flow(
        capacity_per_s=capacity,
        throughput_per_s=np.min(list(capacity.values()), axis=0),
        bottleneck=min(capacity, key=lambda name: float(capacity[name][0])),
        latency_s=slowest_path_s(stations, dict.fromkeys(stations, np.zeros(3))),
    )


def slowest_path_s(stations: Mapping[str, Station], waits_s: Mapping[str, Column]) -> Column:
    """Time from entering a pipeline until its slowest station is done, (3,).

    Args:
        stations: name -> station.
        waits_s: name -> (3,) time before a call.
    """
    done: dict[str, Column] = {}
    for name, one in ordered(stations):
        begins = [done[before] for before in one.after] or [np.zeros(3)]
        done[name] = np.max(begins, axis=0) + waits_s[name] + one.call_s + one.delay_s
    return np.asarray(np.max(list(done.values()), axis=0))


def waits_at(stations: Mapping[str, Station], rate_per_s: float) -> dict[str, Column]:
    """Mean time before a call at each station, (3,) seconds; infinite where a queue grows forever.

    Args:
        stations: name -> station.
        rate_per_s: items that enter the pipeline, positive.
    """
    visits, waits = visits_of(stations), {}
    leaving: dict[str, tuple[Column, float]] = {}  # variability of its items, items at once
    for name, visited in visits.items():
        one, entering = stations[name], rate_per_s * visited
        varied, bulk = _entering(one, leaving, visits)
        bulk = max(1.0, bulk * one.share)
        arrivals = (varied * one.share + 1.0 - one.share) / one.items
        calls = max(1.0, bulk / one.items)
        busy = entering * one.call_s / one.items / one.servers
        waits[name] = _wait_s(one, busy, arrivals) + 0.5 * (calls - 1.0) * one.call_s / one.servers
        waits[name] = waits[name] + 0.5 * max(0.0, one.items - bulk) / entering
        busy = np.minimum(busy, 1.0)
        departs = (one.variation**2 - 1.0) / np.sqrt(one.servers)
        departs = 1.0 + (1.0 - busy**2) * (arrivals - 1.0) + busy**2 * departs
        bulk = bulk if one.call_s[0] == 0.0 else float(one.items)
        leaving[name] = one.items * np.maximum(departs, 0.0), bulk
    return waits


def _entering(
    one: Station, leaving: Mapping[str, tuple[Column, float]], visits: Mapping[str, float]
) -> tuple[Column, float]:
    """Squared variation of the gaps between items that come to a station, (3,), and their bulk."""
    if not one.after:
        return np.ones(3), 1.0
    varied = np.array([leaving[before][0] for before in one.after])
    bulk = max(leaving[before][1] for before in one.after)
    if one.joins:
        return varied.max(axis=0), bulk
    return np.average(varied, axis=0, weights=[visits[before] for before in one.after]), bulk


def _wait_s(one: Station, busy: Column, arrivals: Column) -> Column:
    """Mean wait in a GI/G/m queue, (3,) seconds.

    Args:
        one: the servers.
        busy: (3,) their utilisation.
        arrivals: (3,) squared variation of the gaps between calls.
    """
    varied = arrivals + one.variation**2
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.sqrt(2.0 * (one.servers + 1.0)) - 1.0
        queued = one.call_s / one.servers * busy**power / (1.0 - busy)
        even = -2.0 * (1.0 - busy) * (1.0 - arrivals) ** 2 / (3.0 * busy * varied)
        found = varied / 2.0 * queued * np.where(arrivals < 1.0, np.exp(even), 1.0)
    return np.where(busy >= 1.0, np.inf, np.where(varied * busy > 0.0, found, 0.0))
