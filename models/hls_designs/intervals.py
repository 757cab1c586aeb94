"""Calibration of the intervals of `DesignBoost` on held-out programs and held-out designs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from forerun.data.columns import Column
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.split import fold_of
from forerun.models.conformal import held_out_folds, weighted_quantile
from forerun.models.hls_designs.booster import ADAPTED, SHOTS, DesignBoost
from forerun.models.hls_designs.features import (
    METRICS,
    by_metric,
    feature_matrix,
    log_bounds,
    log_values,
)

Widths = Mapping[str, Mapping[str, float]]
FOLDS = 4
"""Folds of held-out programs."""
HELD_OUT_SHARE = 5
"""One in this many designs of each program is held out to calibrate the width of seen programs."""

UNCALIBRATED_WIDTH = 10.0
"""Half-width, in log2 or in standard deviations, where nothing could be held out."""

HeldOutErrors = tuple[str, str, Column]
"""Kind of program, metric, absolute errors of one program's designs."""


def calibrated_widths(settings: DesignBoost, rows: Measurements) -> Widths:
    """Half-widths of the intervals for seen programs, unseen programs, and after adaptation.

    Args:
        settings: predictor whose seed and trees count; its boosters are fitted anew for each fold.
        rows: the training rows that `fit` was given.

    Returns:
        `DesignBoost.widths`.
    """
    plain = replace(settings, calibrated=False)
    held_out = [*_of_held_out_programs(plain, rows), *_of_held_out_designs(plain, rows)]

    def width(*kind_and_metric: str) -> float:
        return _width([errors for *key, errors in held_out if tuple(key) == kind_and_metric])

    kinds = ("seen", "unseen", ADAPTED)
    return {kind: {metric: width(kind, metric) for metric in METRICS} for kind in kinds}


def _of_held_out_programs(plain: DesignBoost, rows: Measurements) -> Iterator[HeldOutErrors]:
    """Errors on held-out programs, before and after adaptation to SHOTS of their designs."""
    quick = replace(plain, trees={**plain.trees, "seen": 0}, loop_shape=None)
    program = rows.groups["kernel"]
    for held in held_out_folds(program, FOLDS, plain.seed):
        fitted = quick.fit(rows.take(~held))
        for name in np.unique(program[held]):
            designs = rows.take(program == name)
            yield from _errors("unseen", fitted, designs)
            if len(designs) >= 2 * SHOTS:
                support = np.zeros(len(designs), dtype=np.bool_)
                support[fitted.suggest(designs.queries, SHOTS, plain.seed)] = True
                adapted = fitted.adapt(designs.take(support))
                yield from _errors(ADAPTED, adapted, designs.take(~support))


def _of_held_out_designs(plain: DesignBoost, rows: Measurements) -> Iterator[HeldOutErrors]:
    """Errors on held-out designs of programs whose other designs are in the training set."""
    part = [fold_of(repr(q.workload), HELD_OUT_SHARE, "width") for q in rows.queries]
    held = np.array(part) == 0
    if not held.any() or held.all():
        return
    quick = replace(plain, trees={**plain.trees, "unseen": 1, "within": 1}, members=1)
    fitted = quick.fit(rows.take(~held))
    program = rows.groups["kernel"]
    for name in np.intersect1d(program[held], program[~held]):
        yield from _errors("seen", fitted, rows.take(held & (program == name)))


def _errors(kind: str, fitted: DesignBoost, rows: Measurements) -> Iterator[HeldOutErrors]:
    """Absolute errors on designs of one program: in log2, or in predicted standard deviations."""
    matrix = feature_matrix(rows.queries)
    predicted, deviations = fitted.predict_log(rows.queries, matrix)
    measured = np.column_stack([rows.values[metric] for metric in METRICS])
    errors = np.abs(log_values(measured) - log_bounds(matrix) - predicted)
    if kind == ADAPTED:
        errors = errors / deviations
    for metric, own in by_metric(errors).items():
        yield kind, metric, own[np.isfinite(own)]


def _width(parts: list[Column]) -> float:
    """Quantile of absolute errors at the nominal coverage.

    Each of a program's n errors weighs 1 / sqrt(n), so a program counts by the square root of n.
    """
    if not any(map(len, parts)):
        return UNCALIBRATED_WIDTH
    weights = [np.full(len(part), 1.0 / np.sqrt(max(1, len(part)))) for part in parts]
    return weighted_quantile(np.concatenate(parts), np.concatenate(weights), LEVEL)
