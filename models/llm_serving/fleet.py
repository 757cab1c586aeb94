"""A fleet over hours or days: replicas that follow the traffic, their energy, and a power cap.

A trace is cut into windows. Each has the fewest replicas with which the limits hold, by the search
of plans. Replicas start some time before they are needed, and end only when none of the latest
windows asked for them, as with the stabilisation window of Kubernetes' autoscaler. The traffic is
known beforehand: it is that of a trace.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, nan
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Positions
from forerun.data.errors import BadRequest, InputError
from forerun.data.language_models.deployment import RequestLoad
from forerun.data.language_models.requests import Requests
from forerun.data.level import HALF_WIDTH
from forerun.features.links import NODE_DEVICES
from forerun.features.power.operator_features import waiting_w
from forerun.models.limit import POWER
from forerun.models.llm_serving.plans import (
    Pricing,
    ServingLimits,
    Unit,
    at_load,
    fewest_replicas,
    most_of,
)

MOST_WINDOWS: Final = 2_016
"""Windows at most: a week in steps of five minutes."""
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of a trace in w windows of equal length.

    Attributes:
        requests: the trace.
        starts: position of the first request of each window, and of the last one of all, (w + 1,).
        width_s: length of a window, seconds.
        loads: rate and lengths of each window; without a request, the lengths of all and the rate
            of one.
    """

    requests: Requests
    starts: Positions
    width_s: float
    loads: tuple[RequestLoad, ...]

    @classmethod
    def of(cls, requests: Requests, window_s: float, load: RequestLoad) -> Self:
        """The windows of a trace, as many of about that length as its span has.

        Args:
            requests: the trace.
            window_s: length of a window, seconds.
            load: mean lengths of all, and the mean rate that the trace is scaled to.

        Raises:
            BadRequest: the trace has no span, or too many windows.
        """
        arrival_s = requests.arrival_s - requests.arrival_s[0]
        span_s = float(arrival_s[-1])
        count = max(round(span_s / window_s), int(span_s > 0.0))
        if not 0 < count <= MOST_WINDOWS:
            raise BadRequest(
                f"{count:,} windows of {window_s:,.4g} s in a trace of {span_s:,.4g} s: from 1 to "
                f"{MOST_WINDOWS:,} are planned."
            )
        starts = np.searchsorted(arrival_s, np.linspace(0.0, span_s, count + 1))
        numbers = np.maximum(np.diff(starts), 1)
        rates = (load.requests_per_s or 0.0) * count * numbers / numbers.sum()
        loads = [
            requests.take(slice(start, end)).load() if end > start else load
            for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        return cls(requests, starts, span_s / count, tuple(
            replace(own, requests_per_s=rate, cached_share=load.cached_share)
            for own, rate in zip(loads, rates.tolist(), strict=True)
        ))  # fmt: skip

    @property
    def rates(self) -> Column:
        """Requests a second in each window, (w,)."""
        return np.array([own.requests_per_s for own in self.loads], dtype=np.float64)

    def of_one(self, replicas: Positions, most: int, seed: int = 0) -> tuple[Requests, Positions]:
        """What one replica of each window gets, and the window of each request.

        Where all would be too many, windows are shortened and follow each other: the replica meets
        the load of each for a shorter time, and never starts empty but in the first. Arrivals in a
        window are those of a Poisson process, with lengths drawn from its requests.

        Args:
            replicas: replicas that share the requests of each window, (w,).
            most: requests that are wanted at most, about.
            seed: of the draws.
        """
        draw, share = np.random.default_rng(seed), self.rates / replicas
        seconds = min(self.width_s, most / share.sum())
        window = np.repeat(np.arange(len(share)), draw.poisson(share * seconds))
        arrival_s = np.sort((window + draw.random(len(window))) * seconds)
        numbers = np.diff(self.starts)
        first = np.where(numbers > 0, self.starts[:-1], 0)
        drawn = np.where(numbers > 0, numbers, len(self.requests))
        rows = first[window] + (draw.random(len(window)) * drawn[window]).astype(np.intp)
        return replace(self.requests.take(rows), arrival_s=arrival_s), window


class Autoscaling(NamedTuple):
    """When replicas start and end.

    Attributes:
        startup_s: time from the start of a replica until it serves, seconds.
        stabilization_s: time for which a window that asks for more replicas keeps them, seconds.
    """

    startup_s: float
    stabilization_s: float

    def ready(self, wanted: Positions, width_s: float) -> Positions:
        """Replicas that serve in each of w windows, (w,)."""
        return _most(wanted, max(ceil(self.stabilization_s / width_s) - 1, 0), 0)

    def paid(self, ready: Positions, width_s: float) -> Column:
        """Mean number of those that serve or start in each of w windows, (w,)."""
        whole, rest = divmod(self.startup_s, width_s)
        soon, later = (_most(ready, 0, int(whole) + more) for more in (0, 1))
        return soon + rest / width_s * (later - soon)


def _most(counts: Positions, before: int, after: int) -> Positions:
    """The largest of each of n numbers, those before and those after it, (n,)."""
    before, after = min(before, len(counts)), min(after, len(counts))
    padded = np.pad(counts, (before, after))
    return np.array([padded[row : row + before + after + 1].max() for row in range(len(counts))])


class Totals(NamedTuple):
    """What a fleet takes in all.

    Attributes:
        device_hours: hours of devices that serve or start.
        kwh: energy of the devices; NaN where their power is not known.
    """

    device_hours: float
    kwh: float


@dataclass(frozen=True)
class Fleet:
    """Replicas over w windows of traffic, and as many as the busiest needs all the time.

    Attributes:
        unit: the replica.
        traffic: the windows.
        wanted: fewest replicas with which the limits hold, (w,).
        missed: whether they hold with no number of them; `wanted` keeps up with the rate there, or
            is all that there are, (w,).
        ready: replicas that serve, (w,).
        paid: mean number of those that serve or start, (w,).
        power_w: power of a device that serves, and ends of its interval, (w, 3); NaN where not
            known.
        fixed_w: the same of the fixed fleet.
    """

    unit: Unit
    traffic: Traffic
    wanted: Positions
    missed: Mask
    ready: Positions
    paid: Column
    power_w: Matrix
    fixed_w: Matrix

    @property
    def server_devices(self) -> int:
        """Devices of a server."""
        return self.unit.query.device.node_devices or NODE_DEVICES

    @property
    def missed_share(self) -> float:
        """Share of the requests in windows in which the limits do not hold."""
        return float(self.traffic.rates @ self.missed / self.traffic.rates.sum())

    def kilowatts(self) -> Column:
        """Mean power of all devices in each window, kW, (w,); NaN where not known."""
        device = self.unit.query.device
        waiting = nan if device.tdp_w is None else waiting_w(device)
        watts = self.ready * self.power_w[:, 0] + (self.paid - self.ready) * waiting
        return self.unit.devices * watts / 1e3

    def totals(self) -> tuple[Totals, Totals]:
        """Of the replicas that follow the traffic, and of the fixed fleet."""
        count, hours = self.unit.devices, self.traffic.width_s / HOUR_S
        fixed = np.full_like(self.paid, self.wanted.max())
        pairs = ((self.paid, self.kilowatts()), (fixed, count * fixed * self.fixed_w[:, 0] / 1e3))
        scaled, fixed_ones = (
            Totals(hours * count * float(replicas.sum()), hours * float(kilowatts.sum()))
            for replicas, kilowatts in pairs
        )
        return scaled, fixed_ones


def fleet_over_time(
    unit: Unit,
    traffic: Traffic,
    pricing: Pricing,
    limits: ServingLimits,
    autoscaling: Autoscaling,
) -> Fleet:
    """How many of a replica traffic needs over time.

    Args:
        unit: the replica; its load does not count.
        traffic: the windows.
        pricing: what answers times, capacity and power.
        limits: those of times must hold in each window.
        autoscaling: when replicas start and end.
    """
    own = replace(unit, fewest=1, most=most_of(unit), beaten=False)
    units = [replace(own, query=at_load(own.query, load, load.requests_per_s))
             for load in traffic.loads]  # fmt: skip
    found = fewest_replicas(units, pricing, ServingLimits(limits.times, risk=limits.risk))
    wanted = np.array([one.replicas for one in found], dtype=np.intp)
    ready = autoscaling.ready(wanted, traffic.width_s)
    power_w, fixed_w = (
        _power(units, numbers, pricing) for numbers in (ready, np.full_like(ready, wanted.max()))
    )
    return Fleet(
        unit, traffic, wanted, np.array([bool(one.over) for one in found]), ready,
        autoscaling.paid(ready, traffic.width_s), power_w, fixed_w,
    )  # fmt: skip


def _power(units: Sequence[Unit], replicas: Positions, pricing: Pricing) -> Matrix:
    """Power of a device of each of n replicas and the ends of its interval, W, (n, 3)."""
    shares = [unit.share(number) for unit, number in zip(units, replicas.tolist(), strict=True)]
    rows = []
    for found in pricing.figures(shares, with_power=True):
        own = None if isinstance(found, InputError) else found.estimates.get(POWER)
        rows.append((nan,) * 3 if own is None else (own.value, own.low, own.high))
    return np.array(rows, dtype=np.float64)


def servers_under(
    fleet: Fleet, cap_w: float, over_share: float, *, certain: bool = False
) -> int | None:
    """Servers of the fixed fleet whose devices together draw more than a cap so rarely.

    All servers see the same load, so that the power of windows does not average out; nor does the
    error of the predictor. Around its mean, each server varies by itself, at most as what lies
    between the waiting and the design power can (inequality of Bhatia and Davis, 2000). The sum
    has a normal distribution. Servers that do not exceed the cap at their design power always fit.

    Args:
        fleet: the fleet.
        cap_w: most power of all devices, W.
        over_share: expected share of the time in which it is exceeded.
        certain: whether best estimates count as true.

    Returns:
        None where the power, or its uncertainty, is not known.
    """
    from scipy.special import ndtr

    device, (value, low, _) = fleet.unit.query.device, fleet.fixed_w.T
    unsure = np.isnan(low)
    if device.tdp_w is None or np.isnan(value).any() or (unsure.all() and not certain):
        return None
    count, least, most = fleet.server_devices, waiting_w(device), device.tdp_w
    spread = np.zeros_like(value)
    if not certain:
        spread = np.log(value / np.where(unsure, value, low)) / HALF_WIDTH
        spread[unsure] = spread.max()
    own = np.maximum((most - value) * (value - least), 0.0)

    def over(servers: int) -> float:
        deviation = count * np.sqrt((servers * spread * value) ** 2 + servers * own)
        margin = cap_w - servers * count * value
        return float(np.mean(ndtr(-margin / np.maximum(deviation, 1e-9))))

    surely, at_most = (floor(cap_w / (count * watts)) for watts in (most, least))
    return max(surely, bisect_right(range(1, at_most + 1), over_share, key=over))
