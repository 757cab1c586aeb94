"""Residual corrections of closed-form times, of deployments and of one worker's iterations.

Each time of a deployment gets factors on the parts of its closed form, fitted to the logarithms of
measured times. Gradient-boosted trees predict the residual, as the ratio of the measured time to
the closed form. They minimise the mean absolute percentage error: a few runs wait for minutes where
most wait for milliseconds, and boosters of the logarithm of the ratio are worse on average.

No time falls as prompts get longer: the full-feature boosters see only features that stay constant
or rise with prompt length, and are monotone in the rising ones. Measured times grow more slowly
with prompt length than the closed form, so these boosters predict the ratio to a power of it
(`KEPT`).

Residuals are specific to a model and an engine release. The full-feature boosters are therefore
used only where runs with both were measured: on the same device for the time per output token, on
any device for the time to first token. Elsewhere, the time per output token is the closed form
alone, because boosters and fitted factors increased its error on unseen releases. The time to first
token is the closed form times a ratio that boosters predict from transferable features, because it
depends on how clients start.

The time per output token after the first is a decode iteration, plus the prompts processed in the
meantime. The time to first token is the prefill of the prompt itself, part of an iteration that it
waits for, the wait for prompts that started at the same time and for independent arrivals, and host
time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.features.llm_serving.features import (
    ENGINES,
    FIGURES,
    FIRST_MS,
    RISING,
    SHAPE,
    STEADY,
    DeploymentRows,
)
from forerun.features.llm_serving.iteration import Iterations, IterationTime
from forerun.features.llm_serving.step import PARTS
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.bags import coarse

WIDEST_SCALE: Final = 4.0
"""Scale factors are clipped to this range either way: beyond it, something else must be wrong."""


@dataclass(frozen=True, slots=True)
class FittedTime:
    """Iteration times with scale factors on prefill and decode.

    Attributes:
        time: the unscaled times.
        prefill: factor on the time that prompts add to an iteration.
        decode: factor on the time of a decode-only iteration.
        least: lower bound on iteration times; None for no bound.
    """

    time: IterationTime
    prefill: float
    decode: float
    least: IterationTime | None = None

    def seconds(self, iterations: Iterations) -> Column:
        """Time of each iteration, shape (n,), seconds."""
        none = np.zeros(len(iterations))
        plain = np.asarray(self.time.seconds(iterations))
        decodes = np.asarray(
            self.time.seconds(
                replace(iterations, prefill_tokens=none, prefill_pairs=none, prefill_sequences=none)
            )
        )
        decode = np.where(iterations.decode_sequences > 0, np.minimum(decodes, plain), 0.0)
        scaled = self.decode * decode + self.prefill * (plain - decode)
        return scaled if self.least is None else np.maximum(scaled, self.least.seconds(iterations))


def cut_off(factor: float) -> float:
    """Clip a factor to at most `WIDEST_SCALE` either way."""
    return min(max(factor, 1.0 / WIDEST_SCALE), WIDEST_SCALE)


SCALE: Final = 0.15
"""Scale of the robust loss: larger log errors count about linearly, not by their squares."""
PRIOR_ROWS: Final = 0.05
"""Strength of the prior at factors of one: a log factor of 1 costs as much as an error of `SCALE`
in this share of all rows."""
P: Final = len(PARTS)
E: Final = len(ENGINES)
EXTRA: Final = 2 * E + 5

Time = Callable[[Column, DeploymentRows], Column]


def token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time per output token after the first, shape (n,), seconds.

    Args:
        logs: (2 parts,) logarithms of the factors on the parts of decode and of prefill.
        rows: n deployments.
    """
    prompt = rows.prefill @ np.exp(logs[P : 2 * P])
    step = rows.decode @ np.exp(logs[:P])
    return np.asarray(step / rows.accepted + rows.per_token * prompt)


def first_token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time to first token, shape (n,), seconds.

    Args:
        logs: (`EXTRA`,) logarithms of factors: by engine, on host time and on prompts that start
            together; then on host time with disaggregated prefill, on the first iteration, on
            queueing delay, on the iteration of each further chunk, and on prefill.
        rows: n deployments.
    """
    host, together = (rows.engine @ np.exp(each) for each in (logs[:E], logs[E : 2 * E]))
    handover, iteration, queueing, chunk, prefill = np.exp(logs[2 * E :])
    prompt, step = rows.prefill.sum(axis=1), rows.decode.sum(axis=1)
    waiting = together * prefill * rows.wave * rows.burst * prompt + queueing * rows.waiting
    further = chunk * np.maximum(rows.chunks - 1.0, 0.0)
    chunks = (iteration * np.minimum(rows.chunks, 1.0) + further) * step
    fixed = np.where(rows.apart > 0.0, handover, host) * FIRST_MS
    return np.asarray(prefill * rows.batch_prefill + chunks + fixed + waiting)


FORMS: Final[tuple[tuple[str, Time, int], ...]] = (
    ("tpot_ms", token_seconds, 2 * P),
    ("ttft_ms", first_token_seconds, EXTRA),
)
"""Metric, its closed form, and the number of its factors."""


def as_started(metric: str, logs: Column, rows: DeploymentRows) -> Column:
    """Adjust the logarithms of a time, shape (n,), to how closely requests start together.

    In the closed loops of the training set, prompts start together, and fitted times include that
    wait. For a prompt that starts alone, the time to first token is the closed form: its time
    without queueing, plus the queueing delay of independent arrivals.

    Args:
        metric: the time.
        logs: (n,) logarithms of seconds, for prompts that start together.
        rows: n deployments.
    """
    if metric != "ttft_ms":
        return logs
    alone = np.log(rows.service + rows.waiting)
    return np.asarray(alone + rows.together * (logs - alone))


@dataclass(frozen=True)
class PartScales:
    """Fitted factors on the parts of one time.

    Attributes:
        logs: logarithms of the factors.
    """

    logs: Column

    @classmethod
    def fit(cls, form: Time, number: int, rows: DeploymentRows, target: Column) -> Self:
        """Fit by robust least squares on log errors, with a prior at factors of one.

        Args:
            form: closed form of the time.
            number: number of factors.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
        """
        from scipy.optimize import least_squares

        weight = float(np.sqrt(PRIOR_ROWS * len(rows)))

        def errors(logs: Column) -> Column:
            return np.append(np.log(form(logs, rows)) - target, weight * SCALE * logs)

        start = np.zeros(number)
        result = least_squares(errors, start, loss="soft_l1", f_scale=SCALE, max_nfev=25)
        return cls(result.x)


_SHARED: Final = MappingProxyType(
    {
        "learning_rate": 0.05,
        "min_data_in_leaf": 5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
    }
)
SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **_SHARED,
        "objective": "huber",  # almost `l1`, which LightGBM refuses with monotone features
        "alpha": 0.05,
        "num_leaves": 31,
        "feature_fraction": 0.8,
        "monotone_constraints": [int(name in RISING) for name in (*SHAPE[len(STEADY) :], *FIGURES)],
        "monotone_constraints_method": "intermediate",
    }
)
TRANSFER_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {**_SHARED, "objective": "l1", "extra_trees": True, "num_leaves": 15, "feature_fraction": 0.5}
)
TRANSFER_TREES: Final = 300
TRANSFER_BAG: Final = 4
"""Boosters of the transferable ratio; their mean is smoother than each."""
THRESHOLD_DIGITS: Final = 9
"""Significant digits of thresholds: releases such as 10200.03 differ in the last of seven."""
LEAST: Final = 0.05
"""Smallest predicted ratio."""
KEPT: Final = 0.8
"""Power of the closed form that the full-feature boosters predict a ratio to, so that predictions
can grow more slowly with prompt length. With held-out deployments, 0.75 to 0.85 are within 0.3
points of each other; 1 is 1.0 worse for the first token, 0.5 is 1.0 worse for the others."""
USUAL_S: Final = 0.05
"""Time at which this power leaves the closed form unchanged, seconds."""


@dataclass(frozen=True)
class Correction:
    """The fitted prediction of one time.

    Attributes:
        form: index of the time in `FORMS`.
        scales: factors on the parts of the closed form.
        transfer: boosters, on the features in `SHAPE`, of the ratio to the closed form without
            factors; None to use that closed form as it is.
        own: boosters, on all features that do not fall with longer prompts, of the ratio to a power
            (`KEPT`) of the closed form with factors.
    """

    form: int
    scales: PartScales
    transfer: BoosterBag | None
    own: BoosterBag

    @classmethod
    def fit(
        cls, form: int, rows: DeploymentRows, target: Column, trees: int, seeds: Sequence[int]
    ) -> Self:
        """Fit to n deployments.

        Args:
            form: index in `FORMS`.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
            trees: boosting rounds of the full-feature boosters.
            seeds: seeds of the boosters.
        """
        metric, seconds, number = FORMS[form]
        scales = PartScales.fit(seconds, number, rows, target)
        transfer = None
        if metric == "ttft_ms":
            residuals = target - np.log(seconds(np.zeros(number), rows))
            bag_seeds = [TRANSFER_BAG * seed + k for seed in seeds for k in range(TRANSFER_BAG)]
            transfer = _fitted(rows.shape, residuals, TRANSFER_SETTINGS, TRANSFER_TREES, bag_seeds)
        residuals = target - _damped_log(seconds(scales.logs, rows))
        boosters = _fitted(_monotone_features(rows), residuals, SETTINGS, trees, seeds)
        return cls(form, scales, transfer, boosters)

    def predict(self, rows: DeploymentRows, known: Mask) -> Column:
        """Logarithm of seconds, shape (n,).

        Args:
            rows: n deployments.
            known: (n,) whether to use the full-feature boosters.
        """
        metric, seconds, number = FORMS[self.form]
        logs = np.log(seconds(np.zeros(number), rows))
        if known.any():
            known_rows = rows.take(known)
            base = _damped_log(seconds(self.scales.logs, known_rows))
            logs[known] = base + _log_ratio(self.own, _monotone_features(known_rows))
        if self.transfer is not None:
            logs[~known] += _log_ratio(self.transfer, rows.shape[~known])
        return as_started(metric, logs, rows)


def _fitted(
    matrix: Matrix, residuals: Column, settings: Mapping[str, Any], trees: int, seeds: Sequence[int]
) -> BoosterBag:
    """Fit boosters of a ratio minus one, with errors weighted relative to the ratio.

    Args:
        matrix: (n, features).
        residuals: (n,) logarithms of the ratio.
        settings: parameters of the boosters.
        trees: boosting rounds.
        seeds: seeds of the boosters.
    """
    ratio, weights = np.expm1(residuals), np.exp(-residuals)
    bag = BoosterBag.fit(
        matrix, ratio, parameters=settings, trees=trees, seeds=seeds, weights=weights
    )
    return BoosterBag(tuple(coarse(text, THRESHOLD_DIGITS) for text in bag.texts))


def _log_ratio(boosters: BoosterBag, matrix: Matrix) -> Column:
    if not len(matrix):
        return np.zeros(0)
    return np.asarray(np.log(np.maximum(1.0 + boosters.predict(matrix), LEAST)))


def _damped_log(seconds: Column) -> Column:
    """Logarithms of closed-form times raised to the power `KEPT`, (n,)."""
    return np.asarray(KEPT * np.log(seconds / USUAL_S) + np.log(USUAL_S))


def _monotone_features(rows: DeploymentRows) -> Matrix:
    return np.column_stack([rows.shape[:, len(STEADY) :], rows.figures])
