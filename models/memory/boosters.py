"""Peaks of training from plans: an affine map, and boosters of what is left of measured runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.features.memory.plan import TRAITS, MemoryPlan, with_optimizer_slots
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.memory.affine_map import AffineMap
from forerun.models.memory.domain import MemoryDomain, kind_of

Column = NDArray[np.float64]
FEATURE_NAMES = (*TRAITS, "log_reserved", "log_live")
BAGS = 2
PARAMETERS: Mapping[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "lambda_l2": 1.0,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
SIZES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "dense": (500, {"num_leaves": 31, "min_data_in_leaf": 5}),
    "mixed": (250, {"num_leaves": 8, "min_data_in_leaf": 20}),
}
"""Trees and their size. Networks of dense layers repeat to 0.2 %, so that much can be learnt of
them; those with convolutions or attention scatter by their libraries' workspaces."""
USUAL_SLOTS: Mapping[str, float] = {"dense": 2.0, "mixed": 1.0}
"""Optimizer states a weight of GPUMemNet's rows: Adam and SGD with momentum."""

LEAST_BEYOND = -0.9
"""Of the mapped peak: what a measurement may lie below it, to keep logarithms finite."""

FEWEST_ROWS = 100
"""Rows from which on a booster is worth its noise."""


@dataclass(frozen=True)
class FittedPeaks:
    """Peaks by map and boosters.

    Attributes:
        map: from a plan to the device's peak.
        residuals: boosters of log(measured / mapped) by kind of network.
        domain: of the runs that they were fitted on.
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
        """Map and boosters of n training runs.

        Args:
            queries: n queries.
            plans: their plans.
            measured: n peaks, MiB; NaN where a run ended for want of memory.
            at_least: n lower bounds, MiB, for those that did; NaN elsewhere.
            seed: of the boosters.
        """
        found = AffineMap.fit(plans, measured, at_least)
        known = np.flatnonzero(~np.isnan(measured))
        shown = [plans[i] for i in known.tolist()]
        usual, kinds = _usual(shown), _kinds(shown)
        beyond = measured[known] - _mapped(found, shown)
        left = np.log1p(np.maximum(beyond / _mapped(found, usual), LEAST_BEYOND))
        features = _features(usual)
        residuals = {}
        for kind, (trees, size) in SIZES.items():
            mine = kinds == kind
            if mine.sum() >= FEWEST_ROWS:
                residuals[kind] = BoosterBag.fit(
                    features[mine],
                    left[mine],
                    parameters={**PARAMETERS, **size},
                    trees=trees,
                    seeds=range(seed, seed + BAGS),
                )
        precisions = {str(queries[i].run.precision) for i in known.tolist()}
        return cls(found, residuals, MemoryDomain.of(shown, features, FEATURE_NAMES, precisions))

    def peaks(self, plans: Sequence[MemoryPlan]) -> Column:
        """Mapped peaks plus what the booster of each network's kind adds, MiB.

        The booster is asked about the kind's usual optimizer, so that another one changes the peak
        by its own states and by nothing else. Features are moved into the range of the runs that
        it was fitted on, and what it adds is that of the largest of them at most.
        """
        mapped = _mapped(self.map, plans)
        kinds = _kinds(plans)
        for kind, bag in self.residuals.items():
            mine = np.flatnonzero(kinds == kind)
            if len(mine):
                usual = _usual([plans[row] for row in mine.tolist()])
                features = self.domain.ranges[kind].clip(_features(usual))
                largest = self.map.reserved * self.domain.largest_mib[kind]
                base = np.minimum(_mapped(self.map, usual), largest + self.map.context)
                mapped[mine] += base * np.expm1(bag.predict(features))
        return mapped


def booster_features(plans: Sequence[MemoryPlan]) -> Column:
    """(n, len(FEATURE_NAMES)) what boosters see of n plans: those with their kind's optimizer."""
    return _features(_usual(plans))


def _mapped(known: AffineMap, plans: Sequence[MemoryPlan]) -> Column:
    return np.array([known.peak(plan) for plan in plans])


def _usual(plans: Sequence[MemoryPlan]) -> list[MemoryPlan]:
    return [
        with_optimizer_slots(plan, USUAL_SLOTS.get(kind, 0.0))
        for plan, kind in zip(plans, _kinds(plans).tolist(), strict=True)
    ]


def _kinds(plans: Sequence[MemoryPlan]) -> NDArray[np.str_]:
    return np.array([kind_of(plan) for plan in plans], dtype=np.str_)


def _features(plans: Sequence[MemoryPlan]) -> Column:
    return np.array(
        [
            (*plan.traits, np.log(max(plan.reserved, 1.0)), np.log(max(plan.live, 1.0)))
            for plan in plans
        ]
    )
