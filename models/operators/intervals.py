"""Prediction intervals of kernels and of their sums, from variance components of the log error.

    log(measured / predicted) = device + device x family + site + kernel

The first two components are shared by all kernels of a device (of one family on it), so they do not
average out in a network. A site is a set of shapes within a factor of two of each other, whose
errors have a common part; the last component is specific to one kernel. These two average out
according to their shares of the time. The shared components are estimated on held-out devices
(unseen) or on the held-out largest work of each device (seen); their degrees of freedom count
devices, never rows. For variance components see Searle, Casella, McCulloch: "Variance Components",
1992.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Positions
from forerun.data.level import LEVEL
from forerun.features.operators.features import FAMILIES, FEATURES, OperatorFeatures
from forerun.models.conformal import student_quantile
from forerun.models.operators.training_rows import OperatorRows

LARGEST = 0.3
"""Share of each device's rows, the largest by roofline time, that calibration holds out."""

PRIOR_DEVICES = 2.0
"""Pseudo-observations, in devices, that shrink a family's shared variance to the mean of all
families."""
_FARTHEST_ERROR = 1.0
_SIZES = ("log_batch", "log_m", "log_n", "log_k", "log_width")


@dataclass(frozen=True)
class HeldOut:
    """Log errors of one family on one device, of a fit without these rows.

    Attributes:
        family: name of the family.
        device: value of the group `device`.
        novelty: novelty of the device to the fit; 0 where other rows of it were trained on.
        errors: (n,) log(measured / predicted).
        site: (n,) keys; rows with equal keys belong to one site.
    """

    family: str
    device: str
    novelty: float
    errors: Column
    site: Column


@dataclass(frozen=True)
class Shared:
    """Variances of the error components that all kernels of a device share.

    Attributes:
        device: variance of the component that all families share.
        families: family -> variance of its own component; the key "" is for other families.
        freedom: degrees of freedom of `device`: held-out devices less one.
    """

    device: float
    families: Mapping[str, float]
    freedom: float

    @classmethod
    def of(cls, parts: Sequence[HeldOut], freedom: float) -> Self:
        """Moment estimates from the mean errors of devices and families.

        Args:
            parts: held-out errors; means are divided by the root of `novelty_share`.
            freedom: degrees of freedom; at least 1 is used.
        """
        means: dict[str, dict[str, float]] = {}
        for part in parts:
            scale = float(np.sqrt(novelty_share(part.novelty))) if part.novelty else 1.0
            means.setdefault(part.device, {})[part.family] = _centre(part) / scale
        squares: dict[str, list[float]] = {}
        products: list[float] = []
        for by_family in means.values():
            values = list(by_family.values())
            products += [a * b for i, a in enumerate(values) for b in values[i + 1 :]]
            for family, value in by_family.items():
                squares.setdefault(family, []).append(value**2)
        device = max(0.0, float(np.mean(products))) if products else 0.0
        all_squares = [v for values in squares.values() for v in values]
        pooled = max(0.0, float(np.mean(all_squares)) - device) if all_squares else 0.0
        families = {
            family: float(
                (max(0.0, sum(v) - len(v) * device) + PRIOR_DEVICES * pooled)
                / (len(v) + PRIOR_DEVICES)
            )
            for family, v in squares.items()
        }
        return cls(device, {"": pooled, **families}, max(1.0, freedom))

    def variance(self, shares: Column) -> tuple[Column, Column]:
        """Variance of the log of n sums, and the sampling variance of that estimate, each (n,).

        The latter is the sum over components of twice the square over the degrees of freedom;
        those of a family's component include the prior's.

        Args:
            shares: (n, len(FAMILIES)) shares of the time.
        """
        own = np.array([self.families.get(f, self.families.get("", 0.0)) for f in FAMILIES])
        device, family = self.device * shares.sum(axis=1) ** 2, shares**2 * own
        sampling = 2.0 * device**2 / self.freedom
        sampling = sampling + 2.0 * (family**2).sum(axis=1) / (self.freedom + 1.0 + PRIOR_DEVICES)
        return device + family.sum(axis=1), sampling


@dataclass(frozen=True)
class ErrorComponents:
    """Variance components of the log error.

    Attributes:
        seen: shared components on devices of the training rows.
        unseen: shared components that a device of the largest novelty adds.
        site: family -> variance of sites on a device; the key "" is for other families.
        kernel: family -> variance of kernels within a site; the key "" is for other families.
        coverage: nominal coverage of intervals.
    """

    seen: Shared
    unseen: Shared
    site: Mapping[str, float] = field(default_factory=dict)
    kernel: Mapping[str, float] = field(default_factory=dict)
    coverage: float = LEVEL

    @classmethod
    def of(cls, seen: Sequence[HeldOut], unseen: Sequence[HeldOut]) -> Self:
        """Moment estimates from held-out errors.

        Args:
            seen: errors on rows of devices of which other rows were trained on.
            unseen: errors on held-out devices; if empty, `seen` is used for both.
        """
        devices = len({part.device for part in unseen})
        site, kernel = _within([*seen, *unseen])
        near = Shared.of(seen, len({part.device for part in seen}) - 1.0)
        far = Shared.of(unseen, devices - 1.0) if unseen else near
        return cls(near, far, site, kernel)

    def shared_variance(self, shares: Column, novelty: Column) -> tuple[Column, Column]:
        """Variance that does not average out, and its degrees of freedom, each (n,).

        Args:
            shares: (n, len(FAMILIES)) shares of the time of n networks or kernels.
            novelty: (n,) novelty of their devices; 0 for devices of the training rows.
        """
        near, near_sampling = self.seen.variance(shares)
        far, far_sampling = self.unseen.variance(shares)
        share = novelty_share(novelty)
        total, sampling = near + far * share, near_sampling + far_sampling * share**2
        # Satterthwaite's degrees of freedom of a sum of estimated variances.
        return total, np.maximum(2.0 * total**2 / np.maximum(sampling, 1e-30), 1.0)

    def own_variance(
        self, owner: Positions, shares: Column, families: Positions, *keys: Column
    ) -> Column:
        """Variance that averages out, shape (n,) for n sums, where n - 1 is the largest owner.

        Args:
            owner: (k,) index of the sum that each kernel belongs to.
            shares: (k,) shares of the owner's time.
            families: (k,) positions in `FAMILIES`.
            keys: (k,) keys of the site and of the kernel; rows with equal keys share an error.
        """
        size = int(owner.max()) + 1 if len(owner) else 0
        variance = np.zeros(size)
        for key, by_family in zip(keys, (self.site, self.kernel), strict=True):
            own = np.array([by_family.get(f, by_family.get("", 0.0)) for f in FAMILIES])
            order = np.lexsort((key, families, owner))
            first = _first_of_equal(owner[order], families[order], key[order])
            index = np.empty(len(order), dtype=np.intp)
            index[order] = np.cumsum(first) - 1
            group_shares, place = np.bincount(index, weights=shares), order[first]
            parts = own[families[place]] * group_shares**2
            variance += np.bincount(owner[place], weights=parts, minlength=size)
        return variance


def _first_of_equal(*columns: Column | Positions) -> Mask:
    """Which of k sorted rows differ from the row before, (k,)."""
    first = np.ones(len(columns[0]), dtype=np.bool_)
    first[1:] = False
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return first


def novelty_share(novelty: float | Column) -> Column:
    """Share of the unseen variance at a novelty: 0 for a known device, towards 1 far away."""
    squared = np.square(np.minimum(np.asarray(novelty, dtype=np.float64), 1e6))
    return np.asarray(squared / (1.0 + squared))


def reach(variance: Column, freedom: Column, coverage: float) -> Column:
    """Half-width of an interval in log units: Student's quantile times the standard deviation."""
    return student_quantile(freedom, coverage) * np.sqrt(variance)


def site_keys(family: str, features: OperatorFeatures) -> tuple[Column, Column]:
    """Keys of the site and of the kernel, each (n,); equal kernels have equal keys.

    Kernels of one family belong to a site if every size and the roofline time, rounded down to a
    power of two, are equal.
    """
    columns = [FEATURES[family].index(name) for name in _SIZES if name in FEATURES[family]]
    sizes = np.floor(features.matrix[:, columns] / np.log(2.0) + 1e-6)
    bound = np.floor(np.log2(features.roofline_ms))
    site = np.column_stack([sizes, bound])
    # Sums with fixed irrational weights hash rows: different rows have different keys.
    site_weights = np.sqrt(np.arange(2.0, 2.0 + site.shape[1]))
    kernel_weights = np.sqrt(np.arange(2.0, 2.0 + features.matrix.shape[1]))
    kernel = features.matrix @ kernel_weights + np.pi * np.log(features.roofline_ms)
    return np.round(site @ site_weights, 9), np.round(kernel, 9)


def largest_work(rows: OperatorRows) -> Mask:
    """Mask of the `LARGEST` share of rows by roofline time, for each device and family."""
    large = np.zeros(len(rows.device), dtype=np.bool_)
    for owner, features, _ in rows.parts.values():
        for device in np.unique(rows.device[owner]):
            on_device = rows.device[owner] == device
            bound = features.roofline_ms[on_device]
            large[owner[on_device]] = bound > np.quantile(bound, 1.0 - LARGEST)
    return large


def calibrate(
    rows: OperatorRows,
    refit_errors: Callable[[Mask], Sequence[HeldOut]],
    cross_device_errors: Callable[[str, Mask], Sequence[HeldOut]],
) -> ErrorComponents:
    """Variance components from errors on held-out rows.

    Args:
        rows: training rows.
        refit_errors: mask of rows to hold out -> their errors, of a fit to the other rows.
        cross_device_errors: name of a device and mask of its rows -> their errors, of the boosters
            of the other devices.
    """
    large = largest_work(rows)
    unseen: list[HeldOut] = []
    for device in np.unique(rows.device):
        unseen += cross_device_errors(str(device), large & (rows.device == device))
    return ErrorComponents.of(refit_errors(large), unseen)


def _centre(part: HeldOut) -> float:
    """Mean of the sites' mean errors, so that frequent shapes do not dominate."""
    _, index = np.unique(part.site, return_inverse=True)
    errors = np.clip(part.errors, -_FARTHEST_ERROR, _FARTHEST_ERROR)
    return float((np.bincount(index, weights=errors) / np.bincount(index)).mean())


def _within(parts: Sequence[HeldOut]) -> tuple[dict[str, float], dict[str, float]]:
    """By family, the variance of sites around their device, and of kernels around their site."""
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


def _averaged(variances: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Mean of each family's values, and the mean over families under the key ""."""
    means = {family: float(np.mean(values)) for family, values in variances.items()}
    return {"": float(np.mean(list(means.values()))) if means else 0.0, **means}
