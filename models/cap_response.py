"""What a power limit does to the power and time of any workload, from ratios within Zeus's jobs.

The answers without a limit come from other predictors. The response needs of a workload only its
power and of a device only its design power, so it holds where nobody measured a capped run; its own
error widens their intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.models.calibration import POOLED, LogQuantiles
from forerun.models.domain import Sheet, same_sheet, sheet
from forerun.models.power_physics import clock, demand, followed_power, stretched
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
POWER, TIME, ENERGY = "power_w", "latency_ms", "energy_j"
LAW: Final = ("headroom", "onset", "static", "linear", "compute", "growth")
LOWEST: Final = 0.33
"""Of the design power: nothing lower was measured, boards rarely allow it, and none is answered."""
OVERSHOOT: Final = 1.05
"""Of a limit: 1.8 % of Zeus's averages are more than 2 % above theirs."""
MOST_STATIC: Final = 0.6
"""Of a job's power, where the static share of the design power would be more."""
DEPTHS: Final = (0.6, 0.8, 1.0)
"""Limit over demand: strata of the error."""

BORROWED: Final = (
    "power: what a limit does to it was learnt from training jobs on other GPUs",
    "power limit: what it does to time was learnt from training jobs on other GPUs",
)
NO_POWER: Final = "power limit: left out, for no power is known here"
NO_TDP: Final = "power limit: left out, for the device's design power is not known"
NO_CUT: Final = "power limit: {limit:g} W is above the design power of {tdp:g} W: taken as none"

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
class CapResponse:
    """Coefficients of the law and its error; the defaults are Zeus's runs, rounded.

    Attributes:
        headroom, onset: as in `followed_power`.
        static: power that buys no clock, share of the design power.
        linear: as in `clock`.
        compute, growth: part of the time that waits for the clock where the whole dynamic power
            is drawn, and the exponent with which it goes with the share drawn.
        errors: metric -> quantiles of log(measured / answered) by how deep a limit cuts.
        sheets: devices that taught it.
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
        """Power and time at a limit in terms of those at the device's own, shapes (n,).

        Both are 1 where the limit is at the design power or above what the workload wants.

        Args:
            limit_w: limit of one device, n values.
            power_w: average of one device at its own limit, the design power.
            tdp_w: design power, n values.
        """
        limit = np.minimum(limit_w, tdp_w)
        power = np.minimum(power_w, self.headroom * tdp_w)
        wanted = demand(power, tdp_w, self.headroom, self.onset)
        capped = followed_power(limit / wanted, self.headroom, self.onset)
        free = followed_power(tdp_w / wanted, self.headroom, self.onset)
        # Not `capped / free`: the demand is found by bisection, which would leave its residue.
        less = np.minimum(capped * wanted / power, 1.0)
        slower = self._stretch(capped, wanted / tdp_w) / self._stretch(free, wanted / tdp_w)
        return np.where(capped < free, less, 1.0), slower

    def _stretch(self, drawn: Column, wanted: Column) -> Column:
        """Time in terms of that at full clock; `drawn` of the demand, `wanted` of the TDP."""
        static = np.minimum(self.static, MOST_STATIC * wanted)
        dynamic = wanted - static
        compute = np.minimum(self.compute * (dynamic / (1.0 - self.static)) ** self.growth, 1.0)
        return stretched(clock((drawn * wanted - static) / dynamic, self.linear), compute)

    def capped(self, queries: Sequence[Query], free: Predictions) -> Predictions:
        """Answers at the limits that the queries set; other rows stay as they are.

        Args:
            queries: n questions.
            free: what is predicted for them at the devices' own limits; `power_w` and
                `latency_ms` are changed, energy follows from them where it stands there.
        """
        rows = [row for row, q in enumerate(queries) if q.operation.power_limit_w is not None]
        if not rows:
            return free
        answer = _Columns(free)
        for row in rows:
            self._cap(queries[row], row, answer)
        return answer.predictions(free)

    def _cap(self, query: Query, row: int, answer: "_Columns") -> None:
        limit, tdp = query.operation.power_limit_w, query.device.tdp_w
        power = answer.at("values", POWER, row)
        if limit is not None and tdp is not None and limit >= tdp:
            if limit > tdp:
                answer.limits[row] += (NO_CUT.format(limit=limit, tdp=tdp),)
            return
        if limit is None or tdp is None or not power > 0.0:
            answer.limits[row] += (NO_TDP if tdp is None else NO_POWER,)
            return
        if limit < LOWEST * tdp:
            answer.leave_out(row)
            answer.limits[row] += too_low(limit, tdp)
            return
        ends = [answer.at(part, POWER, row) for part in ("low", "high")]
        around = np.array([power, *(end if end > 0.0 else power for end in ends)])
        watts, times = self.ratios(np.full(3, limit), around, np.full(3, tdp))
        if (watts == 1.0).all():
            return
        stratum = depth(limit, power)
        answer.spread(POWER, row, watts * around / around[0], self._error(POWER, stratum))
        highest = max(OVERSHOOT * limit, answer.at("values", POWER, row))
        answer.columns["high"][POWER][row] = min(answer.at("high", POWER, row), highest)
        answer.stretch(row, times, self._error(TIME, stratum))
        answer.limits[row] += self.limits(query.device)

    def limits(self, device: Device) -> tuple[str, ...]:
        """What to know about a limit on a device."""
        known = device.has_sheet and any(same_sheet(sheet(device), one) for one in self.sheets)
        return () if known else BORROWED

    def _error(self, metric: str, stratum: str) -> tuple[float, float]:
        bounds = self.errors[metric].bounds
        low, high = bounds.get(stratum, bounds[POOLED])
        return min(low, 0.0), max(high, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        errors = {metric: one.to_json() for metric, one in self.errors.items()}
        law = {name: getattr(self, name) for name in LAW}
        return {**law, "errors": errors, "sheets": [list(one) for one in self.sheets]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The response that `to_json` wrote."""
        errors = {m: LogQuantiles.from_json(one) for m, one in content["errors"].items()}
        sheets = tuple(tuple(one) for one in content["sheets"])
        return cls(**{**content, "errors": errors, "sheets": sheets})


def binds(query: Query) -> bool:
    """Whether the query sets a limit below what its device takes by itself."""
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    return limit is not None and (tdp is None or limit < tdp)


def too_low(limit_w: float, tdp_w: float) -> tuple[str, ...]:
    """A line where a limit is so low that nothing is answered; none where it is not."""
    if limit_w >= LOWEST * tdp_w:
        return ()
    share = f"{limit_w:g} W is {limit_w / tdp_w:.0%} of the design power"
    return (f"power limit: {share}, nothing below {LOWEST:.0%} was measured or is answered",)


def depth(limit_w: float, power_w: float) -> str:
    """Stratum of the error: how deep a limit cuts into what a workload draws."""
    return f"depth/{int(np.searchsorted(DEPTHS, limit_w / power_w))}"


class _Columns:
    """Copies of the columns of an answer, row by row changed."""

    def __init__(self, free: Predictions) -> None:
        n = len(free)
        parts = {"values": free.values, "low": free.low, "high": free.high}
        self.columns = {
            p: {m: c.copy() for m, c in columns.items()} for p, columns in parts.items()
        }
        for part in ("low", "high"):
            for metric in (POWER, TIME):
                self.columns[part].setdefault(metric, np.full(n, np.nan))
        self.limits: list[tuple[str, ...]] = list(free.limits) if free.limits else [()] * n

    def at(self, part: str, metric: str, row: int) -> float:
        column = self.columns[part].get(metric)
        return float("nan") if column is None else float(column[row])

    def leave_out(self, row: int) -> None:
        """No time, power and energy in a row."""
        for columns in self.columns.values():
            for metric in (POWER, TIME, ENERGY):
                if metric in columns:
                    columns[metric][row] = np.nan

    def spread(self, metric: str, row: int, ratios: Column, error: tuple[float, float]) -> None:
        """Value times the first ratio; ends by the others (of the value) and the error."""
        value = self.at("values", metric, row) * ratios[0]
        known = np.isfinite(self.at("low", metric, row))
        self.columns["values"][metric][row] = value
        if known:
            shift = np.log(ratios[1:] / ratios[0])
            below = np.hypot(min(shift[0], 0.0), error[0])
            above = np.hypot(max(shift[1], 0.0), error[1])
            self.columns["low"][metric][row] = value * np.exp(-below)
            self.columns["high"][metric][row] = value * np.exp(above)

    def stretch(self, row: int, times: Column, error: tuple[float, float]) -> None:
        """Time and its ends, which also hold what the ends of power would stretch it by."""
        value = self.at("values", TIME, row)
        low, high = self.at("low", TIME, row), self.at("high", TIME, row)
        if not np.isfinite(value):
            return
        self.columns["values"][TIME][row] = value * times[0]
        if np.isfinite(low):
            by_power = np.log(times[1:] / times[0])
            below = np.sqrt(np.log(low / value) ** 2 + min(by_power[0], 0.0) ** 2 + error[0] ** 2)
            above = np.sqrt(np.log(high / value) ** 2 + max(by_power[1], 0.0) ** 2 + error[1] ** 2)
            self.columns["low"][TIME][row] = max(value * times[0] * np.exp(-below), low)
            self.columns["high"][TIME][row] = value * times[0] * np.exp(above)

    def predictions(self, free: Predictions) -> Predictions:
        for columns in self.columns.values():
            if ENERGY in columns and POWER in columns and TIME in columns:
                columns[ENERGY] = columns[POWER] * columns[TIME] / 1e3
        return replace(
            free,
            values=self.columns["values"],
            low=self.columns["low"],
            high=self.columns["high"],
            limits=self.limits,
        )
