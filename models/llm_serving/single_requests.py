"""Times of single requests, from what a router knows of a server when it dispatches one.

The closed form splits the times into parts, such as the request's own prompt and the prompts ahead
of it. Measured requests fit a non-negative weight for each part, and then a non-decreasing
calibration curve, so that more work never takes less time. Both start from the closed form, and
recent requests count most.
"""

from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.features.llm_serving.features import SERVER_S
from forerun.features.llm_serving.iteration import Iterations
from forerun.models.llm_serving.worker import Worker

Time = Literal["ttft_ms", "tpot_ms"]

QUANTILE: Final = 0.9
"""Predicted quantile, the default of llm-d's predictor."""
WINDOW: Final = 1_000
"""Number of latest measured requests to learn from."""
HALF_LIFE: Final = 300.0
"""Half-life of a measurement in the fit of the weights, requests."""
CURVE_HALF_LIFE: Final = 70.0
"""As `HALF_LIFE`, for the slope and the curve."""
RIDGE: Final = 5.0
"""Strength of the prior on the weights, requests."""
SLOPE_RIDGE: Final = 0.04
"""Strength of the prior on a slope of one, requests times a variance of logarithms."""
BELIEF: Final = 10.0
"""Strength of the prior on the level (the closed form) and on each point of the curve (the quantile
over all recent requests), requests."""
BANDWIDTH: Final = 0.5
"""Kernel bandwidth of the curve, in standard deviations of the logarithm of the times."""
LEAST_BANDWIDTH: Final = 0.03
KNOTS: Final = 24
OUTLIER: Final = 0.5
"""Log error above which a request is down-weighted in the fit of the weights."""
SPREAD: Final = {"ttft_ms": 1.5, "tpot_ms": 1.15}
"""Ratio of quantile to best estimate before anything is measured."""
STILL_READ: Final = 0.1
"""Prior share of a prompt token's work that remains when the router expects it to be cached."""


@dataclass(frozen=True, slots=True)
class ServerStates(Columns):
    """State of the server when each of n requests is dispatched to it.

    Attributes:
        cache_share: (n,) share of the cache blocks in use, 0 to 1.
        input_tokens: (n,) length of the request's prompt.
        waiting: (n,) waiting requests.
        running: (n,) running requests, with or without the waiting ones.
        prefix_share: (n,) share of the prompt that the router expects in the prefix cache, 0 to 1.
        prefill_tokens: (n,) prompt tokens dispatched earlier and not yet processed; 0 if the router
            does not say.
    """

    cache_share: Column
    input_tokens: Column
    waiting: Column
    running: Column
    prefix_share: Column
    prefill_tokens: Column

    def __len__(self) -> int:
        return len(self.cache_share)


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """The closed form of one server of a deployment.

    Attributes:
        worker: the server.
        ranks: its data-parallel ranks, which share its requests.
        input_tokens, output_tokens: mean lengths of its requests.
        has_cache: whether prompts are expected in a prefix cache.
        lone_s, full_s: decode iteration of one sequence, and of as many as fill the cache, seconds.
        token_s: time that a prompt token adds to an iteration, seconds.
    """

    worker: Worker
    ranks: int
    input_tokens: float
    output_tokens: float
    has_cache: bool
    lone_s: float
    full_s: float
    token_s: float

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device) -> Self:
        """The closed form of one worker of the deployment.

        Raises:
            UnknownBandwidth, UnknownPrecision, UnanswerableQuery: as `Worker.of`.
        """
        load, worker = deployment.load, Worker.of(deployment, device)
        chunk, room = float(worker.max_batched_tokens), worker.capacity_tokens
        most = min(float(worker.max_sequences), room / (load.input_tokens + load.output_tokens / 2))
        prompt = np.array([0.0, 0.0, chunk])
        sequences = np.array([1.0, max(1.0, most), 1.0])
        contexts = np.array([0.0, room, 0.0])
        pairs = prompt * (prompt + 1.0) / 2.0
        each = Iterations(prompt, pairs, np.minimum(prompt, 1.0), sequences, contexts)
        lone, full, chunked = (float(seconds) for seconds in worker.time.seconds(each))
        return cls(
            worker,
            deployment.pool.parallelism.attention_data,
            load.input_tokens,
            load.output_tokens,
            load.cached_share > 0.0,
            lone,
            full,
            (chunked - lone) / chunk,
        )

    def prior(self, time: Time) -> Column:
        """Prior weight of each part of a time."""
        cached = STILL_READ if self.has_cache else 1.0
        return np.array([1.0, 1.0, 1.0, cached, 1.0, 1.0] if time == "ttft_ms" else np.ones(4))

    def parts(self, time: Time, states: ServerStates) -> Matrix:
        """Parts of a time, shape (n, parts), milliseconds.

        Time to first token: the iteration that a request waits for, what decode adds to it, the
        uncached and the cached part of its own prompt, the prefill of all prompts ahead of it, and
        the time until answers finish to free cache for those of them that do not fit.
        Time per further token: an iteration of one sequence, what further sequences and what their
        contexts add, and the prompts that replace finished requests in the meantime.

        No part falls when a request or a prompt is added.
        """
        worker, n = self.worker, len(states)
        running = np.minimum(states.running / self.ranks + 1.0, worker.max_sequences)
        context = states.cache_share * worker.capacity_tokens
        none, lone = np.zeros(2 * n), np.full(n, self.lone_s)
        tokens = np.concatenate([np.zeros(n), context])
        decoding = Iterations(none, none, none, np.tile(running, 2), tokens)
        sequences, both = np.asarray(worker.time.seconds(decoding)).reshape(2, n)
        # By Little's law, this many prompt tokens enter per iteration and cached token.
        prompt_share = self.input_tokens / (self.input_tokens + self.output_tokens / 2.0)
        entering = prompt_share / self.output_tokens
        if time == "tpot_ms":
            prefill = entering * context * self.token_s
            return 1e3 * np.stack([lone, sequences - lone, both - sequences, prefill], axis=1)
        prompt, cached = states.input_tokens, states.input_tokens * states.prefix_share
        ahead = np.maximum(states.prefill_tokens, states.waiting * self.input_tokens) / self.ranks
        without_room = np.maximum(ahead - (worker.capacity_tokens - context), 0.0)
        parts = [
            SERVER_S + 1.5 * lone,
            both - lone,
            (prompt - cached) * self.token_s,
            cached * self.token_s,
            ahead * self.token_s,
            without_room * self.full_s / (entering * worker.capacity_tokens),
        ]
        return 1e3 * np.stack(parts, axis=1)


@dataclass(frozen=True, slots=True)
class LearnedTime:
    """One time of requests: the closed form, calibrated on measured requests.

    Attributes:
        weights: weights of the parts.
        slope, centre, level: the logarithm of the best estimate is
            `level + slope * (log(weighted sum of parts) - centre)`.
        knots, curve: rising logarithms of best estimates, and of the quantile at each.
    """

    weights: Column
    slope: float
    centre: float
    level: float
    knots: Column
    curve: Column

    @classmethod
    def of(cls, time: Time, prior: Column, parts: Matrix, measured_ms: Column) -> Self:
        """Learn from n requests in the order of measurement; n may be 0.

        Args:
            time: which of the two times.
            prior: weights of the parts in the closed form.
            parts: (n, parts) parts of the requests' times, milliseconds.
            measured_ms: (n,) measured times, positive, milliseconds.
        """
        spread = float(np.log(SPREAD[time]))
        parts, measured_ms = parts[-WINDOW:], measured_ms[-WINDOW:]
        n = len(measured_ms)
        if not n:
            return cls(prior, 1.0, 0.0, 0.0, np.zeros(1), np.full(1, spread))
        age = np.arange(n)[::-1]
        weights = _weights(prior, parts, measured_ms, 0.5 ** (age / HALF_LIFE))
        recent = 0.5 ** (age / CURVE_HALF_LIFE)
        sums, logs = np.log(parts @ weights), np.log(measured_ms)
        centre = float(np.average(sums, weights=recent))
        level = centre + float(recent @ (logs - sums) / (recent.sum() + BELIEF))
        variance = recent @ (sums - centre) ** 2 + SLOPE_RIDGE
        covariance = recent @ ((sums - centre) * (logs - level)) + SLOPE_RIDGE
        slope = float(np.clip(covariance / variance, 0.0, 1.5))
        best = level + slope * (sums - centre)
        deviation = np.sqrt(np.average((best - level) ** 2, weights=recent))
        width = max(LEAST_BANDWIDTH, BANDWIDTH * float(deviation))
        knots = np.linspace(best.min(), best.max() + 1e-9, KNOTS)
        errors = logs - best
        overall = _quantile(errors, recent[None], spread)
        near = recent * np.exp(-0.5 * ((knots[:, None] - best) / width) ** 2)
        curve = np.maximum.accumulate(knots + _quantile(errors, near, float(overall[0])))
        return cls(weights, slope, centre, level, knots, curve)

    def quantile_ms(self, parts: Matrix) -> Column:
        """`QUANTILE` of the time of n requests, shape (n,), milliseconds."""
        best = self.level + self.slope * (np.log(parts @ self.weights) - self.centre)
        return np.exp(best + np.interp(best, self.knots, self.curve - self.knots))


def _weights(prior: Column, parts: Matrix, measured_ms: Column, counts: Column) -> Column:
    """Weights of the parts, by robust non-negative least squares on relative errors."""
    from scipy.optimize import nnls

    weights, rows = prior, np.sqrt(RIDGE) * np.eye(len(prior))
    for _ in range(4):
        predicted = np.maximum(parts @ weights, 1e-9)
        errors = np.maximum(np.abs(np.log(measured_ms / predicted)), 1e-9)
        scale = np.sqrt(counts * np.minimum(1.0, OUTLIER / errors)) / predicted
        design = np.vstack([scale[:, None] * parts, rows])
        weights, _ = nnls(design, np.append(scale * measured_ms, rows @ prior))
    # Positive weights keep the logarithm of the sum finite.
    return np.maximum(np.asarray(weights), 1e-6)


def _quantile(values: Column, counts: Matrix, belief: float) -> Column:
    """Weighted `QUANTILE` of n values, with the weights in each of k rows, shape (k,).

    The prior consists of `BELIEF` pseudo-values whose quantile is `belief`.
    """
    values = np.append(values, [-np.inf, belief])
    above = (1.0 - QUANTILE) * BELIEF + 1e-9
    prior = np.tile([BELIEF - above, above], (len(counts), 1))
    order = np.argsort(values)
    below = np.cumsum(np.hstack([counts, prior])[:, order], axis=1)
    at = (below >= QUANTILE * below[:, -1:]).argmax(axis=1)
    return np.asarray(values[order][at])
