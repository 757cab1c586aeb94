"""One rate of a deployment from two predictors: that of times, and that of served models.

The first was fitted to runs with given lengths, the second to saturated servers whose requests are
known by kind. The rate of an answer is the mean of the logarithms of both, weighted by their
precision; times follow from it by Little's law, energy and price from it and the power.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot
from typing import Final, NamedTuple

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Positions, groups_of
from forerun.data.query import Query
from forerun.data.workload import LlmServing
from forerun.features.serving_features import TOKENS, outputs, slower_at_lengths
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_serving.time_columns import TimeColumns
from forerun.models.prediction import WIDEST_RATIO
from forerun.models.serving.features import generative, with_any_sequences
from forerun.service.answers.llm.power import ServedRates

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


class _Rates(NamedTuple):
    """Rates of tokens, and their 90 % intervals as logarithms of ratios to them, each (n,)."""

    value: Column
    down: Column
    up: Column

    @classmethod
    def of(cls, estimates: Matrix) -> "_Rates":
        """Rates from their values and the ends of their intervals, (n, 3)."""
        value, low, high = estimates.T
        return cls(value, np.log(value / low), np.log(high / value))

    def widened(self, deviation: Column) -> "_Rates":
        """The rates with a further independent error of their logarithms."""
        further = STANDARD * deviation
        return self._replace(down=np.hypot(self.down, further), up=np.hypot(self.up, further))

    def precision(self, narrowed: Column | float = 1.0) -> Column:
        """One over the variances of their logarithms, with intervals narrowed by a factor."""
        deviation = narrowed * (self.down + self.up) / 2.0 / STANDARD
        return np.asarray(1.0 / np.maximum(deviation, 1e-3) ** 2)


def comparable(query: Query) -> bool:
    """Whether both predictors tell a deployment apart from others.

    That of served models knows closed loops alone, and neither prompts on workers of their own nor
    drafted tokens.
    """
    deployment = query.deployment
    unlike = deployment.prefill is not None or deployment.engine.draft_tokens > 0
    return deployment.load.concurrency is not None and not unlike


def agreed(
    queries: Sequence[Query], times: TimeColumns, served: ServedRates, runs: Column
) -> TimeColumns:
    """The times of n deployments with the rates that both predictors agree on.

    The times stay as they are where one of the rates or its interval is not known. The rate of
    served models is one of tokens, and counts less where more than half of a request's time passes
    before the first.

    Args:
        queries: n deployments.
        times: their times and rates by the predictor of times.
        served: the rates of those that are `comparable` by the predictor of served models.
        runs: (n,) measured runs of a user on the device that the times were adapted to: for each
            `ENOUGH_ROWS` of them, the rate counts once more.
    """
    rows, decoding = np.array(served.rows, dtype=np.intp), _decoding_shares(queries, times)
    narrow = ~(served.rates[:, 2] > WIDEST_RATIO * served.rates[:, 1])
    known = _known(times.estimates[RATE][rows]) & _known(served.rates) & narrow
    places = np.flatnonzero(known & (decoding[rows] > 0.0))
    if not len(places):
        return times
    rows = rows[places]
    own, limits = zip(*((queries[row], times.limits[row]) for row in rows.tolist()), strict=True)
    asked, theirs = zip(
        *((served.queries[place], served.limits[place]) for place in places.tolist()), strict=True
    )
    decoding, outside = decoding[rows], np.array([*map(_outside, limits)])
    one = _Rates.of(times.estimates[RATE][rows]).widened(
        UNLIKE * np.hypot(outside[:, 0], decoding * outside[:, 1])
    )
    slower, unusual = _at_lengths(own, asked)
    rates = _Rates.of(served.rates[places])
    beyond = np.array([hypot(*_outside(one)) for one in theirs])
    far = np.hypot(beyond, np.maximum(unusual, unusual**2 / FAR))
    written = np.maximum(0.0, -np.log(2.0 * decoding))
    engine = np.array([0.0 if q.deployment.engine.name == "vllm" else OTHER_ENGINE for q in own])
    two = rates._replace(value=rates.value / slower).widened(
        np.hypot(np.hypot(UNLIKE * far, written), engine)
    )
    precision = two.precision()
    narrowed = 1.0 / np.sqrt(1.0 + runs[rows] / ENOUGH_ROWS)
    return _combined(times, rows, one, two, precision / (one.precision(narrowed) + precision))


def _known(estimates: Matrix) -> Mask:
    """Whether values and the ends of their intervals, (n, 3), are known and positive, (n,)."""
    value, low, high = estimates.T
    return np.asarray((low > 0.0) & (low <= value) & (value <= high))


def _decoding_shares(queries: Sequence[Query], times: TimeColumns) -> Column:
    """Share of the time of requests in which their tokens after the first are written, (n,)."""
    tokens = np.array([max(query.deployment.load.output_tokens - 1.0, 0.0) for query in queries])
    latency, tpot = (times.estimates[name][:, 0] for name in ("request_latency_ms", "tpot_ms"))
    return np.asarray(tokens * tpot / latency)


def _outside(limits: Sequence[Limit]) -> tuple[float, float]:
    """How far logarithms among the features lie outside of their ranges, all together.

    The second number is the distance of the tokens that are written, the first that of the others.
    """
    others, written = 0.0, 0.0
    for one in limits:
        if one.feature is None or not one.feature.startswith("log_"):
            continue
        if one.feature == "log_output_tokens":
            written = hypot(written, _distance(one))
        else:
            others = hypot(others, _distance(one))
    return others, written


def _distance(limit: Limit) -> float:
    if limit.value is None or limit.low is None or limit.high is None:
        return 0.0
    return max(limit.low - limit.value, limit.value - limit.high, 0.0)


def _at_lengths(queries: Sequence[Query], asked: Sequence[Query]) -> tuple[Column, Column]:
    """How much slower steps are with the lengths of deployments than with usual ones of such
    requests, and the distance of the logarithms of both lengths from usual ones, each (n,).

    Args:
        queries: n deployments.
        asked: the deployments as served models.
    """
    loads = [query.deployment.load for query in queries]
    lengths = np.array([(load.input_tokens, load.output_tokens) for load in loads]).T
    slower, unusual = np.empty((2, len(queries)))
    # Many deployments are the same served model, whose object they share.
    same = list(groups_of(map(id, asked)).values())
    for groups in groups_of(with_any_sequences(asked[rows[0]]) for rows in same).values():
        rows = [row for group in groups for row in same[group]]
        served = [generative(asked[row]) for row in rows]
        first, (prompt, answer) = served[0], lengths[:, rows]
        assert isinstance(first, LlmServing)
        sequences = np.array([outputs(one) for one in served])
        slower[rows] = slower_at_lengths(asked[rows[0]], sequences, prompt, answer)
        usual = TOKENS[first.request]
        unusual[rows] = np.hypot(np.log(prompt / usual[0]), np.log(answer / usual[1]))
    return slower, unusual


def _combined(
    times: TimeColumns, rows: Positions, one: _Rates, two: _Rates, weight: Column
) -> TimeColumns:
    """The times with the weighted geometric means of both rates of k deployments.

    The variance of the mean is that of independent errors, and that of a mixture of both values.

    Args:
        times: times of n deployments.
        rows: positions of the k deployments.
        one: their rates.
        two: their rates by the predictor of served models.
        weight: shares of the second rates, 0 to 1, (k,).
    """
    apart = np.log(two.value / one.value)
    between = STANDARD * np.sqrt(weight * (1.0 - weight)) * np.abs(apart)
    down, up = (
        np.hypot(np.hypot((1.0 - weight) * first, weight * second), between)
        for first, second in ((one.down, two.down), (one.up, two.up))
    )
    faster, estimates = np.exp(weight * apart), dict(times.estimates)
    for name, every in times.estimates.items():
        own, changed = every[rows], every.copy()
        if name in RATES:
            changed[rows] = _around(own[:, 0] * faster, down, up)
        elif name == "request_latency_ms":
            changed[rows] = _around(own[:, 0] / faster, up, down)
        elif name in TIMES:
            value, low, high = own.T
            ends = np.hypot(np.log(value / low), between), np.hypot(np.log(high / value), between)
            changed[rows] = _around(value / faster, *ends)
        estimates[name] = changed
    limits = list(times.limits)
    for row, said in zip(rows.tolist(), _said(one, two, weight), strict=True):
        limits[row] += said
    return replace(times, estimates=estimates, limits=limits)


def _around(values: Column, down: Column, up: Column) -> Matrix:
    """Values and the ends of their intervals, (k, 3)."""
    return np.column_stack([values, values * np.exp(-down), values * np.exp(up)])


def _said(one: _Rates, two: _Rates, weight: Column) -> list[tuple[Limit, ...]]:
    """What both predictors give, where that of served models counts or contradicts the other."""
    apart = np.log(two.value / one.value)
    disjoint = (apart > one.up + two.down) | (-apart > one.down + two.up)
    said: list[tuple[Limit, ...]] = [()] * len(weight)
    for row in np.flatnonzero(disjoint | ~(weight < SMALL)).tolist():
        text = (
            f"the rate is a weighted geometric mean of {one.value[row]:,.0f} tokens/s by the "
            f"predictor of times and {two.value[row]:,.0f} by that of served models, which counts "
            f"{100 * weight[row]:.0f} %"
        )
        said[row] = (Limit(text, LATENCY, "outside" if disjoint[row] else "note"),)
    return said
