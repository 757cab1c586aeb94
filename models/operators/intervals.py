"""Intervals of kernels and of their sums: variance components of the log error.

    log(measured / predicted) = device + device x family + site + kernel

The first two are shared: all kernels of a device (of one family on it) are off alike, so they do
not average out in a network. A site is a range of shapes within a factor of two that errs alike;
the last part is one kernel's own. Both average out by the shares of the time that they take. Shared
parts come from devices left out whole (unseen), or from the largest work of each device left out
(seen); the degrees of freedom count devices, never rows. For variance components
see Searle, Casella, McCulloch: "Variance Components", 1992.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.features.operators.features import FAMILIES, FEATURES, OperatorFeatures
from forerun.models.operators.training_rows import OperatorRows

Column = NDArray[np.float64]
LARGEST = 0.3
"""Share of each device's work that its smaller work must predict."""

PRIOR_DEVICES = 2.0
"""Devices that a family's shared variance counts as known from the mean of all families."""
_FARTHEST_ERROR = 1.0
_SIZES = ("log_batch", "log_m", "log_n", "log_k", "log_width")


@dataclass(frozen=True)
class HeldOut:
    """Log errors of one family on one device, by a fit that did not see them.

    Attributes:
        family: name.
        device: group.
        novelty: of the device to the fit; 0 where it had seen other rows of it.
        errors: (n,) log(measured / predicted).
        site: (n,) rows of one number belong to one site.
    """

    family: str
    device: str
    novelty: float
    errors: Column
    site: Column


@dataclass(frozen=True)
class Shared:
    """Variance of what all kernels of a device have in common.

    Attributes:
        device: of the part that families share.
        families: family -> variance of its own part.
        freedom: degrees of freedom of the part that families share: held-out devices less one.
    """

    device: float
    families: Mapping[str, float]
    freedom: float

    @classmethod
    def of(cls, parts: Sequence[HeldOut], freedom: float) -> Self:
        """Moments of the groups' mean errors, each in units of its device's expected spread."""
        means: dict[str, dict[str, float]] = {}
        for part in parts:
            scale = float(np.sqrt(spread_of(part.novelty))) if part.novelty else 1.0
            means.setdefault(part.device, {})[part.family] = _centre(part) / scale
        squares: dict[str, list[float]] = {}
        products: list[float] = []
        for by_family in means.values():
            values = list(by_family.values())
            products += [one * other for i, one in enumerate(values) for other in values[i + 1 :]]
            for family, value in by_family.items():
                squares.setdefault(family, []).append(value**2)
        device = max(0.0, float(np.mean(products))) if products else 0.0
        everywhere = [v for values in squares.values() for v in values]
        pooled = max(0.0, float(np.mean(everywhere)) - device) if everywhere else 0.0
        families = {
            family: float(
                (max(0.0, sum(v) - len(v) * device) + PRIOR_DEVICES * pooled)
                / (len(v) + PRIOR_DEVICES)
            )
            for family, v in squares.items()
        }
        return cls(device, {"": pooled, **families}, max(1.0, freedom))

    def variance(self, shares: Column) -> tuple[Column, Column]:
        """Variance of the log of sums and the variance of that estimate, each (n,).

        The second is twice the square over the degrees of freedom, part by part: each family's
        own part has those of its devices and of the prior.

        Args:
            shares: (n, families) of the time.
        """
        own = np.array([self.families.get(f, self.families.get("", 0.0)) for f in FAMILIES])
        device, family = self.device * shares.sum(axis=1) ** 2, shares**2 * own
        doubt = 2.0 * device**2 / self.freedom
        doubt = doubt + 2.0 * (family**2).sum(axis=1) / (self.freedom + 1.0 + PRIOR_DEVICES)
        return device + family.sum(axis=1), doubt

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"device": self.device, "families": dict(self.families), "freedom": self.freedom}


@dataclass(frozen=True)
class ErrorComponents:
    """Variances of the parts of the log error.

    Attributes:
        seen: shared parts on devices of the training rows.
        unseen: shared parts that a device of the largest novelty adds.
        site: family -> variance of sites on a device; the key "" answers for other families.
        kernel: family -> variance of single kernels within a site.
        coverage: share of truths that intervals shall hold.
    """

    seen: Shared
    unseen: Shared
    site: Mapping[str, float] = field(default_factory=dict)
    kernel: Mapping[str, float] = field(default_factory=dict)
    coverage: float = 0.9

    @classmethod
    def of(cls, seen: Sequence[HeldOut], unseen: Sequence[HeldOut]) -> Self:
        """Moment estimates from held-out errors."""
        devices = len({part.device for part in unseen})
        site, kernel = _within([*seen, *unseen])
        near = Shared.of(seen, len({part.device for part in seen}) - 1.0)
        far = Shared.of(unseen, devices - 1.0) if unseen else near
        return cls(near, far, site, kernel)

    def shared_variance(self, shares: Column, novelty: Column) -> tuple[Column, Column]:
        """Variance that does not average out, and its degrees of freedom, each (n,).

        Args:
            shares: (n, families) of the time of n networks or kernels.
            novelty: (n,) of their devices; 0 for devices of the training rows.
        """
        near, near_doubt = self.seen.variance(shares)
        far, far_doubt = self.unseen.variance(shares)
        spread = spread_of(novelty)
        total, doubt = near + far * spread, near_doubt + far_doubt * spread**2
        # Satterthwaite's degrees of freedom of a sum of estimated variances.
        return total, np.maximum(2.0 * total**2 / np.maximum(doubt, 1e-30), 1.0)

    def own_variance(
        self, owner: NDArray[np.intp], shares: Column, families: NDArray[np.intp], *keys: Column
    ) -> Column:
        """Variance that averages out, one value an owner up to the largest.

        Args:
            owner: (k,) which of n sums a kernel belongs to.
            shares: (k,) of the owner's time.
            families: (k,) positions in `FAMILIES`.
            keys: (k,) numbers of the site and of the kernel; equal ones err alike.
        """
        size = int(owner.max()) + 1 if len(owner) else 0
        variance = np.zeros(size)
        for key, by_family in zip(keys, (self.site, self.kernel), strict=True):
            own = np.array([by_family.get(f, by_family.get("", 0.0)) for f in FAMILIES])
            pairs = np.stack([owner.astype(np.float64), families.astype(np.float64), key])
            alike, index = np.unique(pairs, axis=1, return_inverse=True)
            together = np.bincount(index.reshape(-1), weights=shares)
            parts = own[alike[1].astype(np.intp)] * together**2
            variance += np.bincount(alike[0].astype(np.intp), weights=parts, minlength=size)
        return variance

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries."""
        return {
            "seen": self.seen.to_json(),
            "unseen": self.unseen.to_json(),
            "site": dict(self.site),
            "kernel": dict(self.kernel),
            "coverage": self.coverage,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The components that `to_json` wrote."""
        return cls(
            Shared(**content["seen"]),
            Shared(**content["unseen"]),
            content["site"],
            content["kernel"],
            float(content["coverage"]),
        )


def spread_of(novelty: float | Column) -> Column:
    """Share of the variance of wholly unlike devices: 0 for a known device, towards 1 far off."""
    squared = np.square(np.minimum(np.asarray(novelty, dtype=np.float64), 1e6))
    return np.asarray(squared / (1.0 + squared))


def reach(variance: Column, freedom: Column, coverage: float) -> Column:
    """Half width of an interval in log space: Student's quantile times the deviation."""
    from scipy.special import stdtrit

    quantile = stdtrit(freedom, 0.5 + coverage / 2.0)
    return np.asarray(quantile * np.sqrt(variance), dtype=np.float64)


def site_keys(family: str, features: OperatorFeatures) -> tuple[Column, Column]:
    """Numbers that kernels of one site, and equal kernels, share; each (n,).

    A site holds shapes of one family within a factor of two in every size and in the bound.
    """
    columns = [FEATURES[family].index(name) for name in _SIZES if name in FEATURES[family]]
    sizes = np.floor(features.matrix[:, columns] / np.log(2.0) + 1e-6)
    bound = np.floor(np.log2(features.roofline_ms))
    site = np.column_stack([sizes, bound])
    # Any fixed irrational-like weights tell different rows apart.
    weights = np.sqrt(np.arange(2.0, 2.0 + site.shape[1]))
    wide = np.sqrt(np.arange(2.0, 2.0 + features.matrix.shape[1]))
    kernel = features.matrix @ wide + np.pi * np.log(features.roofline_ms)
    return np.round(site @ weights, 9), np.round(kernel, 9)


def largest_work(rows: OperatorRows) -> NDArray[np.bool_]:
    """Mask of the `LARGEST` share of each device's work, family by family."""
    large = np.zeros(len(rows.device), dtype=np.bool_)
    for owner, features, _ in rows.parts.values():
        for device in np.unique(rows.device[owner]):
            mine = rows.device[owner] == device
            bound = features.roofline_ms[mine]
            large[owner[mine]] = bound > np.quantile(bound, 1.0 - LARGEST)
    return large


def calibrate(
    rows: OperatorRows,
    missed: Callable[[NDArray[np.bool_]], Sequence[HeldOut]],
    missed_on: Callable[[str, NDArray[np.bool_]], Sequence[HeldOut]],
) -> ErrorComponents:
    """Components from held-out rows.

    Args:
        rows: training rows.
        missed: mask of rows to hold out -> their errors by a fit on the others.
        missed_on: name of a device and mask of its rows -> their errors by the boosters of the
            other devices alone.
    """
    large = largest_work(rows)
    unseen: list[HeldOut] = []
    for device in np.unique(rows.device):
        unseen += missed_on(str(device), large & (rows.device == device))
    return ErrorComponents.of(missed(large), unseen)


def _centre(part: HeldOut) -> float:
    """Mean over sites, so that often measured shapes do not decide."""
    _, index = np.unique(part.site, return_inverse=True)
    errors = np.clip(part.errors, -_FARTHEST_ERROR, _FARTHEST_ERROR)
    return float((np.bincount(index, weights=errors) / np.bincount(index)).mean())


def _within(parts: Sequence[HeldOut]) -> tuple[dict[str, float], dict[str, float]]:
    """Variance of sites around their device and of kernels around their site, by family."""
    site: dict[str, list[float]] = {}
    kernel: dict[str, list[float]] = {}
    for part in parts:
        _, index = np.unique(part.site, return_inverse=True)
        count = np.bincount(index)
        errors = np.clip(part.errors, -_FARTHEST_ERROR, _FARTHEST_ERROR)
        mean = np.bincount(index, weights=errors) / count
        if len(errors) == len(mean) or len(mean) < 2:
            continue
        inside = float(((errors - mean[index]) ** 2).sum() / (len(errors) - len(mean)))
        between = float(mean.var(ddof=1) - inside * (1.0 / count).mean())
        site.setdefault(part.family, []).append(max(0.0, between))
        kernel.setdefault(part.family, []).append(inside)
    return _averaged(site), _averaged(kernel)


def _averaged(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    means = {family: float(np.mean(values)) for family, values in found.items()}
    return {"": float(np.mean(list(means.values()))) if means else 0.0, **means}
