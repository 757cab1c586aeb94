"""Fit of the response to a power limit, from jobs that ran at several limits on one device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns, Mask
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import sheet
from forerun.models.power.limit_response import LAW, POWER, TIME, LimitResponse, binds, depth

POWER_SPREAD: Final = 0.05
TIME_SPREAD: Final = 0.07
"""Standard deviations of the residuals of the law, in log space."""
LEAST: Final = (0.85, 1.18, 0.02, 0.02, 0.05, 0.0)
MOST: Final = (1.0, 1.9, 0.33, 1.0, 1.0, 2.0)
"""Bounds of the coefficients in the fit, in the order of `LAW`."""


@dataclass(frozen=True)
class CappedRuns(Columns):
    """n runs below the highest limit of their job, relative to the run at that limit.

    Attributes:
        queries: n queries with their limits.
        limit_w: (n,) power limit, W.
        tdp_w: (n,) highest limit at which the job was measured, W.
        free_w: (n,) power at the highest limit, W.
        power, time: (n,) log ratios of power and of time to those at the highest limit.
    """

    queries: Sequence[Query]
    limit_w: Column
    tdp_w: Column
    free_w: Column
    power: Column
    time: Column

    @classmethod
    def of(cls, rows: Measurements) -> "CappedRuns":
        """Runs whose job was also measured at a higher limit, at or near the design power."""
        jobs: dict[Query, list[int]] = {}
        for row, query in enumerate(rows.queries):
            if query.operation.power_limit_w is not None:
                limitless = replace(query.operation, power_limit_w=None)
                jobs.setdefault(replace(query, operation=limitless), []).append(row)
        limits = np.array([q.operation.power_limit_w or np.nan for q in rows.queries])
        watts, times = rows.values[POWER], rows.values[TIME]
        pairs = []
        for rows_of_job in jobs.values():
            known = [r for r in rows_of_job if np.isfinite(watts[r]) and np.isfinite(times[r])]
            if not known:
                continue
            top = max(known, key=lambda row: float(limits[row]))
            if not binds(rows.queries[top]) or limits[top] > 0.95 * _tdp(rows.queries[top]):
                pairs += [(row, top) for row in known if row != top]
        low, high = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return cls(
            [rows.queries[int(row)] for row in low],
            limits[low],
            limits[high],
            watts[high],
            np.log(watts[low] / watts[high]),
            np.log(times[low] / times[high]),
        )

    def residuals(self, response: LimitResponse) -> tuple[Column, Column]:
        """log(measured / predicted) of the ratios of power and of time, shapes (n,)."""
        power, time = response.ratios(self.limit_w, self.free_w, self.tdp_w)
        return self.power - np.log(power), self.time - np.log(time)


def fit_response(rows: Measurements) -> LimitResponse:
    """Coefficients fitted to all devices; error quantiles from held-out devices.

    With fewer than two devices the default error is kept. The finite-sample correction counts runs,
    because devices are a handful: bounds that count those would be the largest residual.

    Args:
        rows: runs with `power_w` and `latency_ms`, each job at several limits.
    """
    runs = CappedRuns.of(rows)
    if not len(runs.queries):
        return LimitResponse()
    sheets = [sheet(query.device) for query in runs.queries]
    response = replace(_coefficients(runs), sheets=tuple(sorted(set(sheets))))
    if len(response.sheets) < 2:
        return response

    def residuals(held: Mask) -> tuple[Column, Column]:
        return runs.take(held).residuals(_coefficients(runs.take(~held)))

    columns = out_of_fold(np.array([str(own) for own in sheets]), residuals, columns=2)
    ratios = zip(runs.limit_w, runs.free_w, strict=True)
    strata = np.array([depth(float(limit), float(power)) for limit, power in ratios])
    power, time = (LogQuantiles.of(column, strata) for column in columns)
    return replace(response, errors={POWER: power, TIME: time})


def _coefficients(runs: CappedRuns) -> LimitResponse:
    from scipy.optimize import least_squares

    start = LimitResponse()

    def residuals(point: Column) -> Column:
        power, time = runs.residuals(_response(point))
        return np.concatenate([power / POWER_SPREAD, time / TIME_SPREAD])

    first = np.clip(
        [getattr(start, name) for name in LAW], np.add(LEAST, 1e-3), np.add(MOST, -1e-3)
    )
    fit = least_squares(residuals, first, bounds=(LEAST, MOST), loss="soft_l1", x_scale=0.1)
    return _response(fit.x)


def _response(point: Column) -> LimitResponse:
    headroom, onset, static, linear, compute, growth = map(float, point)
    return LimitResponse(headroom, onset, static, linear, compute, growth)


def _tdp(query: Query) -> float:
    return query.device.tdp_w or np.inf
