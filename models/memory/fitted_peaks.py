"""Peaks of training from plans: an affine map, and boosters of its residuals.

The map leads from the memory that the allocator reserves to the device's peak, by robust
regression. Runs whose measured peak is far above the fit have little weight: cuDNN's search for the
fastest convolution takes gigabytes for a moment, which a sampled peak contains only by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.data.columns import Column, rows_by
from forerun.data.query import Query
from forerun.features.memory.plan import MemoryPlan, with_optimizer_slots
from forerun.features.memory.traits import TRAITS
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.memory.domain import MemoryDomain, kind_of

ROUNDS = 40
"""Iterations of reweighted least squares."""
LEAST_RESIDUAL = 1e-3
"""Least relative residual in the weights, which keeps them finite."""


@dataclass(frozen=True, slots=True)
class AffineMap:
    """Device-level peak from a plan, MiB.

    Attributes:
        reserved: factor of the memory that the allocator reserves; above 1 for fragmentation over
            many steps.
        largest_convolution: workspace per MiB of traffic of the largest spatial convolution.
        convolutions: workspace per MiB of traffic of all spatial convolutions.
        library: memory of the loaded convolution library, MiB.
        context: memory that the device takes for any network, MiB.
    """

    reserved: float
    largest_convolution: float
    convolutions: float
    library: float
    context: float

    def workspace(self, plan: MemoryPlan) -> float:
        """Workspaces of convolutions, MiB, in addition to tensors."""
        spatial = self.largest_convolution * plan.largest_convolution
        return max(0.0, spatial + self.convolutions * plan.convolutions)

    def own(self, plan: MemoryPlan) -> float:
        """Memory outside the allocator: context and convolution library, MiB."""
        return self.context + self.library * plan.has_convolutions

    def peak(self, plan: MemoryPlan) -> float:
        """Device-level peak, MiB."""
        return self.reserved * plan.reserved + self.workspace(plan) + self.own(plan)

    @classmethod
    def fit(cls, plans: Sequence[MemoryPlan], measured: Column, at_least: Column) -> "AffineMap":
        """Least mean absolute relative error, by iteratively reweighted least squares.

        Args:
            plans: n plans.
            measured: n peaks, MiB; NaN where a run was out of memory.
            at_least: n lower bounds, MiB, for the runs out of memory; NaN elsewhere. Such a
                right-censored row has weight only while its fitted value is below the bound.
        """
        matrix = np.array([_row(plan) for plan in plans])
        free = matrix.std(axis=0) > 0
        # A column that is constant over all rows is not identifiable next to the intercept.
        free[[0, -1]] = True
        design_matrix = matrix[:, free]
        target = np.where(np.isnan(measured), at_least, measured)
        weights = np.where(np.isnan(measured), 0.0, 1.0)
        solved: Column = np.zeros(design_matrix.shape[1])
        residual: Column = np.ones(len(target))
        for _ in range(ROUNDS):
            scale = weights / target / np.sqrt(np.maximum(residual, LEAST_RESIDUAL))
            least = np.linalg.lstsq(design_matrix * scale[:, None], target * scale, rcond=None)
            solved = np.asarray(least[0], dtype=np.float64)
            fitted = design_matrix @ solved
            residual = np.asarray(np.abs(fitted - target) / target, dtype=np.float64)
            weights = np.where(np.isnan(measured) & (fitted >= target), 0.0, 1.0)
        whole = np.zeros(matrix.shape[1])
        whole[free] = solved
        return cls(*whole.tolist())


def _row(plan: MemoryPlan) -> tuple[float, ...]:
    return (
        plan.reserved,
        plan.largest_convolution,
        plan.convolutions,
        float(plan.has_convolutions),
        1.0,
    )


FEATURE_NAMES = (*TRAITS, "log_reserved", "log_live")
BAGS = 2
PARAMETERS: Mapping[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "lambda_l2": 1.0,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
SIZES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "dense": (500, {"num_leaves": 31, "min_data_in_leaf": 5, "feature_fraction": 0.6}),
    "mixed": (
        400,
        {"num_leaves": 16, "min_data_in_leaf": 20, "feature_fraction": 0.4, "extra_trees": True},
    ),
}
"""Kind of network -> number and size of the trees. Peaks of dense networks repeat to 0.2 %, which
allows a large booster; those of networks with convolutions or attention vary with the workspaces
of their libraries. Thresholds of `mixed` are drawn at random (`extra_trees`), which follows single
runs with such a workspace less."""
USUAL_SLOTS: Mapping[str, float] = {"dense": 2.0, "mixed": 1.0}
"""Kind of network -> optimizer states per weight in GPUMemNet's rows: Adam, SGD with momentum."""
LEAST_BEYOND = -0.9
"""Least residual relative to the mapped peak, which keeps its logarithm finite."""
FEWEST_ROWS = 100
"""Training rows from which on a kind of network has a booster."""


@dataclass(frozen=True)
class FittedPeaks:
    """Peaks by the affine map and boosters of its residuals.

    Attributes:
        map: affine map from a plan to the device's peak.
        residuals: kind of network -> boosters of log(measured / mapped).
        domain: domain of the training rows.
    """

    map: AffineMap
    residuals: Mapping[str, BoosterBag]
    domain: MemoryDomain

    @classmethod
    def of(
        cls,
        queries: Sequence[Query],
        plans: Sequence[MemoryPlan],
        measured: Column,
        at_least: Column,
        seed: int,
    ) -> "FittedPeaks":
        """Fit map and boosters to n runs of training.

        Args:
            queries: n queries.
            plans: their plans.
            measured: n peaks, MiB; NaN where a run was out of memory.
            at_least: n lower bounds, MiB, for the runs out of memory; NaN elsewhere.
            seed: seed of the first booster.
        """
        affine = AffineMap.fit(plans, measured, at_least)
        known = np.flatnonzero(~np.isnan(measured))
        completed = [plans[i] for i in known.tolist()]
        usual, rows_of = _usual(completed), rows_by(map(kind_of, completed))
        beyond = measured[known] - _mapped(affine, completed)
        target = np.log1p(np.maximum(beyond / _mapped(affine, usual), LEAST_BEYOND))
        features = _features(usual)
        residuals = {}
        for kind, (trees, size) in SIZES.items():
            rows = rows_of.get(kind)
            if rows is not None and len(rows) >= FEWEST_ROWS:
                residuals[kind] = BoosterBag.fit(
                    features[rows],
                    target[rows],
                    parameters={**PARAMETERS, **size},
                    trees=trees,
                    seeds=range(seed, seed + BAGS),
                )
        precisions = {str(queries[i].run.precision) for i in known.tolist()}
        domain = MemoryDomain.of(completed, features, FEATURE_NAMES, precisions)
        return cls(affine, residuals, domain)

    def peaks(self, plans: Sequence[MemoryPlan]) -> Column:
        """Mapped peaks plus the residual that the booster of each network's kind predicts, MiB.

        Features are those of the plan with the usual optimizer of that kind, so that another
        optimizer changes the peak only by its own states. They are clipped to the range of the
        training rows, and the residual is at most that of a network as large as the largest one.
        """
        mapped = _mapped(self.map, plans)
        for kind, rows in rows_by(map(kind_of, plans)).items():
            if kind in self.residuals:
                usual = _usual([plans[row] for row in rows])
                ranges = self.domain.ranges[kind]
                features = ranges.clip(booster_features(usual, ranges.names))
                largest = self.map.reserved * self.domain.largest_mib[kind]
                base = np.minimum(_mapped(self.map, usual), largest + self.map.context)
                mapped[rows] += base * np.expm1(self.residuals[kind].predict(features))
        return mapped


def booster_features(plans: Sequence[MemoryPlan], names: Sequence[str] = FEATURE_NAMES) -> Column:
    """Features of n plans with the usual optimizer of their kind, (n, len(names)).

    Args:
        plans: n plans.
        names: some of `FEATURE_NAMES`; a stored booster may have been fitted on fewer.
    """
    return _features(_usual(plans))[:, [FEATURE_NAMES.index(name) for name in names]]


def _mapped(affine: AffineMap, plans: Sequence[MemoryPlan]) -> Column:
    return np.array([affine.peak(plan) for plan in plans])


def _usual(plans: Sequence[MemoryPlan]) -> list[MemoryPlan]:
    """The plans with the optimizer states that are usual for their kind of network."""
    return [with_optimizer_slots(plan, USUAL_SLOTS.get(kind_of(plan), 0.0)) for plan in plans]


def _features(plans: Sequence[MemoryPlan]) -> Column:
    return np.array(
        [
            (*plan.traits, np.log(max(plan.reserved, 1.0)), np.log(max(plan.live, 1.0)))
            for plan in plans
        ]
    )
