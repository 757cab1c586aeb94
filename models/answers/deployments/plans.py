"""Prices deployments for capacity plans, skipping what only the wording of answers needs."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import RequestLoad
from forerun.data.language_models.requests import Requests
from forerun.data.query import Query
from forerun.features.deadline import check
from forerun.models.answers.deployments.answer import Priced, priced
from forerun.models.answers.deployments.times import Loops, under_load
from forerun.models.answers.deployments.traced import scales_of, served
from forerun.models.answers.served_models import InUse

TOGETHER: Final = 500
"""Deployments predicted between two checks of the deadline."""
DRAWN_REQUESTS: Final = 2000
"""Simulated requests per replica from which percentiles are computed."""


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
class EventTails:
    """99th percentiles of the latencies of replicas, simulated by the event model.

    Requests come from a trace, of which each replica gets a random share, or from a Poisson process
    with gamma-distributed lengths.

    Attributes:
        in_use: the predictor in use.
        trace: requests at their recorded rate; None for the Poisson process.
        seed: of the random draws.
    """

    in_use: InUse
    trace: Requests | None = None
    seed: int = 0

    def p99_ms(self, query: Query, replicas: int) -> dict[str, float]:
        """Metric -> 99th percentile, ms; infinite if a request does not fit the KV cache.

        Raises:
            UnanswerableQuery: as `served`.
            DeadlineExceeded: the caller has disconnected or the deadline has passed.
        """
        check()
        requests = self._of_replica(query.deployment.load, replicas)
        found = served(query, requests, scales_of(query, requests, self.in_use)[0], "round_robin")
        times = {name: times_ms[~np.isnan(times_ms)] for name, times_ms in found.times_ms().items()}
        if found.refused:
            return dict.fromkeys(times, inf)
        return {
            n: float(np.percentile(times_ms, 99.0)) if times_ms.size else 0.0
            for n, times_ms in times.items()
        }

    def _of_replica(self, load: RequestLoad, replicas: int) -> Requests:
        generator = np.random.default_rng(self.seed)
        if self.trace is not None:
            taken = np.flatnonzero(generator.random(len(self.trace)) * replicas < 1.0)
            return self.trace.take(taken[:DRAWN_REQUESTS] if len(taken) else np.array([0]))
        gaps = generator.exponential(1.0 / (load.requests_per_s or 1.0), DRAWN_REQUESTS)
        lengths = (
            np.maximum(np.rint(_gamma(generator, *length)), 1.0).astype(np.int64)
            for length in (
                (load.input_tokens, load.input_variation),
                (load.output_tokens, load.output_variation),
            )
        )
        return Requests(np.cumsum(gaps), *lengths)


def _gamma(generator: np.random.Generator, mean: float, variation: float) -> Column:
    """Gamma-distributed lengths with a mean and a coefficient of variation."""
    if not variation:
        return np.full(DRAWN_REQUESTS, mean)
    return generator.gamma(variation**-2, mean * variation**2, DRAWN_REQUESTS)
