"""Effect of a power limit on the power and time of any workload, fitted to Zeus's training jobs.

Predictions without a limit come from other predictors; the response multiplies them by ratios. It
depends only on the predicted power of the workload and the design power of the device, so it
applies where no run under a limit was measured. Its own error widens the intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.models.conformal import POOLED, LogQuantiles
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.limit import Limit
from forerun.models.power.limit_physics import clock, demand, followed_power, stretched
from forerun.models.prediction import PredictionColumns, Predictions

Column = NDArray[np.float64]
POWER, TIME, ENERGY = "power_w", "latency_ms", "energy_j"
NAN: Final = float("nan")
LAW: Final = ("headroom", "onset", "static", "linear", "compute", "growth")
LOWEST: Final = 0.33
"""Lowest limit, as a share of the design power, for which there is a prediction: nothing lower was
measured, and boards rarely allow less."""
OVERSHOOT: Final = 1.05
"""Upper end of power under a limit, over the limit: 1.8 % of Zeus's averages are more than 2 %
above their limit."""
MOST_STATIC: Final = 0.6
"""Largest static power, as a share of the demand of a job."""
DEPTHS: Final = (0.6, 0.8, 1.0)
"""Boundaries of the strata of residuals: limit over power without a limit."""

BORROWED: Final = (
    Limit("what a limit does to it was learnt from training jobs on other GPUs", POWER),
    Limit("power limit: what it does to time was learnt from training jobs on other GPUs", TIME),
)
NO_POWER: Final = Limit("power limit: left out, for no power is known here", TIME)
NO_TDP: Final = Limit("power limit: left out, for the device's design power is not known", TIME)

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
        static: power that does not depend on the clock, as a share of the design power.
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
        """Power and time under a limit over those without one, shapes (n,).

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
        # Not `capped / free`, which would contain the error of the bisection for the demand.
        less = np.minimum(capped * wanted / power, 1.0)
        slower = self._stretch(capped, wanted / tdp_w) / self._stretch(free, wanted / tdp_w)
        return np.where(capped < free, less, 1.0), slower

    def _stretch(self, drawn: Column, wanted: Column) -> Column:
        """Time over that at full clock, shape (n,).

        Args:
            drawn: (n,) power over demand.
            wanted: (n,) demand over design power.
        """
        static = np.minimum(self.static, MOST_STATIC * wanted)
        dynamic = wanted - static
        compute = np.minimum(self.compute * (dynamic / (1.0 - self.static)) ** self.growth, 1.0)
        return stretched(clock((drawn * wanted - static) / dynamic, self.linear), compute)

    def capped(self, queries: Sequence[Query], free: Predictions) -> Predictions:
        """Predictions under the limits of the queries; rows without a limit are not changed.

        Args:
            queries: n queries.
            free: predictions without a limit; `power_w` and `latency_ms` are changed, and
                `energy_j`, where it is there, becomes their product.
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
        known = device.has_sheet and any(same_sheet(sheet(device), own) for own in self.sheets)
        return () if known else BORROWED

    def _error(self, metric: str, stratum: str) -> tuple[float, float]:
        [(low, high)] = self.errors[metric].log_ends([stratum]).tolist()
        return low, high


def binds(query: Query) -> bool:
    """Whether the query sets a power limit below the design power, or that power is unknown."""
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    return limit is not None and (tdp is None or limit < tdp)


def above_design_power(limit_w: float, tdp_w: float) -> Limit:
    """The note for a power limit above the design power, W, which limits nothing."""
    return Limit(
        f"power limit: {limit_w:g} W is above the design power of {tdp_w:g} W: taken as none",
        TIME,
        "note",
    )


def too_low(limit_w: float, tdp_w: float) -> tuple[Limit, ...]:
    """A refusal where the power limit is too low for a prediction; otherwise nothing."""
    if limit_w >= LOWEST * tdp_w:
        return ()
    share = f"{limit_w:g} W is {limit_w / tdp_w:.0%} of the design power"
    message = f"power limit: {share}, nothing below {LOWEST:.0%} was measured or is answered"
    return (Limit(message, TIME, "refusal"),)


def depth(limit_w: float, power_w: float) -> str:
    """Stratum of the residual: `depth/0` for limits far below the power without a limit."""
    return f"depth/{int(np.searchsorted(DEPTHS, limit_w / power_w))}"


class _Capped(PredictionColumns):
    """Predictions whose power and time are changed row by row."""

    def at(self, metric: str, row: int) -> tuple[float, float, float]:
        """Value of a metric and ends of its interval; NaN where they are not known."""
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
            ratios: factors (value, low, high), all relative to the value before.
            error: low and high of the log error of the ratio.
            most_w: upper bound of the interval's upper end, W.
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
        """Multiply time by a ratio; its interval also covers the ratios at the ends of power.

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
