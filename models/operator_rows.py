"""Measured kernels as the rows that boosters of operator families are fitted on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.features.operator_features import (
    FAMILIES,
    FAMILY_OF_KIND,
    FEATURES,
    OperatorFeatures,
    operator_features,
)
from forerun.features.query_table import gather

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

SHORTEST_MS = {"conv": 0.01, "bmm": 0.01, "linear": 0.01}
TRUSTED = 0.5
"""Rows of a smaller weight are in doubt and teach nothing."""

SHORTEST_ROW_MS = 0.02
"""Rows whose bound is shorter teach nothing but the launch."""


CORRECTION_WIDTH = 2 + max(len(names) for names in FEATURES.values())
"""Columns of what few-row corrections see, of every family."""


def correction_columns(features: OperatorFeatures, times_ms: Column) -> Matrix:
    """What a correction may depend on: the features, the bound and the time's ratio to it.

    Args:
        features: n kernels of one family.
        times_ms: (n,) predicted, or measured where the spread over training rows is asked.

    Returns:
        (n, 2 + number of the family's features).
    """
    bound = np.log(features.roofline_ms)
    return np.column_stack([features.matrix, bound, np.log(times_ms) - bound])


@dataclass(frozen=True, slots=True)
class TimedKernels:
    """n kernels on one device: time, bounds (0 without intervals), and what corrections see."""

    times: Column
    low: Column
    high: Column
    features: Matrix
    families: NDArray[np.str_]

    @classmethod
    def empty(cls, size: int) -> Self:
        """Room for `size` kernels."""
        times, low, high = np.zeros((3, size))
        families = np.full(size, "", dtype="<U16")
        return cls(times, low, high, np.zeros((size, CORRECTION_WIDTH)), families)


@dataclass(frozen=True)
class OperatorRows:
    """Training rows as features, family by family.

    Attributes:
        device: device of each of n measurements.
        parts: family -> position among the measurements, features, and log of measured time of
            the rows that may teach it.
    """

    device: NDArray[np.str_]
    parts: Mapping[str, tuple[NDArray[np.intp], OperatorFeatures, Column]]

    @classmethod
    def of(cls, measurements: Measurements) -> "OperatorRows":
        """Features of all kernels whose time says more than the launch and is not in doubt.

        Args:
            measurements: kernels with `latency_ms` and the group `device`.
        """
        measured = measurements.values["latency_ms"]
        weights = measurements.weights
        collected: dict[str, list[tuple[NDArray[np.intp], OperatorFeatures]]] = {}
        for part in gather(measurements.queries):
            families = FAMILY_OF_KIND[part.table.kind]
            for code in np.unique(families):
                mine = families == code
                features = operator_features(
                    part.table.take(mine), part.device, part.precision, FAMILIES[code]
                )
                collected.setdefault(FAMILIES[code], []).append((part.owner[mine], features))
        parts = {}
        for family, pieces in collected.items():
            owner = np.concatenate([p[0] for p in pieces])
            features = OperatorFeatures(
                np.concatenate([p[1].matrix for p in pieces]),
                np.concatenate([p[1].roofline_ms for p in pieces]),
                np.concatenate([p[1].base_ms for p in pieces]),
            )
            teach = features.roofline_ms > SHORTEST_MS.get(family, SHORTEST_ROW_MS)
            teach &= measured[owner] > 0
            if weights is not None:
                teach &= weights[owner] >= TRUSTED
            kept = OperatorFeatures(
                features.matrix[teach], features.roofline_ms[teach], features.base_ms[teach]
            )
            parts[family] = (owner[teach], kept, np.log(measured[owner[teach]]))
        return cls(measurements.groups["device"], parts)

    def family(self, family: str, chosen: NDArray[np.bool_]) -> tuple[Column, Column]:
        """Matrix and target of one family's rows where `chosen` is True."""
        if family not in self.parts:
            return np.zeros((0, len(FEATURES[family]))), np.zeros(0)
        owner, features, log_measured = self.parts[family]
        mine = chosen[owner]
        return features.matrix[mine], (log_measured - np.log(features.base_ms))[mine]
