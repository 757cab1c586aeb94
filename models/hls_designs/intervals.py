"""Widths of the intervals of `DesignBoost`, from programs and designs held out in training."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.split import fold_of
from forerun.models.conformal.intervals import held_out_folds
from forerun.models.hls_designs.booster import COVERAGE, SHOTS, DesignBoost
from forerun.models.hls_designs.features import METRICS, feature_matrix, log_over_bound

Column = NDArray[np.float64]
Widths = Mapping[str, Mapping[str, float]]
FOLDS = 4
KEPT_OUT = 5
"""One in this many designs of each program is held out for the width of seen programs."""

NOTHING_KNOWN = 10.0
"""In log2, or in deviations: nothing was left to hold out."""


def calibrated_widths(settings: DesignBoost, rows: Measurements) -> Widths:
    """Half-widths for programs seen, unseen, and adapted to; nothing judged takes part.

    Args:
        settings: unfitted; its boosters are fitted anew without what is held out.
        rows: what `fit` was given.
    """
    plain = replace(settings, calibrated=False)
    found: dict[str, dict[str, list[tuple[Column, float]]]] = {
        kind: {metric: [] for metric in METRICS} for kind in ("seen", "unseen", "shown")
    }
    for kind, metric, missed, weight in (*_programs(plain, rows), *_designs(plain, rows)):
        found[kind][metric].append((missed, weight))
    return {
        kind: {metric: _quantile(parts) for metric, parts in metrics.items()}
        for kind, metrics in found.items()
    }


Missed = tuple[str, str, Column, float]


def _programs(plain: DesignBoost, rows: Measurements) -> Iterator[Missed]:
    """What is missed on programs held out, before and after a few of their designs."""
    quick = replace(plain, trees={**plain.trees, "seen": 1})
    program = rows.groups["kernel"]
    for held in held_out_folds(program, FOLDS, plain.seed):
        if held.all():
            continue
        fitted = quick.fit(rows.take(~held))
        for name in np.unique(program[held]):
            mine = rows.take(program == name)
            yield from _missed("unseen", fitted, mine)
            if len(mine) >= 2 * SHOTS:
                shown = np.zeros(len(mine), dtype=np.bool_)
                shown[fitted.suggest(mine.queries, SHOTS, plain.seed)] = True
                yield from _missed("shown", fitted.adapt(mine.take(shown)), mine.take(~shown))


def _designs(plain: DesignBoost, rows: Measurements) -> Iterator[Missed]:
    """What is missed on designs held out of programs that stay."""
    part = [fold_of(repr(q.workload), KEPT_OUT, "width") for q in rows.queries]
    held = np.array(part) == 0
    if not held.any() or held.all():
        return
    quick = replace(plain, trees={**plain.trees, "unseen": 1, "within": 1})
    fitted = quick.fit(rows.take(~held))
    known = held & np.isin(rows.groups["kernel"], rows.groups["kernel"][~held])
    for name in np.unique(rows.groups["kernel"][known]):
        mine = known & (rows.groups["kernel"] == name)
        yield from _missed("seen", fitted, rows.take(mine))


def _missed(kind: str, fitted: DesignBoost, rows: Measurements) -> Iterator[Missed]:
    """Absolute misses in log2, for `shown` in deviations; a program counts by root of its rows."""
    matrix = feature_matrix(rows.queries)
    for metric in METRICS:
        middle, spread = fitted.in_logarithms(metric, rows.queries, matrix)
        missed = np.abs(log_over_bound(metric, rows.values[metric], matrix) - middle)
        if kind == "shown":
            missed = missed / spread
        missed = missed[np.isfinite(missed)]
        if len(missed):
            yield kind, metric, missed, 1.0 / np.sqrt(len(missed))


def _quantile(parts: list[tuple[Column, float]]) -> float:
    """Weighted quantile at the coverage that intervals claim."""
    if not parts:
        return NOTHING_KNOWN
    missed = np.concatenate([part for part, _ in parts])
    weights = np.concatenate([np.full(len(part), weight) for part, weight in parts])
    order = np.argsort(missed)
    reached: Column = np.cumsum(weights[order]) / weights.sum()
    return float(missed[order][min(int(np.searchsorted(reached, COVERAGE)), len(order) - 1)])
