"""One rate of a deployment from two predictors: that of times, and that of served models.

The first was fitted to runs with given lengths, the second to saturated servers whose requests are
known by kind. The rate of an answer is the mean of the logarithms of both, weighted by their
precision; times follow from it by Little's law, energy and price from it and the power.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot, log, sqrt
from typing import Final, NamedTuple

from forerun.data.query import Query
from forerun.data.workload import LlmServing
from forerun.features.serving_features import TOKENS, slower_at_lengths
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS
from forerun.models.limit import LATENCY, Limit
from forerun.models.prediction import Estimate, Prediction
from forerun.service.answers.llm.costs import as_serving

RATE: Final = "tokens_per_s"
TIMES: Final = ("ttft_ms", "ttft_service_ms", "tpot_ms", "request_latency_ms")
RATES: Final = ("requests_per_s", RATE, "tokens_per_s_per_device")
STANDARD: Final = 1.645
"""Half the width of a 90 % interval in standard deviations."""
UNLIKE: Final = 0.5
"""Further error of a rate, as a logarithm, by which a query's logarithms lie e-fold outside of the
range of the training set."""
FAR: Final = 2.0
"""Distance of the logarithms of the lengths from usual ones from which on served models say ever
less: their rate was only taken to other lengths by the ratio of closed forms."""
OTHER_ENGINE: Final = 0.3
"""Further error of the rate of served models for engines other than vLLM, which all were run in."""
SMALL: Final = 0.1
"""Weight of the predictor of served models below which an answer does not mention it."""


class _Rate(NamedTuple):
    """A rate of tokens, and its 90 % interval as logarithms of ratios to it, both positive."""

    value: float
    down: float
    up: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm."""
        return (self.down + self.up) / 2.0 / STANDARD


def agreed(query: Query, time: Prediction, served: Prediction | None, runs: int = 0) -> Prediction:
    """The times of a deployment with the rate that both predictors agree on.

    The times stay as they are where requests arrive at a rate of their own, where one of the rates
    or its interval is not known, and for deployments that the predictor of served models cannot
    tell apart: prompts on workers of their own, and drafted tokens. The rate of served models is
    one of tokens, and counts less where more than half of a request's time passes before the first.

    Args:
        query: the deployment.
        time: its times and rates by the predictor of times.
        served: its power and rate by the predictor of served models; None without one.
        runs: measured runs of a user on the device that the times were adapted to: for each
            `ENOUGH_ROWS` of them, the rate counts once more.
    """
    deployment = query.deployment
    in_flight = deployment.load.concurrency
    unlike = deployment.prefill is not None or deployment.engine.draft_tokens > 0
    own, other = _rate(time), None if served is None else _rate(served)
    if in_flight is None or unlike or own is None or other is None or served is None:
        return time
    decoding = _decoding_share(query, time)
    if not decoding > 0.0:
        return time
    asked = as_serving(query, in_flight)
    one = _widened(own, UNLIKE * _outside(time.limits, decoding))
    weighed = _narrowed(one, 1.0 / sqrt(1.0 + runs / ENOUGH_ROWS))
    two = _widened(
        _at_lengths(query, asked, other),
        hypot(
            UNLIKE * hypot(_outside(served.limits), _far(_unusual_lengths(query, asked))),
            max(0.0, -log(2.0 * decoding)),
            0.0 if deployment.engine.name == "vllm" else OTHER_ENGINE,
        ),
    )
    return _combined(time, one, two, _weight(weighed, two))


def _rate(found: Prediction) -> _Rate | None:
    """The rate of a prediction; None where it, or its interval, is not known."""
    own = found.estimates.get(RATE)
    if own is None or own.low is None or own.high is None or not 0.0 < own.low <= own.value:
        return None
    return _Rate(own.value, log(own.value / own.low), log(own.high / own.value))


def _widened(rate: _Rate, deviation: float) -> _Rate:
    """The rate with a further independent error of its logarithm."""
    further = STANDARD * deviation
    return _Rate(rate.value, hypot(rate.down, further), hypot(rate.up, further))


def _decoding_share(query: Query, time: Prediction) -> float:
    """Share of the time of a request in which its tokens after the first are written."""
    tokens = max(query.deployment.load.output_tokens - 1.0, 0.0)
    latency, tpot = (time.estimates[name].value for name in ("request_latency_ms", "tpot_ms"))
    return tokens * tpot / latency


def _outside(limits: Sequence[Limit], decoding: float = 1.0) -> float:
    """How far logarithms among the features lie outside of their ranges, all together.

    Args:
        limits: limits of a prediction.
        decoding: weight of the number of tokens that are written.
    """
    weights = {"log_output_tokens": decoding}
    return hypot(
        *(
            weights.get(one.feature, 1.0) * _distance(one)
            for one in limits
            if one.feature is not None and one.feature.startswith("log_")
        )
    )


def _distance(limit: Limit) -> float:
    if limit.value is None or limit.low is None or limit.high is None:
        return 0.0
    return max(limit.low - limit.value, limit.value - limit.high, 0.0)


def _at_lengths(query: Query, asked: Query, rate: _Rate) -> _Rate:
    """The rate for the lengths of the deployment in place of the usual ones of such requests."""
    load = query.deployment.load
    assert isinstance(asked.workload, LlmServing)
    sequences = float(asked.workload.max_sequences)
    slower = slower_at_lengths(asked, sequences, load.input_tokens, load.output_tokens)
    return rate._replace(value=rate.value / slower)


def _unusual_lengths(query: Query, asked: Query) -> float:
    """Distance of the logarithms of both lengths from the usual ones of such requests."""
    assert isinstance(asked.workload, LlmServing)
    prompt, answer = TOKENS[asked.workload.request]
    load = query.deployment.load
    return hypot(log(load.input_tokens / prompt), log(load.output_tokens / answer))


def _narrowed(rate: _Rate, factor: float) -> _Rate:
    return _Rate(rate.value, factor * rate.down, factor * rate.up)


def _weight(one: _Rate, two: _Rate) -> float:
    """Share of the second rate in the mean, by the precisions of both."""
    precisions = [1.0 / max(rate.deviation, 1e-3) ** 2 for rate in (one, two)]
    return precisions[1] / sum(precisions)


def _far(distance: float) -> float:
    """A distance of logarithms, which counts by its square from `FAR` on."""
    return max(distance, distance**2 / FAR)


def _combined(time: Prediction, one: _Rate, two: _Rate, weight: float) -> Prediction:
    """The prediction of times with the weighted geometric mean of both rates.

    The variance of the mean is that of independent errors, and that of a mixture of both values.

    Args:
        time: the prediction of times.
        one: its rate.
        two: the rate of served models.
        weight: share of the second rate, 0 to 1.
    """
    apart = log(two.value / one.value)
    between = STANDARD * sqrt(weight * (1.0 - weight)) * abs(apart)
    down, up = (
        hypot((1.0 - weight) * getattr(one, end), weight * getattr(two, end), between)
        for end in ("down", "up")
    )
    faster = exp(weight * apart)
    estimates = dict(time.estimates)
    for name, own in time.estimates.items():
        if name in RATES:
            estimates[name] = _around(own, own.value * faster, down, up)
        elif name == "request_latency_ms":
            estimates[name] = _around(own, own.value / faster, up, down)
        elif name in TIMES:
            estimates[name] = _shifted(own, 1.0 / faster, between)
    limits = (*time.limits, *_said(one, two, weight))
    return replace(time, estimates=estimates, limits=limits)


def _around(own: Estimate, value: float, down: float, up: float) -> Estimate:
    """An estimate with another value and interval."""
    return Estimate(value, value * exp(-down), value * exp(up), own.coverage)


def _shifted(own: Estimate, factor: float, between: float) -> Estimate:
    """An estimate times a factor, whose interval is widened by a further error."""
    if own.low is None or own.high is None or not own.low > 0.0:
        return replace(own, value=own.value * factor)
    down, up = hypot(log(own.value / own.low), between), hypot(log(own.high / own.value), between)
    return _around(own, own.value * factor, down, up)


def _said(one: _Rate, two: _Rate, weight: float) -> tuple[Limit, ...]:
    """What both predictors give, where that of served models counts or contradicts the other."""
    disjoint = log(two.value / one.value) > one.up + two.down or (
        log(one.value / two.value) > one.down + two.up
    )
    if weight < SMALL and not disjoint:
        return ()
    text = (
        f"the rate is a weighted geometric mean of {one.value:,.0f} tokens/s by the predictor of "
        f"times and {two.value:,.0f} by that of served models, which counts {100 * weight:.0f} %"
    )
    return (Limit(text, LATENCY, "outside" if disjoint else "note"),)
