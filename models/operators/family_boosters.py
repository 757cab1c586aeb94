"""Boosters of kernel families, one set for each training device, mixed by similarity of devices.

A kernel's time is the longer of two: the base time at full clock x exp(ratio), where a booster
predicts the ratio, and the time under the power limit. Each training device has its own boosters,
so that no booster can identify devices by their figures; a query is predicted by the boosters of
similar devices. Matrix products (batched and linear) are predicted by the mean of the family's own
booster and of one fitted to both families, which helps a family with unreliable rows on a device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.data.device import Device
from forerun.features.operators.features import (
    FAMILIES,
    LAUNCH_MS,
    SHORTEST_KERNEL_MS,
    OperatorFeatures,
)
from forerun.models.domain.device_novelty import (
    ARITHMETIC_SCALES,
    MEMORY_SCALES,
    device_position,
    similarity,
)
from forerun.models.gradient_boosting import BoosterBag, load_together
from forerun.models.operators.training_rows import SHORTEST_MS, SHORTEST_ROW_MS, OperatorRows

POOLED = "gemm"
POOLS = ("bmm", "linear")
FEWEST_ROWS = 100
SHARPNESS = 6.0
"""Order of the norm that combines the times at full clock and under the power limit; 6 and 12 were
tried."""

SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.08,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "min_data_in_leaf": 40,
    "min_sum_hessian_in_leaf": 0.01,
    "feature_pre_filter": False,
    "num_leaves": 31,
}
HUBER = 0.15
"""Log error beyond which Huber's loss is linear."""

FLOOR_OF_ROOFLINE = {"conv": 0.4}
"""Family -> lowest time as a share of the roofline. Winograd convolutions need 2.25 times fewer
multiplications (Lavin and Gray 2016); no other family was measured below its roofline."""

BACKGROUND = {"softmax": 1.0}
"""Family -> similarity that is added for every device. The time of a softmax depends more on block
layouts than on GPU generations (error on held-out training GPUs: 24 % with 1, 30 % without)."""
_BACKGROUND = 0.01
_OWN_WEIGHT = 4.0
"""Weight of the queried device's own boosters, relative to those of a device with equal ratios."""
_NEGLIGIBLE = 0.03
_CAPPED_SHARE = 0.8
_CLEARLY_CAPPED = 1.5
_SUSTAINED_MS = 0.1


@dataclass(frozen=True)
class DeviceBoosters:
    """Boosters fitted to the rows of one training device.

    Attributes:
        position: the device's coordinates from `device_position`.
        bags: family (or `POOLED`) -> boosters of the log ratio.
        unlimited: family -> mean share of its rows' time that is not due to the power limit, which
            is how informative these rows are about kernels at full clock.
    """

    position: tuple[float, ...]
    bags: Mapping[str, BoosterBag]
    unlimited: Mapping[str, float]

    @classmethod
    def fit(
        cls,
        rows: OperatorRows,
        chosen: Mask,
        device: Device,
        *,
        trees: int,
        seeds: Sequence[int],
    ) -> Self:
        """Fit boosters of every family, and of the pool, with at least `FEWEST_ROWS` rows.

        Args:
            rows: n measurements.
            chosen: (n,) mask of the rows to fit to, all of them on `device`.
            device: the training device.
            trees: boosting rounds.
            seeds: random seeds, one for each booster of a bag.
        """
        position = tuple(device_position(device).tolist())
        gemm = [part for family in POOLS if (part := rows.family(family, chosen)) is not None]
        excess = power_excess(gemm)
        bags, unlimited = {}, {}
        for family in (*FAMILIES, POOLED):
            members = POOLS if family == POOLED else (family,)
            parts = [part for m in members if (part := rows.family(m, chosen)) is not None]
            if sum(len(log_ms) for _, log_ms in parts) < FEWEST_ROWS:
                continue
            features = OperatorFeatures.concatenate([p[0] for p in parts])
            if not np.ptp(features.matrix, axis=0).any():
                continue
            log_ms = np.concatenate([p[1] for p in parts])
            power_ms = features.power_ms * (np.exp(excess) if family != "conv" else 1.0)
            bag = _fit_bag(features, power_ms, log_ms, trees=trees, seeds=seeds)
            at_full_clock = features.base_ms * np.exp(bag.predict(features.matrix))
            bags[family] = bag
            unlimited[family] = float(_share(at_full_clock, power_ms).mean())
        return cls(position, bags, unlimited)

    def ratio(self, family: str, matrix: Matrix) -> Column:
        """Log ratios of n kernels of a family that has boosters, (n,), from (n, d) features."""
        bags = self.bags_of(family)
        return np.asarray(sum(bag.predict(matrix) for bag in bags) / len(bags))

    def bags_of(self, family: str) -> list[BoosterBag]:
        """The boosters that predict kernels of a family."""
        names = (family, POOLED) if family in POOLS else (family,)
        return [self.bags[name] for name in names if name in self.bags]


def fit_devices(
    rows: OperatorRows, chosen: Mask, *, trees: int, seeds: Sequence[int]
) -> dict[str, DeviceBoosters]:
    """Fit boosters for every training device with enough rows.

    Args:
        rows: n measurements.
        chosen: (n,) mask of the rows to fit to.
        trees: boosting rounds.
        seeds: random seeds, one for each booster of a bag.

    Returns:
        Value of the group `device` -> boosters.
    """
    experts = {}
    for name in sorted(set(rows.device[chosen].tolist())):
        on_device = chosen & (rows.device == name)
        fitted = DeviceBoosters.fit(rows, on_device, rows.devices[name], trees=trees, seeds=seeds)
        if fitted.bags:
            experts[name] = fitted
    return experts


def mixed_ratio(
    experts: Sequence[DeviceBoosters], position: Column, family: str, features: OperatorFeatures
) -> Column:
    """Log ratios of n kernels on a device: the mean over training devices, weighted by similarity.

    Args:
        experts: boosters of the training devices.
        position: the queried device's coordinates from `device_position`.
        family: family of the kernels.
        features: features of the n kernels.
    """
    return mixed_ratios(experts, [position], family, [features])[0]


def mixed_ratios(
    experts: Sequence[DeviceBoosters],
    positions: Sequence[Column],
    family: str,
    features: Sequence[OperatorFeatures],
) -> list[Column]:
    """`mixed_ratio` on each of c devices, with one call of each booster.

    Args:
        experts: boosters of the training devices.
        positions: coordinates of the devices.
        family: family of the kernels.
        features: features of the kernels on each device.
    """
    weights = expert_weights(experts, positions, family)
    near = weights >= _NEGLIGIBLE * weights.max(axis=1, initial=0.0, keepdims=True)
    near &= weights > 0.0
    used = list(compress(experts, near.any(axis=0)))
    load_together(bag for expert in used for bag in expert.bags_of(family))
    ratios = [np.zeros(len(own.roofline_ms)) for own in features]
    totals = np.zeros(len(features))
    for expert, asked, weight in zip(experts, near.T, weights.T, strict=True):
        places = np.flatnonzero(asked).tolist()
        if not places or not expert.bags_of(family):
            continue
        matrix = np.concatenate([features[place].matrix for place in places])
        ends = np.cumsum([len(ratios[place]) for place in places])[:-1]
        for place, own in zip(places, np.split(expert.ratio(family, matrix), ends), strict=True):
            ratios[place] += weight[place] * own
            totals[place] += weight[place]
    return [own / total if total else own for own, total in zip(ratios, totals, strict=True)]


def expert_weights(
    experts: Sequence[DeviceBoosters], positions: Sequence[Column], family: str
) -> Matrix:
    """Weight of the boosters of k training devices in a prediction for c devices, shape (c, k).

    Args:
        experts: boosters of the training devices.
        positions: coordinates of the c devices from `device_position`.
        family: family of the kernels; boosters without one of it have the weight 0.
    """
    scales = ARITHMETIC_SCALES if family in (*POOLS, "conv") else MEMORY_SCALES
    known = np.array([expert.position for expert in experts]).reshape(-1, len(scales))
    asked = np.array(positions).reshape(-1, 1, len(scales))
    similar = similarity(known, asked, scales)
    own = np.where(np.abs(asked - known).max(axis=-1) < 1e-6, _OWN_WEIGHT, 1.0)
    unlimited = [e.unlimited[family] if family in e.bags else 0.0 for e in experts]
    return np.asarray(own * np.array(unlimited) * (similar + BACKGROUND.get(family, _BACKGROUND)))


def family_ms(family: str, features: OperatorFeatures, ratio: Column) -> Column:
    """Times of n kernels of one family from their log ratios, in milliseconds.

    Below the shortest roofline time of the training rows, the time falls linearly to that of the
    shortest kernel: `LAUNCH_MS` is due to the events around the training rows. No time is below
    `FLOOR_OF_ROOFLINE`.
    """
    short = np.minimum(features.roofline_ms / SHORTEST_MS.get(family, SHORTEST_ROW_MS), 1.0)
    work = np.maximum(features.base_ms - LAUNCH_MS, 1e-9)
    at_shortest = (LAUNCH_MS + work / np.maximum(short, 1e-9)) * np.exp(ratio)
    at_full_clock = SHORTEST_KERNEL_MS + (at_shortest - SHORTEST_KERNEL_MS) * short
    times = _joined(at_full_clock, features.power_ms)
    return np.maximum(times, FLOOR_OF_ROOFLINE.get(family, 1.0) * features.roofline_ms)


def power_excess(parts: Sequence[tuple[OperatorFeatures, Column]]) -> float:
    """Median log ratio of measured time to that under the power limit, of power-limited rows.

    Zero where fewer than `FEWEST_ROWS` rows are clearly power-limited.

    Args:
        parts: features and log measured milliseconds of matrix products on one device.
    """
    excesses: list[Column] = []
    for features, log_ms in parts:
        limited = features.power_ms > _CLEARLY_CAPPED * features.base_ms
        limited &= features.roofline_ms > _SUSTAINED_MS
        limited &= features.power_ms > features.roofline_ms / _CAPPED_SHARE
        excesses.append(log_ms[limited] - np.log(features.power_ms[limited]))
    logs = np.concatenate(excesses) if excesses else np.zeros(0)
    return float(np.median(logs)) if len(logs) >= FEWEST_ROWS else 0.0


def _joined(at_full_clock: Column, power_ms: Column) -> Column:
    """A smooth maximum of both times: the norm of order `SHARPNESS`."""
    ratio = power_ms / at_full_clock
    return at_full_clock * (1.0 + ratio**SHARPNESS) ** (1.0 / SHARPNESS)


def _share(at_full_clock: Column, power_ms: Column) -> Column:
    """Derivative of the log of `_joined` with respect to the log of the time at full clock."""
    return 1.0 / (1.0 + (power_ms / at_full_clock) ** SHARPNESS)


def _fit_bag(
    features: OperatorFeatures,
    power_ms: Column,
    log_ms: Column,
    *,
    trees: int,
    seeds: Sequence[int],
) -> BoosterBag:
    """Boosters of the log ratio that minimise Huber's loss of the log time, by Gauss-Newton steps.

    Power-limited rows are hardly informative about the ratio. Their gradient is scaled by the
    derivative `_share`; leaving them out by a threshold would select rows by their noise.
    """

    def objective(ratio: Column, data: Any) -> tuple[Column, Column]:
        at_full_clock = features.base_ms * np.exp(ratio)
        error = log_ms - np.log(_joined(at_full_clock, power_ms))
        share = _share(at_full_clock, power_ms)
        slope = np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-9))
        return -error * slope * share, share**2 * slope + 1e-3

    return BoosterBag.fit(
        features.matrix,
        log_ms - np.log(features.base_ms),
        parameters={**SETTINGS, "objective": objective},
        trees=trees,
        seeds=seeds,
    )
