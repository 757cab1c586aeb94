"""Power of deployed models, from the predictor of served models, and their rate by it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import expm1
from typing import Final

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.features.power.operator_features import waiting_w
from forerun.features.serving_features import TOKENS
from forerun.models.limit import POWER, Limit
from forerun.models.prediction import Estimate, Prediction
from forerun.models.predictor import Predictor
from forerun.service.answers.llm.costs import as_serving, request_kind
from forerun.service.answers.serving import predicted

SATURATED: Final = 0.99
"""Share of the time with work from which on a server counts as busy all the time."""
PROMPTS: Final = 4.0
"""How many times more input tokens for one output token than usual requests have a deployment may
have before its power counts as extrapolated: prompts then make up work that measured servers did
not have."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How much of its time a deployment has work.

    Attributes:
        in_flight: requests in flight on average, on all workers.
        busy: share of the time in which a worker has at least one.
    """

    in_flight: float
    busy: float

    @property
    def while_busy(self) -> float:
        """Requests in flight on average while there is work."""
        return self.in_flight / self.busy


def occupancy(query: Query, time: Prediction) -> Occupancy | None:
    """Requests in flight and share of the time with work; None where the times are not known.

    Requests of a closed loop are always in flight, on as many workers. The mean number of those
    that arrive at random follows from Little's law; on each worker it is taken to have a Poisson
    distribution.
    """
    load, pool = query.deployment.load, query.deployment.pool
    if load.concurrency is not None:
        return Occupancy(load.concurrency, min(load.concurrency / pool.workers, 1.0))
    latency, rate = (time.estimates.get(name) for name in ("request_latency_ms", "requests_per_s"))
    if latency is None or rate is None:
        return None
    in_flight = max(latency.value / 1e3 * rate.value, 1e-9)
    return Occupancy(in_flight, -expm1(-in_flight / pool.workers))


def powers(
    queries: Sequence[Query], times: Sequence[Prediction | InputError], predictor: Predictor
) -> list[Prediction | None]:
    """The power of one device of each of n deployments, and the rate that goes with it.

    The rate is that of requests of usual lengths (`rate_at_lengths` has that of the deployment's).
    None where no predictor answers it, or where the times are not known.

    Args:
        queries: deployments.
        times: their times.
        predictor: the predictor in use.
    """
    asked: dict[int, Query] = {}
    shares: dict[int, float] = {}
    for row, (query, time) in enumerate(zip(queries, times, strict=True)):
        known = None if isinstance(time, InputError) else occupancy(query, time)
        if known is not None:
            served = as_serving(query, known.while_busy)
            if predictor.answers(served):
                asked[row], shares[row] = served, known.busy
    found = dict(zip(asked, predicted(predictor, list(asked.values())), strict=True))
    outcomes = {
        row: _of_prompts(queries[row], _at_load(one, queries[row].device, shares[row]))
        for row, one in found.items()
    }
    return [outcomes.get(row) for row in range(len(queries))]


def _at_load(found: Prediction | InputError, device: Device, busy: float) -> Prediction | None:
    """The prediction with the mean of the power with work and of that while the device waits.

    It has no interval, since how far the power while waiting may be off is not known.
    """
    if isinstance(found, InputError):
        return None
    saturated = found.estimates.get(POWER)
    if saturated is None or busy >= SATURATED or device.tdp_w is None:
        return found
    waiting = waiting_w(device)

    power = Estimate(waiting + busy * max(0.0, saturated.value - waiting))
    line = Limit(
        f"requests are in flight for {100 * busy:.0f} % of the time, and the device is taken to "
        f"draw {waiting:.0f} W else; no server with breaks was measured",
        POWER,
    )
    return replace(
        found,
        estimates={**found.estimates, POWER: power},
        limits=(line, *found.limits),
        in_domain=False,
    )


def _of_prompts(query: Query, found: Prediction | None) -> Prediction | None:
    """The prediction, extrapolated where prompts make up more of the work than was measured."""
    load = query.deployment.load
    usual_input, usual_output = TOKENS[request_kind(load.input_tokens, load.output_tokens)]
    usual, asked = usual_input / usual_output, load.input_tokens / load.output_tokens
    if found is None or asked <= PROMPTS * usual:
        return found
    line = Limit(
        f"it does not depend on the lengths of requests; servers with {usual:.2g} input tokens for "
        f"one output token were measured, and here are {asked:,.4g}",
        POWER,
    )
    return replace(found, limits=(line, *found.limits), in_domain=False)
