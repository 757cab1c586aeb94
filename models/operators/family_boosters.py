"""Boosters of the families of kernels, one for each training device, mixed by similarity.

A kernel's time is the slower of two: base time at full clock x exp(ratio), where the booster gives
the ratio, and what the power limit allows. Each training device has boosters of its own, so that
none tells devices apart by their sizes; a device is answered by the boosters of those like it.
Products of matrices (batched and linear) are answered by the mean of their own booster and of one
fitted on both, which carries a family whose rows on a device are doubtful.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.features.operators.features import FAMILIES, LAUNCH_MS, OperatorFeatures
from forerun.models.domain.device_novelty import (
    ARITHMETIC_SCALES,
    MEMORY_SCALES,
    device_position,
    similarity,
)
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.operators.training_rows import SHORTEST_MS, SHORTEST_ROW_MS, OperatorRows

Column = NDArray[np.float64]

POOLED = "gemm"
POOLS = ("bmm", "linear")
FEWEST_ROWS = 100
SHARPNESS = 6.0
"""Order of the norm that joins time at full clock and under the power limit (6 and 12 tried)."""

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
"""Log error beyond which a row's pull on the fit no longer grows."""

FLOOR_OF_ROOFLINE = {"conv": 0.4}
"""Winograd needs 2.25 times fewer multiplications; no other family was seen below its bound."""

BACKGROUND = {"softmax": 1.0}
"""Similarity that even unlike devices keep: a softmax depends on block layouts more than on
generations (left-out training GPUs: 24 % with 1, 30 % without)."""
_BACKGROUND = 0.01
_OWN_WEIGHT = 4.0
"""A device's own boosters against one of a device equal in every ratio."""
_NEGLIGIBLE = 0.03
_CAPPED_SHARE = 0.8
_CLEARLY_CAPPED = 1.5
_SUSTAINED_MS = 0.1


@dataclass(frozen=True)
class DeviceBoosters:
    """Boosters fitted on the rows of one training device.

    Attributes:
        position: the device, as `device_position` places it.
        bags: family (and `POOLED`) -> boosters of the log ratio.
        unlimited: family -> mean share of its rows' time that the power limit does not decide:
            how much these rows say of kernels at full clock.
    """

    position: tuple[float, ...]
    bags: Mapping[str, BoosterBag]
    unlimited: Mapping[str, float]

    @classmethod
    def fit(
        cls,
        rows: OperatorRows,
        chosen: NDArray[np.bool_],
        device: Device,
        *,
        trees: int,
        seeds: Sequence[int],
    ) -> Self:
        """Boosters of every family (and the pool) that has rows enough.

        Args:
            rows: n measurements.
            chosen: (n,) mask of those to fit on, all of `device`.
            device: whose they are.
            trees: boosting rounds.
            seeds: one booster each.
        """
        position = tuple(device_position(device).tolist())
        gemm = [found for family in POOLS if (found := rows.family(family, chosen)) is not None]
        excess = power_excess(gemm)
        bags, unlimited = {}, {}
        for family in (*FAMILIES, POOLED):
            members = POOLS if family == POOLED else (family,)
            parts = [found for m in members if (found := rows.family(m, chosen)) is not None]
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

    def ratio(self, family: str, features: OperatorFeatures) -> Column | None:
        """Log ratio of kernels of one family, (n,); None where neither booster was fitted."""
        names = (family, POOLED) if family in POOLS else (family,)
        found = [self.bags[name].predict(features.matrix) for name in names if name in self.bags]
        return np.mean(found, axis=0) if found else None

    def weight(self, family: str, position: Column) -> float:
        """How much these boosters count in the answer for a device at `position`."""
        if family not in self.bags:
            return 0.0
        scales = ARITHMETIC_SCALES if family in (*POOLS, "conv") else MEMORY_SCALES
        alike = similarity(np.array(self.position), position, scales)
        own = _OWN_WEIGHT if np.abs(position - self.position).max() < 1e-6 else 1.0
        return own * self.unlimited[family] * (alike + BACKGROUND.get(family, _BACKGROUND))

    def to_json(self) -> dict[str, Any]:
        """Plain values; boosters are saved apart."""
        sizes = {name: len(bag.texts) for name, bag in self.bags.items()}
        return {"position": self.position, "unlimited": dict(self.unlimited), "bags": sizes}

    @classmethod
    def load(cls, folder: Path, number: int, content: Mapping[str, Any]) -> Self:
        """What `to_json` described, with its boosters from `folder`."""
        bags = {
            name: BoosterBag.load(folder, f"{name}-{number}", count)
            for name, count in content["bags"].items()
        }
        return cls(tuple(content["position"]), bags, dict(content["unlimited"]))


def fit_devices(
    rows: OperatorRows, chosen: NDArray[np.bool_], *, trees: int, seeds: Sequence[int]
) -> dict[str, DeviceBoosters]:
    """Boosters of every training device with rows enough, by the name of its group."""
    found = {}
    for name in sorted(set(rows.device[chosen].tolist())):
        mine = chosen & (rows.device == name)
        fitted = DeviceBoosters.fit(rows, mine, rows.devices[name], trees=trees, seeds=seeds)
        if fitted.bags:
            found[name] = fitted
    return found


def mixed_ratio(
    experts: Sequence[DeviceBoosters], position: Column, family: str, features: OperatorFeatures
) -> Column:
    """Log ratio of n kernels on a device: mean over training devices, weighted by similarity."""
    weights = np.array([expert.weight(family, position) for expert in experts])
    total, ratio = 0.0, np.zeros(len(features.roofline_ms))
    for expert, weight in zip(experts, weights, strict=True):
        if weight <= 0.0 or weight < _NEGLIGIBLE * weights.max():
            continue
        found = expert.ratio(family, features)
        if found is not None:
            ratio, total = ratio + weight * found, total + weight
    return ratio / total if total else ratio


def family_ms(family: str, features: OperatorFeatures, ratio: Column) -> Column:
    """Time of n kernels from their log ratio, milliseconds.

    Below the shortest work of the training rows, the time falls linearly to the launch. None is
    below the launch, nor below the bound.
    """
    short = np.minimum(features.roofline_ms / SHORTEST_MS.get(family, SHORTEST_ROW_MS), 1.0)
    work = np.maximum(features.base_ms - LAUNCH_MS, 1e-9)
    at_shortest = (LAUNCH_MS + work / np.maximum(short, 1e-9)) * np.exp(ratio)
    at_full_clock = LAUNCH_MS + np.maximum(at_shortest - LAUNCH_MS, 0.0) * short
    times = _joined(at_full_clock, features.power_ms)
    return np.maximum(times, FLOOR_OF_ROOFLINE.get(family, 1.0) * features.roofline_ms)


def power_excess(parts: Sequence[tuple[OperatorFeatures, Column]]) -> float:
    """Median log of measured time over the power limit's, where that clearly decides; else 0.

    Args:
        parts: features and log of measured time of products of matrices on one device.
    """
    found: list[Column] = []
    for features, log_ms in parts:
        decides = features.power_ms > _CLEARLY_CAPPED * features.base_ms
        decides &= features.roofline_ms > _SUSTAINED_MS
        decides &= features.power_ms > features.roofline_ms / _CAPPED_SHARE
        found.append(log_ms[decides] - np.log(features.power_ms[decides]))
    logs = np.concatenate(found) if found else np.zeros(0)
    return float(np.median(logs)) if len(logs) >= FEWEST_ROWS else 0.0


def _joined(at_full_clock: Column, power_ms: Column) -> Column:
    """The slower of both, smoothly: the norm of order `SHARPNESS`."""
    ratio = power_ms / at_full_clock
    return at_full_clock * (1.0 + ratio**SHARPNESS) ** (1.0 / SHARPNESS)


def _share(at_full_clock: Column, power_ms: Column) -> Column:
    return 1.0 / (1.0 + (power_ms / at_full_clock) ** SHARPNESS)


def _fit_bag(
    features: OperatorFeatures,
    power_ms: Column,
    log_ms: Column,
    *,
    trees: int,
    seeds: Sequence[int],
) -> BoosterBag:
    """Least Huber loss on the log of the joined time, by Gauss-Newton steps.

    Rows that the power limit decides say little of the ratio: their gradient is scaled by the
    share of time at full clock, so that rows are not selected by their noise.
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


def save_devices(experts: Sequence[DeviceBoosters], folder: Path) -> list[dict[str, Any]]:
    """Boosters as text in `folder`; returns what `load_devices` needs beside them."""
    for number, expert in enumerate(experts):
        for name, bag in expert.bags.items():
            bag.save(folder, f"{name}-{number}")
    return [expert.to_json() for expert in experts]


def load_devices(folder: Path, contents: Sequence[Mapping[str, Any]]) -> Iterator[DeviceBoosters]:
    """What `save_devices` wrote."""
    for number, content in enumerate(contents):
        yield DeviceBoosters.load(folder, number, content)
