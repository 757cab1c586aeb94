"""Corrections of times in closed form: of deployments, and of the iterations of one worker.

The times of a deployment have factors on the parts of the closed form, fitted to the logarithms of
measured times; boosters predict what is left over. They predict the ratio of the measured time to
the closed form, and minimise the mean absolute percentage error: few runs wait for minutes where
most wait for milliseconds, and boosters of the logarithm of the ratio are further off on average.

No time falls as prompts get longer: boosters on all features see only those that stay then or rise,
and do not fall with these. Measured times grow less with prompts than the closed form, so these
boosters predict the ratio to a part of its logarithm (`KEPT`).

Runs of one release of an engine with one model have something in common that runs of another do
not have. Boosters on all features are therefore believed where such runs were measured: of the time
per token on the same device, of the time to the first token on any. Of all others, the time per
token is the closed form alone, since boosters and fitted factors made its error larger on releases
that they had not seen. The time to the first token is the closed form times a ratio that boosters
predict from features that carry over, since it depends on how clients start.

The time for each token after the first is an iteration of decoding and the prompts that are
processed meanwhile. The time to the first token is the prompt's own work, waiting for a part of
an iteration, for prompts that started at the same time, for independent arrivals, and host time.
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
"""Scales beyond this factor either way are cut off: there the two disagree about something else."""


@dataclass(frozen=True, slots=True)
class FittedTime:
    """Times of iterations, those of decoding and those of prompts each times a factor.

    Attributes:
        time: times that are scaled.
        prefill: factor of what prompts add to an iteration.
        decode: factor of an iteration that only decodes.
        least: times that no iteration is faster than; None for no such bound.
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
        alone = np.where(iterations.decode_sequences > 0, np.minimum(decodes, plain), 0.0)
        found = self.decode * alone + self.prefill * (plain - alone)
        return found if self.least is None else np.maximum(found, self.least.seconds(iterations))


def cut_off(factor: float) -> float:
    """A factor of at most `WIDEST_SCALE` either way."""
    return min(max(factor, 1.0 / WIDEST_SCALE), WIDEST_SCALE)


SCALE: Final = 0.15
"""Log error from which on a row counts less than by its square."""
PRIOR_ROWS: Final = 0.05
"""Weight of a factor of one, as a share of the weight of all rows, for a log factor of one."""
P: Final = len(PARTS)
E: Final = len(ENGINES)
EXTRA: Final = 2 * E + 5

Time = Callable[[Column, DeploymentRows], Column]


def token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time for each token after the first, shape (n,).

    Args:
        logs: (2 parts,) logarithms of the factors on parts of decoding and of prompts.
        rows: n deployments.
    """
    prompt = rows.prefill @ np.exp(logs[P : 2 * P])
    step = rows.decode @ np.exp(logs[:P])
    return np.asarray(step / rows.accepted + rows.per_token * prompt)


def first_token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time to the first token, shape (n,).

    Args:
        logs: (`EXTRA`,) logarithms of the factors on host time and on prompts that start together,
            by engine; on host time where prompts have workers of their own, on an iteration, on
            waiting, on an iteration for each further chunk, and on prompts.
        rows: n deployments.
    """
    host, together = (rows.engine @ np.exp(own) for own in (logs[:E], logs[E : 2 * E]))
    handover, iteration, arrivals, chunk, each = np.exp(logs[2 * E :])
    prompt, step = rows.prefill.sum(axis=1), rows.decode.sum(axis=1)
    waiting = together * each * rows.wave * rows.burst * prompt + arrivals * rows.waiting
    further = chunk * np.maximum(rows.chunks - 1.0, 0.0)
    chunks = (iteration * np.minimum(rows.chunks, 1.0) + further) * step
    fixed = np.where(rows.apart > 0.0, handover, host) * FIRST_MS
    return np.asarray(each * rows.batch_prefill + chunks + fixed + waiting)


FORMS: Final[tuple[tuple[str, Time, int], ...]] = (
    ("tpot_ms", token_seconds, 2 * P),
    ("ttft_ms", first_token_seconds, EXTRA),
)
"""Metric, its closed form, and the number of its factors."""


def as_started(metric: str, logs: Column, rows: DeploymentRows) -> Column:
    """Logarithms of a time, shape (n,), of requests that start as those of each deployment do.

    Prompts start together in the closed loops of the training set, and what is fitted to them holds
    that. The time to the first token of a prompt that starts alone is its time without queueing and
    the waiting of arrivals, in closed form.

    Args:
        metric: the time.
        logs: (n,) logarithms of the seconds of prompts that start together.
        rows: n deployments.
    """
    if metric != "ttft_ms":
        return logs
    alone = np.log(rows.service + rows.waiting)
    return np.asarray(alone + rows.together * (logs - alone))


@dataclass(frozen=True)
class PartScales:
    """Logarithms of the factors on the parts of one time.

    Attributes:
        logs: the logarithms.
    """

    logs: Column

    @classmethod
    def fit(cls, form: Time, number: int, rows: DeploymentRows, target: Column) -> Self:
        """Robust least squares on log errors, with a prior at factors of one.

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

        found = least_squares(errors, np.zeros(number), loss="soft_l1", f_scale=SCALE, max_nfev=25)
        return cls(found.x)


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
"""Boosters of the ratio that carries over, whose mean is smoother than each."""
THRESHOLD_DIGITS: Final = 9
"""Releases such as 10200.03 differ in the last of seven digits."""
LEAST: Final = 0.05
"""Smallest ratio that is predicted."""
KEPT: Final = 0.8
"""Share of the logarithm of the closed form in what boosters on all features are a ratio to, so
that they may rise by less with prompts. With deployments left out, .75 to .85 are within 0.3
points of each other, and 1 is 1.0 worse for the first token, .5 is 1.0 worse for others."""
USUAL_S: Final = 0.05
"""Time from which this share is taken, seconds."""


@dataclass(frozen=True)
class Correction:
    """The fitted prediction of one time.

    Attributes:
        form: position of the time in `FORMS`.
        scales: factors on the parts of the closed form.
        transfer: boosters of the ratio to the closed form without factors on the features of
            `SHAPE`; None where the closed form with factors is taken instead.
        own: boosters of the ratio to a part of the closed form with factors (`KEPT`), on all
            features that do not fall with longer prompts.
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
            form: position in `FORMS`.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
            trees: boosting rounds for models of the training set.
            seeds: seeds of the boosters.
        """
        metric, seconds, number = FORMS[form]
        scales = PartScales.fit(seconds, number, rows, target)
        transfer = None
        if metric == "ttft_ms":
            left = target - np.log(seconds(np.zeros(number), rows))
            several = [TRANSFER_BAG * seed + k for seed in seeds for k in range(TRANSFER_BAG)]
            transfer = _fitted(rows.shape, left, TRANSFER_SETTINGS, TRANSFER_TREES, several)
        left = target - _kept(seconds(scales.logs, rows))
        return cls(form, scales, transfer, _fitted(_all(rows), left, SETTINGS, trees, seeds))

    def predict(self, rows: DeploymentRows, known: Mask) -> Column:
        """Logarithm of seconds, shape (n,).

        Args:
            rows: n deployments.
            known: (n,) whether the boosters on all features are used.
        """
        metric, seconds, number = FORMS[self.form]
        found = np.log(seconds(np.zeros(number), rows))
        if known.any():
            own = rows.take(known)
            base = _kept(seconds(self.scales.logs, own))
            found[known] = base + _log_ratio(self.own, _all(own))
        if self.transfer is not None:
            found[~known] += _log_ratio(self.transfer, rows.shape[~known])
        return as_started(metric, found, rows)


def _fitted(
    matrix: Matrix, left: Column, settings: Mapping[str, Any], trees: int, seeds: Sequence[int]
) -> BoosterBag:
    """Boosters of a ratio less one; an absolute error counts by its share of the ratio.

    Args:
        matrix: (n, features).
        left: (n,) logarithms of the ratio.
        settings: parameters of the boosters.
        trees: boosting rounds.
        seeds: seeds of the boosters.
    """
    ratio, weights = np.expm1(left), np.exp(-left)
    bag = BoosterBag.fit(
        matrix, ratio, parameters=settings, trees=trees, seeds=seeds, weights=weights
    )
    return BoosterBag(tuple(coarse(text, THRESHOLD_DIGITS) for text in bag.texts))


def _log_ratio(boosters: BoosterBag, matrix: Matrix) -> Column:
    if not len(matrix):
        return np.zeros(0)
    return np.asarray(np.log(np.maximum(1.0 + boosters.predict(matrix), LEAST)))


def _kept(seconds: Column) -> Column:
    """Part of the logarithm of times in closed form, (n,)."""
    return np.asarray(KEPT * np.log(seconds / USUAL_S) + np.log(USUAL_S))


def _all(rows: DeploymentRows) -> Matrix:
    return np.column_stack([rows.shape[:, len(STEADY) :], rows.figures])
