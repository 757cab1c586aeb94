"""Training domain of a predictor of whole networks, and the novelty of a network.

A network's position consists of the square roots of its time shares by kernel kind, whose Euclidean
distance is the Hellinger distance (times the square root of two), and a few figures of its matrix
products. Errors on held-out families grow with this distance, and intervals widen with it. A
network farther away than nearly all held-out families is outside the training domain.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.chips import DEVICE_RATIOS, assumed, chip_of, device_ratios
from forerun.features.kernels.rows import KERNEL_ROOTS
from forerun.features.lowering.mode import casts_of
from forerun.models.domain.device_novelty import device_position, novelty_limits
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.limit import LATENCY, Limit
from forerun.models.networks.rows import NETWORK_FEATURES, SHARE_COLUMNS

FIGURES = (
    *("mean_aligned_8", "mean_aligned_64", "mean_log_k", "mean_log_n", "mean_log_groups"),
    *("mean_share_of_weights", "mean_log_activations_over_l2", "mean_fill_128x128"),
    "log_launch_share",
)
"""Features in a position in addition to the time shares."""

FIGURE_WEIGHT = 0.1
"""Distance per standard deviation of a figure; mixes without a common kind are the square root of
two apart. With figures, the distance ranked errors on held-out families better than without (rank
correlation 0.35 against 0.33 in eager runs, 0.43 against 0.41 in compiled ones)."""

KEPT = 500
"""Number of training rows stored for each kind of runtime, eager or fused."""

_FIGURES_AT = np.array([NETWORK_FEATURES.index(name) for name in FIGURES])


@dataclass(frozen=True)
class KernelMixes:
    """Kernel mixes of the training networks.

    Attributes:
        centre, spread: (len(FIGURES),) means and standard deviations of the figures.
        fused, eager: (k, len(KERNEL_ROOTS) + len(FIGURES)) positions of training rows whose runtime
            does or does not fuse operators.
            fuses operators, and of the others.
    """

    centre: Column
    spread: Column
    fused: Matrix
    eager: Matrix

    @classmethod
    def of(cls, features: Matrix, fused: Mask) -> Self:
        """The mixes of n training rows, of which a seeded sample is stored.

        Args:
            features: (n, len(NETWORK_FEATURES)).
            fused: (n,) whether the runtime fuses operators.
        """
        figures = features[:, _FIGURES_AT]
        spread = figures.std(axis=0)
        plain = cls(
            figures.mean(axis=0),
            np.where(spread > 1e-9, spread, 1.0),
            np.zeros((0, len(KERNEL_ROOTS) + len(FIGURES))),
            np.zeros((0, len(KERNEL_ROOTS) + len(FIGURES))),
        )
        positions = plain.positions(features)
        kept = []
        for candidates in (positions[fused], positions[~fused]):
            order = np.random.default_rng(0).permutation(len(candidates))[:KEPT]
            # Rounded to keep artifacts small.
            sample = candidates[np.sort(order)].astype(np.float16)
            kept.append(sample.astype(np.float64).round(4))
        return cls(plain.centre, plain.spread, kept[0], kept[1])

    def novelty(self, features: Matrix, fused: Mask) -> Column:
        """Distance to the nearest stored training row of the same kind of runtime, shape (n,).

        Infinite if there is none of that kind.
        """
        positions = self.positions(features)
        distance = np.full(len(positions), np.inf)
        for kind, known in ((True, self.fused), (False, self.eager)):
            rows = np.flatnonzero(fused == kind)
            if len(known):
                for row in rows.tolist():
                    difference = known - positions[row]
                    distance[row] = np.sqrt(np.einsum("ij,ij->i", difference, difference).min())
        return distance

    def nearest_difference(self, features: Matrix, fused: bool) -> str:
        """The kind of kernel whose share differs most from the nearest training row's.

        Args:
            features: (len(NETWORK_FEATURES),) of one network.
            fused: whether its runtime fuses operators.
        """
        position = self.positions(features[None])[0]
        known = self.fused if fused else self.eager
        nearest = known[int(((known - position) ** 2).sum(axis=1).argmin())]
        shares = position[: len(KERNEL_ROOTS)] ** 2 - nearest[: len(KERNEL_ROOTS)] ** 2
        return KERNEL_ROOTS[int(np.abs(shares).argmax())].replace("_", " ")

    def positions(self, features: Matrix) -> Matrix:
        """Positions of n networks, (n, len(KERNEL_ROOTS) + len(FIGURES)).

        Args:
            features: (n, len(NETWORK_FEATURES)).
        """
        figures = (features[:, _FIGURES_AT] - self.centre) / self.spread
        return np.hstack([np.sqrt(features[:, SHARE_COLUMNS]), FIGURE_WEIGHT * figures])


ENOUGH_ROWS = 100
"""Training rows from which errors on a device are those of held-out families rather than those of
an unseen device."""
MAKER_MEASURED = "nvidia"
"""Vendor of all GPUs with measured networks in half precision."""
NARROW = ("fp8", "int8")
"""Number formats without any measured network."""


@dataclass(frozen=True)
class NetworkDomain:
    """Devices, phases, precisions and feature ranges of the training rows.

    Attributes:
        known: devices with at least `ENOUGH_ROWS` training rows.
        domains: device kind -> range of the features on devices of that kind.
        device_ranges: device kind -> range of ratios of the devices' figures.
        trained_on: triples (device kind, phase, `fp32`, `half` or `narrow`) of the training rows.
        with_operators: devices with single operators among the training rows.
        positions: training GPUs in the space of `forerun.models.domain.device_novelty`.
        farthest: distance to the nearest training network up to which a network is in domain.
    """

    known: KnownDevices = field(default_factory=KnownDevices)
    domains: Mapping[str, FeatureRange] = field(default_factory=dict)
    device_ranges: Mapping[str, FeatureRange] = field(default_factory=dict)
    trained_on: frozenset[tuple[str, str, str]] = frozenset()
    with_operators: KnownDevices = field(default_factory=KnownDevices)
    positions: tuple[tuple[float, ...], ...] = ()
    farthest: float = float("inf")

    @classmethod
    def of(cls, queries: Sequence[Query], ranges: Mapping[str, FeatureRange]) -> "NetworkDomain":
        """The domain of training rows.

        Args:
            queries: networks and single operators of the training rows.
            ranges: device kind -> range of the features on devices of that kind.
        """
        networks = [query for query in queries if query.run.kind == "network"]
        devices = Counter(query.device for query in queries)
        return cls(
            known=KnownDevices.of([device for device, n in devices.items() if n >= ENOUGH_ROWS]),
            domains=ranges,
            device_ranges=_device_ranges(networks),
            trained_on=frozenset(map(_training_condition, networks)),
            with_operators=KnownDevices.of([q.device for q in queries if q.run.kind == "kernel"]),
            positions=tuple(
                tuple(device_position(device).tolist())
                for device in sorted({q.device for q in queries}, key=lambda d: d.name)
                if device.kind == "gpu" and device.has_sheet
            ),
        )

    def answers(self, query: Query) -> bool:
        """Whether the query is a network on a trained kind of device, or an operator on a device
        with operators in training.
        """
        if not query.has_bound or not self.trained_on:
            return False
        if isinstance(query.workload, Kernel):
            return query.device in self.with_operators
        kinds = {kind for kind, _, _ in self.trained_on}
        return isinstance(query.workload, Network) and query.device.kind in kinds

    def limits(self, query: Query, features: Column, adapted: bool = False) -> tuple[Limit, ...]:
        """One limit for each property of a query outside the training domain.

        Args:
            query: a network or an operator that `answers` accepts.
            features: its feature values, in the order of the ranges.
            adapted: whether the user measured enough rows on the device.
        """
        device = query.device
        if isinstance(query.workload, Kernel):
            return tuple(Limit(line, LATENCY) for line in assumed_figures(device))
        network = query.network
        lines: list[str] = []
        ranges: list[Limit] = []
        if _training_condition(query) not in self.trained_on:
            lines.append(f"{network.phase} in {network.precision} is not in the training set")
        of_another_maker = device.kind == "gpu" and device.vendor != MAKER_MEASURED
        if (
            of_another_maker
            and casts_of(network.precision) != "fp32"
            and not adapted
            and device not in self.known
        ):
            lines.append("half-precision networks were measured only on NVIDIA GPUs")
        if query.software.runtime == "onnxruntime":
            lines.append("runtime is onnxruntime; the training set has eager and compiled torch")
        unknown = network.graph.unknown
        if unknown:
            names = ", ".join(sorted(unknown))
            lines.append(f"{sum(unknown.values())} operators are of unknown kind: {names}")
        if device.kind == "gpu" and np.isfinite(self.farthest):
            ranges.extend(() if adapted else self._device_limits(device))
        elif device.kind in self.domains:
            ranges.extend(self.domains[device.kind].outside(features, LATENCY))
            if not adapted and device not in self.known and device.kind in self.device_ranges:
                ratios = device_ratios(chip_of(device, network.precision))
                ranges.extend(self.device_ranges[device.kind].outside(ratios, LATENCY))
        assumptions = assumed_figures(device)
        first, last = ([Limit(line, LATENCY) for line in part] for part in (lines, assumptions))
        return (*first, *ranges, *last)

    def _device_limits(self, device: Device) -> tuple[Limit, ...]:
        """A limit for a GPU unlike every GPU in the training rows."""
        if device in self.known or not self.positions:
            return ()
        return novelty_limits(device, map(np.array, self.positions))

    def far_limit(self, novelty: float, differs: str) -> Limit:
        """The limit for a network whose kernels are unlike those of the training networks.

        Args:
            novelty: distance to the nearest training network.
            differs: kernel kind whose time share differs most.
        """
        message = (
            "the network's kernels differ from those of the training networks, mainly in the "
            f"share of {differs}: {novelty:.2f} away from the nearest; up to "
            f"{self.farthest:.2f} is in domain"
        )
        return Limit(message, LATENCY, "outside", "kernel_mix_novelty", novelty, 0.0, self.farthest)


def assumed_figures(device: Device) -> list[str]:
    """Sentences that name each figure estimated because the spec sheet lacks it."""
    return [f"{figure} is missing from the spec sheet" for figure in assumed(device)]


def _training_condition(query: Query) -> tuple[str, str, str]:
    network = query.network
    casts = "narrow" if network.precision in NARROW else casts_of(network.precision)
    casts = "half" if casts == "autocast" else casts
    return query.device.kind, network.phase, casts


def _device_ranges(queries: Sequence[Query]) -> dict[str, FeatureRange]:
    seen = {(id(q.device), q.run.precision): q for q in queries}
    ratios: dict[str, list[Column]] = {}
    for query in seen.values():
        chip = chip_of(query.device, query.run.precision)
        ratios.setdefault(query.device.kind, []).append(device_ratios(chip))
    return {
        kind: FeatureRange.of(DEVICE_RATIOS, np.array(rows))
        for kind, rows in sorted(ratios.items())
    }
