"""Prices deployments for capacity plans, skipping what only the wording of answers needs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

import numpy as np

from forerun.data.columns import Column, Positions
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import RequestLoad
from forerun.data.language_models.requests import Requests
from forerun.data.query import Query
from forerun.features.deadline import check
from forerun.models.answers.deployments.answer import Priced, priced
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.deployments.times import Loops, under_load
from forerun.models.answers.deployments.traced import scales_of, served
from forerun.models.answers.served_models import InUse
from forerun.models.llm_serving.plans import Figures, Pricing, at_load, tail_of
from forerun.models.prediction import Estimate

TOGETHER: Final = 500
"""Deployments predicted between two checks of the deadline."""
DRAWN_REQUESTS: Final = 2000
"""Simulated requests per replica from which percentiles are computed; up to three times as many for
a rare class."""
OF_CLASS: Final = 100
"""Fewest simulated requests of each class that are aimed at."""
SCALED: Final = 500
"""Requests from which the scale of iteration times is computed."""
PERCENTS: Final = (95, 99)


@dataclass
class PlanPricing:
    """Figures of deployments where repeated calls vary only the load.

    Attributes:
        in_use: the predictor in use.
        kept: cached closed loops of the deployments seen so far.
    """

    in_use: InUse
    kept: dict[tuple[Hashable, ...], Loops] = field(default_factory=dict)

    def figures(
        self, queries: Sequence[Query], *, with_power: bool = False
    ) -> list[Priced | InputError]:
        """The figures of n deployments, predicted in batches of `TOGETHER`.

        Raises:
            DeadlineExceeded: the caller has disconnected or the deadline has passed.
        """
        found: list[Priced | InputError] = []
        for start in range(0, len(queries), TOGETHER):
            chunk = queries[start : start + TOGETHER]
            check()
            loads = under_load(chunk, self.in_use, self.kept, with_power=with_power)
            found += [
                load.time if isinstance(load.time, InputError) else priced(query, load.time, load)
                for query, load in zip(chunk, loads, strict=True)
            ]
        return found


@dataclass(frozen=True)
class ByClass:
    """Figures of deployments, with those of each class of requests when it is served alone.

    That is the least that the class meets among others.

    Attributes:
        pricing: what answers a deployment.
        classes: name -> lengths and rate of its requests.
    """

    pricing: Pricing
    classes: Mapping[str, RequestLoad]

    def figures(
        self, queries: Sequence[Query], *, with_power: bool = False
    ) -> list[Figures | InputError]:
        """Those of n deployments; times of a class are named such as `chat.ttft_ms`."""
        found = list(self.pricing.figures(queries, with_power=with_power))
        for (name, load), share in zip(self.classes.items(), shares(self.classes), strict=True):
            rates = (query.deployment.load.requests_per_s or 0.0 for query in queries)
            alone = [
                at_load(own, load, share * rate) for own, rate in zip(queries, rates, strict=True)
            ]
            for row, own in enumerate(self.pricing.figures(alone)):
                found[row] = _joined(found[row], own, name, share)
        return found


class _Joined(NamedTuple):
    estimates: Mapping[str, Estimate]
    capacity: Estimate | None


def _joined(
    found: Figures | InputError, alone: Figures | InputError, name: str, share: float
) -> Figures | InputError:
    """Figures with those of a class, which has a share of the rate."""
    if isinstance(found, InputError) or isinstance(alone, InputError):
        return found if isinstance(found, InputError) else alone
    own = {f"{name}.{metric}": estimate for metric, estimate in alone.estimates.items()}
    capacity = None
    if found.capacity is not None and alone.capacity is not None:
        both = found.capacity, scaled(alone.capacity, 1.0 / share)
        capacity = min(both, key=lambda one: one.low or 0.0)
    return _Joined({**found.estimates, **own}, capacity)


def shares(classes: Mapping[str, RequestLoad]) -> list[float]:
    """Share of all requests that each class has."""
    rates = [own.requests_per_s or 0.0 for own in classes.values()]
    return [rate / sum(rates) for rate in rates]


@dataclass(frozen=True)
class EventTails:
    """Means and percentiles of the latencies of replicas, simulated by the event model.

    Requests come from a trace, of which each replica gets a random share, or from a Poisson process
    with gamma-distributed lengths for each class.

    Attributes:
        in_use: the predictor in use.
        trace: requests at their recorded rate; None for the Poisson process.
        classes: name -> lengths and rate of its requests; empty if there is one class.
        seed: of the random draws.
    """

    in_use: InUse
    trace: Requests | None = None
    classes: Mapping[str, RequestLoad] = field(default_factory=dict)
    seed: int = 0

    def figures_ms(self, query: Query, replicas: int) -> dict[str, float]:
        """Mean (`ttft_ms`) and percentiles (`ttft_p99_ms`) of each latency, also for each class
        (`chat.ttft_ms`), ms; infinite if a request does not fit the KV cache.

        Raises:
            UnanswerableQuery: as `served`.
            DeadlineExceeded: the caller has disconnected or the deadline has passed.
        """
        check()
        requests, of_class = self._of_replica(query.deployment.load, replicas)
        scales, _ = scales_of(query, requests.take(slice(SCALED)), self.in_use)
        found = served(query, requests, scales, "round_robin")
        groups = {"": np.ones(len(requests), dtype=bool)}
        groups |= {f"{name}.": of_class == place for place, name in enumerate(self.classes)}
        return {
            f"{group}{name}": inf if found.refused else own
            for group, rows in groups.items()
            for metric, times in found.times_ms().items()
            for name, own in _summary(metric, times[rows]).items()
        }

    def _of_replica(self, load: RequestLoad, replicas: int) -> tuple[Requests, Positions]:
        """Requests that reach one replica, and the position of the class of each."""
        generator = np.random.default_rng(self.seed)
        if self.trace is not None:
            taken = np.flatnonzero(generator.random(len(self.trace)) * replicas < 1.0)
            own = self.trace.take(taken[:DRAWN_REQUESTS] if len(taken) else np.array([0]))
            return own, np.zeros(len(own), dtype=np.intp)
        classes, parts = [*self.classes.values()] or [load], shares(self.classes) or [1.0]
        count = int(np.clip(OF_CLASS / min(parts), DRAWN_REQUESTS, 3 * DRAWN_REQUESTS))
        gaps = generator.exponential(1.0 / (load.requests_per_s or 1.0), count)
        of_class = np.zeros(count, dtype=np.intp)
        if len(classes) > 1:
            of_class = generator.choice(len(classes), count, p=parts)
        lengths = (
            np.maximum(
                np.rint(np.choose(of_class, [_gamma(generator, count, *one) for one in own])), 1
            )
            for own in (
                [(own.input_tokens, own.input_variation) for own in classes],
                [(own.output_tokens, own.output_variation) for own in classes],
            )
        )
        return Requests(np.cumsum(gaps), *(own.astype(np.int64) for own in lengths)), of_class


def _summary(metric: str, times: Column) -> dict[str, float]:
    """Mean and percentiles of a latency, ms; 0 if no request has it."""
    known = times[~np.isnan(times)]
    known = known if known.size else np.zeros(1)
    percentiles = {tail_of(metric, own): float(np.percentile(known, own)) for own in PERCENTS}
    return {metric: float(known.mean()), **percentiles}


def _gamma(generator: np.random.Generator, count: int, mean: float, variation: float) -> Column:
    """Gamma-distributed lengths with a mean and a coefficient of variation."""
    if not variation:
        return np.full(count, mean)
    return generator.gamma(variation**-2, mean * variation**2, count)
