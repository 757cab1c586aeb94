"""Effect of a power limit on the power and time of any workload, fitted to Zeus's training jobs.

Other predictors give power and time without a limit, and this response scales them. It depends only
on the workload's predicted power and the device's design power, so it also applies where no run
under a limit was measured. Its own error widens the intervals.

Power follows the limit up to a job's demand, and clocks follow power. Dynamic power, which excludes
the static share, depends on the relative clock f. Where voltage falls with the clock, it is
proportional to f^3; at the lowest voltage it is proportional to f. The sum of both is
`share = f (a + (1 - a) f^2)`. Time has a compute share, which scales as 1/f, and a remainder that
waits for memory and the host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns, Mask
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.conformal import POOLED, LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.limit import NOT_APPLIED, Limit
from forerun.models.prediction import PredictionColumns, Predictions

SLOWEST: float = 0.05
"""Lowest relative clock; GPUs exceed the limit rather than go below it."""
NEWTON_STEPS = 14
HALVINGS = 40


def followed_power(ratio: Column, headroom: float | Column, onset: float) -> Column:
    """Average power over demand, shape (n,): at most 1, and non-decreasing in `ratio`.

    Args:
        ratio: (n,) limit over demand.
        headroom: average power over limit where the limit is low.
        onset: ratio above which the limit has no effect. It exceeds 1, because the demand is an
            average with higher peaks. Between `2 / headroom - onset` and `onset` a parabola joins
            the two linear parts.
    """
    start = 2.0 / headroom - onset
    bend = headroom / (2.0 * np.maximum(onset - start, 1e-9))
    joined = 1.0 - bend * np.square(np.maximum(onset - ratio, 0.0))
    return np.where(ratio >= onset, 1.0, np.where(ratio <= start, headroom * ratio, joined))


def demand(power: Column, limit: Column, headroom: float, onset: float) -> Column:
    """Power without a limit, given the power under one; shape (n,).

    Inverts `followed_power` by bisection. Where power is proportional to the limit, the demand is
    not unique, and the least one is returned.

    Args:
        power: (n,) average power under the limit.
        limit: (n,) limit, in the same unit.
        headroom: as in `followed_power`.
        onset: as in `followed_power`.
    """
    low = np.array(power, dtype=np.float64)
    high = np.maximum(limit / (2.0 / headroom - onset), low)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        more = middle * followed_power(limit / middle, headroom, onset) < power
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return high


def clock(share: Column, linear: float | Column) -> Column:
    """Relative clock for a given dynamic power, shape (n,).

    Args:
        share: (n,) dynamic power over that at full clock; clipped to 0.001 to 1.
        linear: share of dynamic power that is proportional to the clock, 0 to 1.
    """
    share = np.clip(share, 1e-3, 1.0)
    # Newton's method on a convex function, started above the root, converges monotonically.
    root: Column = np.minimum(np.cbrt(share / np.maximum(1.0 - linear, 1e-9)), 1.0)
    for _ in range(NEWTON_STEPS):
        gap = root * (linear + (1.0 - linear) * root**2) - share
        root = root - gap / (linear + 3.0 * (1.0 - linear) * root**2)
    return np.clip(root, SLOWEST, 1.0)


def stretched(clocks: Column, compute: float | Column) -> Column:
    """Time relative to full clock, shape (n,); the share `compute` scales with 1/clock."""
    ratio: Column = 1.0 + compute * (1.0 / clocks - 1.0)
    return ratio


POWER, TIME, ENERGY = "power_w", "latency_ms", "energy_j"
NAN: Final = float("nan")
LAW: Final = ("headroom", "onset", "static", "linear", "compute", "growth")
LOWEST: Final = 0.33
"""Lowest predictable limit as a share of the TDP: nothing lower was measured, and boards
rarely allow less."""
OVERSHOOT: Final = 1.05
"""Upper end of power relative to the limit: 1.8 % of Zeus's averages exceed their limit by more
than 2 %."""
MOST_STATIC: Final = 0.6
"""Largest static power as a share of a job's demand."""
DEPTHS: Final = (0.6, 0.8, 1.0)
"""Boundaries of the residual strata, in limit over unlimited power."""

BORROWED: Final = (
    Limit("the effect of a power limit was learned from training jobs on other GPUs", POWER),
    Limit("power limit: its effect on time was learned from training jobs on other GPUs", TIME),
)
NO_POWER: Final = Limit("power limit: ignored, because power is unknown here", TIME)
NO_TDP: Final = Limit("power limit: ignored, because the device's TDP is unknown", TIME)

_ERRORS: Final = {
    POWER: LogQuantiles(
        {POOLED: (-0.09, 0.09), "depth/0": (-0.11, 0.18), "depth/1": (-0.12, 0.05)}
    ),
    TIME: LogQuantiles(
        {
            POOLED: (-0.11, 0.08),
            "depth/0": (-0.3, 0.63),
            "depth/1": (-0.15, 0.5),
        }
    ),
}


@dataclass(frozen=True)
class LimitResponse:
    """Coefficients of the response and its error; the defaults are the fit to Zeus, rounded.

    Attributes:
        headroom, onset: as in `followed_power`.
        static: clock-independent power as a share of the TDP.
        linear: as in `clock`.
        compute, growth: share of the time that scales with 1/clock at full dynamic power, and the
            exponent with which that share grows with dynamic power.
        errors: metric -> quantiles of log(measured / predicted), by stratum (`depth`).
        sheets: spec sheets of the devices in the training set.
    """

    headroom: float = 1.0
    onset: float = 1.7
    static: float = 0.3
    linear: float = 0.77
    compute: float = 0.17
    growth: float = 0.14
    errors: Mapping[str, LogQuantiles] = field(default_factory=lambda: _ERRORS)
    sheets: tuple[Sheet, ...] = ()

    def ratios(self, limit_w: Column, power_w: Column, tdp_w: Column) -> tuple[Column, Column]:
        """Ratios of power and time under a limit to those without one, shapes (n,).

        Both are 1 where the limit is at least the design power or the demand of the workload.

        Args:
            limit_w: (n,) power limits of one device, W.
            power_w: (n,) average power of one device without a limit below its design power, W.
            tdp_w: (n,) design power of one device, W.
        """
        limit = np.minimum(limit_w, tdp_w)
        power = np.minimum(power_w, self.headroom * tdp_w)
        wanted = demand(power, tdp_w, self.headroom, self.onset)
        capped = followed_power(limit / wanted, self.headroom, self.onset)
        free = followed_power(tdp_w / wanted, self.headroom, self.onset)
        # Not `capped / free`, which would include the error of the bisection for the demand.
        less = np.minimum(capped * wanted / power, 1.0)
        slower = self._stretch(capped, wanted / tdp_w) / self._stretch(free, wanted / tdp_w)
        return np.where(capped < free, less, 1.0), slower

    def _stretch(self, drawn: Column, wanted: Column) -> Column:
        """Time relative to full clock, shape (n,).

        Args:
            drawn: (n,) power over demand.
            wanted: (n,) demand over design power.
        """
        static = np.minimum(self.static, MOST_STATIC * wanted)
        dynamic = wanted - static
        compute = np.minimum(self.compute * (dynamic / (1.0 - self.static)) ** self.growth, 1.0)
        return stretched(clock((drawn * wanted - static) / dynamic, self.linear), compute)

    def capped(self, queries: Sequence[Query], free: Predictions) -> Predictions:
        """Predictions under the queries' limits; rows without a limit are unchanged.

        Args:
            queries: n queries.
            free: predictions without a limit; `power_w` and `latency_ms` change, and `energy_j`,
                where present, becomes their product.
        """
        rows = [row for row, q in enumerate(queries) if q.operation.power_limit_w is not None]
        if not rows:
            return free
        answer = _Capped(len(free), free.values)
        answer.put(range(len(free)), free)
        for row in rows:
            self._cap(queries[row], row, answer)
        answer.multiply_energy()
        return answer.predictions()

    def _cap(self, query: Query, row: int, answer: "_Capped") -> None:
        limit, tdp = query.operation.power_limit_w, query.device.tdp_w
        power, *ends = answer.at(POWER, row)
        if limit is not None and tdp is not None and limit >= tdp:
            if limit > tdp:
                answer.limits[row] += (above_design_power(limit, tdp),)
            return
        if limit is None or tdp is None or not power > 0.0:
            answer.limits[row] += (NO_TDP if tdp is None else NO_POWER,)
            return
        if limit < LOWEST * tdp:
            answer.leave_out(row)
            answer.limits[row] += too_low(limit, tdp)
            return
        around = np.array([power, *(end if end > 0.0 else power for end in ends)])
        watts, times = self.ratios(np.full(3, limit), around, np.full(3, tdp))
        if (watts == 1.0).all():
            return
        stratum = depth(limit, power)
        error = self._error(POWER, stratum)
        answer.spread(row, watts * around / around[0], error, OVERSHOOT * limit)
        answer.stretch(row, times, self._error(TIME, stratum))
        answer.limits[row] += self.limits(query.device)

    def limits(self, device: Device) -> tuple[Limit, ...]:
        """Limits for any power limit on a device outside the training set."""
        known = device.has_sheet and any(
            same_sheet(sheet(device), known_sheet) for known_sheet in self.sheets
        )
        return () if known else BORROWED

    def _error(self, metric: str, stratum: str) -> tuple[float, float]:
        [(low, high)] = self.errors[metric].log_ends([stratum]).tolist()
        return low, high


def binds(query: Query) -> bool:
    """Whether the query sets a power limit below the design power, or below an unknown one."""
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    return limit is not None and (tdp is None or limit < tdp)


def above_design_power(limit_w: float, tdp_w: float) -> Limit:
    """The note that a power limit above the design power, W, has no effect."""
    return Limit(
        f"power limit: {limit_w:g} W is above the TDP of {tdp_w:g} W: {NOT_APPLIED}",
        TIME,
        "note",
    )


def too_low(limit_w: float, tdp_w: float) -> tuple[Limit, ...]:
    """A refusal where the power limit is too low for a prediction; otherwise empty."""
    if limit_w >= LOWEST * tdp_w:
        return ()
    share = f"{limit_w:g} W is {limit_w / tdp_w:.0%} of the TDP"
    message = f"power limit: {share}; nothing below {LOWEST:.0%} was measured or is answered"
    return (Limit(message, TIME, "refusal"),)


def depth(limit_w: float, power_w: float) -> str:
    """Stratum of the residual: `depth/0` for limits far below the unlimited power."""
    return f"depth/{int(np.searchsorted(DEPTHS, limit_w / power_w))}"


class _Capped(PredictionColumns):
    """Predictions whose power and time are modified row by row."""

    def at(self, metric: str, row: int) -> tuple[float, float, float]:
        """Value of a metric and the ends of its interval; NaN where unknown."""
        if metric not in self.values:
            return NAN, NAN, NAN
        value, low, high = (part[metric][row] for part in (self.values, self.low, self.high))
        return float(value), float(low), float(high)

    def leave_out(self, row: int) -> None:
        """Set time, power and energy of a row to NaN."""
        for metric in {POWER, TIME, ENERGY} & self.values.keys():
            for part in (self.values, self.low, self.high):
                part[metric][row] = np.nan

    def spread(self, row: int, ratios: Column, error: tuple[float, float], most_w: float) -> None:
        """Multiply power by a ratio, and widen its interval by the error of the ratio.

        Args:
            row: index of the row.
            ratios: factors (value, low, high), all relative to the original value.
            error: low and high of the ratio's log error.
            most_w: cap on the interval's upper end, W.
        """
        before, low, high = self.at(POWER, row)
        value = before * ratios[0]
        self.values[POWER][row] = value
        if np.isfinite(low):
            shift = np.log(ratios[1:] / ratios[0])
            low = value * np.exp(-np.hypot(min(shift[0], 0.0), error[0]))
            high = value * np.exp(np.hypot(max(shift[1], 0.0), error[1]))
        self.low[POWER][row], self.high[POWER][row] = low, min(high, max(most_w, value))

    def stretch(self, row: int, times: Column, error: tuple[float, float]) -> None:
        """Multiply time by a ratio; the interval also covers the ratios at the ends of power.

        Args:
            row: index of the row.
            times: ratios for the value, the low and the high end of power.
            error: low and high of the log error of the ratio.
        """
        before, low, high = self.at(TIME, row)
        if not np.isfinite(before):
            return
        value = before * times[0]
        self.values[TIME][row] = value
        if np.isfinite(low):
            by_power = np.log(times[1:] / times[0])
            below = np.sqrt(np.log(low / before) ** 2 + min(by_power[0], 0.0) ** 2 + error[0] ** 2)
            above = np.sqrt(np.log(high / before) ** 2 + max(by_power[1], 0.0) ** 2 + error[1] ** 2)
            self.low[TIME][row] = max(value * np.exp(-below), low)
            self.high[TIME][row] = value * np.exp(above)


POWER_SPREAD: Final = 0.05
TIME_SPREAD: Final = 0.07
"""Standard deviations of the residuals in log space."""
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
        power, time: (n,) log ratios of power and time to those at the highest limit.
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
    """Fit coefficients to all devices, and error quantiles to held-out devices.

    With fewer than two devices the default error is kept. The finite-sample correction counts runs:
    there is only a handful of devices, and bounds that count those would be the largest residual.

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

    columns = out_of_fold(
        np.array([str(device_sheet) for device_sheet in sheets]), residuals, columns=2
    )
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
