"""What few measurements of a device say of a predictor's error there: a mixture of processes.

The error log(measured / predicted) of a device is a level that all its strata (families of
operators, ways of running) share, one of each stratum, and a smooth function of the features. How
strong each part is, and how noisy the rows, nobody knows beforehand: experts with different
answers, from "no error but noise" to "follow every row", are weighted by how well they foresee the
rows when these are left out one by one. So few rows, or rows that say nothing, change little.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.models.adaptation.gaussian_process import Posterior, matern
from forerun.models.adaptation.mixture import combine, weigh
from forerun.models.domain import Sheet, same_sheet, sheet

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
ENOUGH_ROWS = 10
"""Rows from which on a device counts as seen."""
MOST_WEIGHED = 250
"""Rows that weigh the experts; the best of them then take all rows."""
MOST_ROWS = 1000
NEGLIGIBLE = 0.01
FARTHEST = 3.0
"""Standard deviations at which features are clipped, as linear trends must not run away."""
NORMAL_95 = 1.645
TOO_WIDE = 0.25
"""Typical left-out error from which on a device is called not predictable from few rows."""


class Expert(NamedTuple):
    """Variances of the parts of the error, and the prior weight of believing in them."""

    weight: float
    noise: float
    level: float = 0.0
    trend: float = 0.0
    smooth: float = 0.0
    length: float = 1.0


NOISES = (0.0001, 0.0015, 0.01, 0.1)
EXPERTS: tuple[Expert, ...] = (
    *(Expert(0.6 / 4, noise) for noise in (0.0005, 0.01, 0.04, 0.2)),
    *(Expert(0.1 / 8, noise, level) for noise in NOISES for level in (0.04, 0.25)),
    *(
        Expert(0.3 / 32, noise, 0.04, trend, smooth, length)
        for noise in NOISES
        for length in (2.0 / 3.0, 5.0 / 3.0)
        for trend in (0.0, 0.05)
        for smooth in (0.02, 0.08)
    ),
)
"""Chosen on NeuSight's teaching GPUs left out in turn; lengths in units of sqrt(features)."""
KNOWN_DOUBT = 0.1
"""Factor on the prior weight of any error at all, on a device that taught the predictor."""


@dataclass(frozen=True)
class Standard:
    """Features in units of their spread over the training rows.

    Attributes:
        centre: (d,) means.
        spread: (d,) standard deviations; infinite for columns that training never saw vary.
    """

    centre: Column
    spread: Column

    @classmethod
    def of(cls, matrix: Matrix) -> Self:
        """The means and deviations of (n, d) training rows."""
        spread = matrix.std(axis=0)
        return cls(matrix.mean(axis=0), np.where(spread > 1e-9, spread, np.inf))

    def apply(self, matrix: Matrix, width: int) -> Matrix:
        """Rows (n, width), clipped; columns are stretched so that `width` of them weigh alike.

        Strata with fewer columns than others so keep their distances when zeros are appended.
        """
        varying = max(1, int(np.isfinite(self.spread).sum()))
        scaled = np.clip((matrix - self.centre) / self.spread, -FARTHEST, FARTHEST)
        padded = np.zeros((len(matrix), width))
        padded[:, : matrix.shape[1]] = scaled * np.sqrt(width / varying)
        return padded

    def to_json(self) -> dict[str, list[float | None]]:
        """Plain lists; None for an infinite spread."""
        spread = [s if np.isfinite(s) else None for s in self.spread.tolist()]
        return {"centre": self.centre.tolist(), "spread": spread}

    @classmethod
    def from_json(cls, content: Mapping[str, Sequence[float | None]]) -> Self:
        """What `to_json` wrote."""
        spread = [np.inf if s is None else s for s in content["spread"]]
        return cls(np.array(content["centre"], dtype=np.float64), np.array(spread))


@dataclass(frozen=True)
class Rows:
    """k errors with what they depend on.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: k names.
        features: (k, d) by `Standard`.
    """

    errors: Column
    strata: tuple[str, ...]
    features: Matrix

    def __len__(self) -> int:
        return len(self.errors)

    def take(self, chosen: NDArray[np.intp]) -> "Rows":
        """These rows."""
        strata = tuple(self.strata[i] for i in chosen)
        return Rows(self.errors[chosen], strata, self.features[chosen])


@dataclass(frozen=True)
class DeviceError:
    """The error on one device.

    Attributes:
        sheet: which device, by its spec sheet.
        rows: what was measured on it.
        known: whether it taught the predictor, so that an error is less to be expected.
    """

    sheet: Sheet
    rows: Rows
    known: bool = False

    @cached_property
    def _weighed(self) -> tuple[tuple[Expert, ...], Column, float]:
        """Experts worth asking, their weights, and how much wider than claimed they miss."""
        rows = self.rows
        if len(rows) > MOST_WEIGHED:
            rows = rows.take(np.random.default_rng(0).permutation(len(rows))[:MOST_WEIGHED])
        parts = _Parts.of(rows, rows)
        found = [Posterior.of(parts.covariance(e), e.noise, rows.errors) for e in EXPERTS]
        errors = np.array([p.left_out_error for p in found])
        variances = np.array([p.left_out_variance for p in found])
        doubt = KNOWN_DOUBT if self.known else 1.0
        prior = [e.weight * (doubt if e.level else 1.0) for e in EXPERTS]
        weights = weigh(errors, variances, prior)
        error, variance = combine(weights, errors, variances)
        surprise = float((error**2 / variance).sum())
        inflation = np.sqrt((ENOUGH_ROWS + surprise) / (ENOUGH_ROWS + len(rows)))
        kept = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
        chosen = tuple(EXPERTS[i] for i in kept)
        return chosen, weights[kept] / weights[kept].sum(), float(inflation)

    @cached_property
    def _posteriors(self) -> tuple[Posterior, ...]:
        parts = _Parts.of(self.rows, self.rows)
        experts = self._weighed[0]
        return tuple(Posterior.of(parts.covariance(e), e.noise, self.rows.errors) for e in experts)

    @cached_property
    def left_out_error(self) -> float:
        """Median of |log(measured / predicted)| of the rows left out one by one."""
        errors = self._weighed[1] @ np.array([p.left_out_error for p in self._posteriors])
        return float(np.median(np.abs(errors)))

    def at(self, strata: Sequence[str], features: Matrix) -> tuple[Column, Column]:
        """Mean and standard deviation of the error at n places, a new row's noise included."""
        places = Rows(np.zeros(len(strata)), tuple(strata), features)
        parts = _Parts.of(places, self.rows)
        experts, weights, inflation = self._weighed
        means, variances = [], []
        for expert, posterior in zip(experts, self._posteriors, strict=True):
            cross = parts.covariance(expert)
            means.append(posterior.mean(cross))
            prior = _prior_variance(expert, features)
            variances.append(posterior.variance(cross, prior) + expert.noise)
        mean, variance = combine(weights, np.array(means), np.array(variances))
        return mean, np.sqrt(variance) * inflation


@dataclass(frozen=True)
class FewRows:
    """Errors of all devices that were adapted to."""

    devices: tuple[DeviceError, ...] = field(default=())

    def updated(
        self,
        errors: Column,
        devices: Sequence[Device],
        strata: Sequence[str],
        features: Matrix,
        known: Container[Device] = (),
    ) -> "FewRows":
        """New errors for the devices in these rows, in place of older ones of theirs.

        Args:
            errors: n values of log(measured / uncorrected prediction); NaN is left out.
            devices: n devices.
            strata: n names.
            features: (n, d) by `Standard`.
            known: devices that taught the predictor.
        """
        sheets = [sheet(device) for device in devices]
        rows = Rows(errors, tuple(strata), features)
        found = []
        for one in sorted(set(sheets)):
            mine = np.flatnonzero(np.isfinite(errors) & np.array([s == one for s in sheets]))
            if len(mine):
                mine = mine[-MOST_ROWS:]
                found.append(DeviceError(one, rows.take(mine), devices[mine[0]] in known))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, f.sheet) for f in found)]
        return FewRows((*kept, *found))

    def of(self, device: Device) -> DeviceError | None:
        """The error on this device, where it was measured."""
        if not self.devices or not device.has_sheet:
            return None
        mine = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, mine)), None)

    def rows(self, device: Device) -> int:
        """Measurements behind a device's correction; 0 where there is none."""
        known = self.of(device)
        return 0 if known is None else len(known.rows)

    def correction(
        self, devices: Sequence[Device], strata: Sequence[str], features: Matrix
    ) -> tuple[Column, Column]:
        """Mean of the error and its standard deviation, each (n,).

        Zero and NaN for devices that were not adapted to.
        """
        mean, deviation = np.zeros(len(devices)), np.full(len(devices), np.nan)
        if not self.devices:
            return mean, deviation
        for device in set(devices):
            known = self.of(device)
            if known is not None:
                mine = np.array([d == device for d in devices])
                names = [s for s, m in zip(strata, mine, strict=True) if m]
                mean[mine], deviation[mine] = known.at(names, features[mine])
        return mean, deviation

    def intervals(
        self, values: Column, deviation: Column, low: Column, high: Column
    ) -> tuple[Column, Column]:
        """Intervals around corrected values; never wider, as ratios, than those of a new device.

        Args:
            values: (n,) corrected.
            deviation: (n,) as `correction` gives it; NaN keeps the bounds given.
            low: (n,) lower bound of an unseen device around the same values.
            high: (n,) upper bound.
        """
        reach = NORMAL_95 * deviation
        adapted = np.isfinite(deviation)
        nearer_low = np.where(adapted, np.maximum(low, values * np.exp(-reach)), low)
        nearer_high = np.where(adapted, np.minimum(high, values * np.exp(reach)), high)
        return np.minimum(nearer_low, values), np.maximum(nearer_high, values)

    def limits(self, device: Device) -> tuple[str, ...]:
        """A line where the rows of a device do not make it predictable."""
        known = self.of(device)
        if known is None or len(known.rows) < 5 or known.left_out_error < TOO_WIDE:
            return ()
        return (
            f"{len(known.rows)} measurements do not make this device predictable: left out one by "
            f"one they are missed by {100 * np.expm1(known.left_out_error):.0f} %",
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Plain dictionaries and lists."""
        return [
            {
                "sheet": d.sheet,
                "known": d.known,
                "errors": d.rows.errors.tolist(),
                "strata": d.rows.strata,
                "features": d.rows.features.round(6).tolist(),
            }
            for d in self.devices
        ]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, Any]]) -> Self:
        """The errors that `to_json` wrote."""
        return cls(
            tuple(
                DeviceError(
                    tuple(d["sheet"]),
                    Rows(np.array(d["errors"]), tuple(d["strata"]), np.array(d["features"])),
                    bool(d["known"]),
                )
                for d in content
            )
        )


@dataclass(frozen=True)
class _Parts:
    """Covariances of n places with k rows, part by part; experts weigh them.

    Attributes:
        same: (n, k) 1 where both are of one stratum.
        product: (n, k) mean product of features.
        places, rows: features.
    """

    same: Matrix
    product: Matrix
    places: Matrix
    rows: Matrix
    smooth: dict[float, Matrix] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Rows, rows: Rows) -> Self:
        names = {name: i for i, name in enumerate(dict.fromkeys(places.strata + rows.strata))}
        one = np.array([names[s] for s in places.strata])
        other = np.array([names[s] for s in rows.strata])
        same = (one[:, None] == other[None, :]).astype(np.float64)
        size = max(1, rows.features.shape[1])
        return cls(same, places.features @ rows.features.T / size, places.features, rows.features)

    def covariance(self, expert: Expert) -> Matrix:
        """(n, k): half of the level is the device's, half the stratum's."""
        if not expert.level:
            return np.zeros_like(self.same)
        within = 0.5 * expert.level + expert.trend * self.product
        if expert.smooth:
            within = within + expert.smooth * self._matern(expert.length)
        return 0.5 * expert.level + self.same * within

    def _matern(self, length: float) -> Matrix:
        if length not in self.smooth:
            scale = length * np.sqrt(max(1, self.rows.shape[1]))
            self.smooth[length] = matern(self.places / scale, self.rows / scale)
        return self.smooth[length]


def _prior_variance(expert: Expert, features: Matrix) -> Column:
    trend = expert.trend * (features**2).sum(axis=1) / max(1, features.shape[1])
    return np.asarray(expert.level + trend + expert.smooth)
