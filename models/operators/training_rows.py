"""Measured kernels as the rows that boosters of operator families are fitted on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.features.operators.features import (
    FAMILIES,
    FAMILY_OF_KIND,
    FEATURES,
    OperatorFeatures,
    operator_features,
)
from forerun.features.operators.query_table import gather

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
    """n kernels on one device.

    Attributes:
        times: (n,) milliseconds.
        deviation: (n,) of the log error left after measurements of the device; NaN without any.
        features: (n, CORRECTION_WIDTH) what few-row corrections depend on.
        families: n names.
        site, kernel: (n,) numbers that kernels of one site, and equal kernels, share.
    """

    times: Column
    deviation: Column
    features: Matrix
    families: NDArray[np.str_]
    site: Column
    kernel: Column

    @classmethod
    def empty(cls, size: int) -> Self:
        """Room for `size` kernels."""
        times, site, kernel = np.zeros((3, size))
        families = np.full(size, "", dtype="<U16")
        features = np.zeros((size, CORRECTION_WIDTH))
        return cls(times, np.full(size, np.nan), features, families, site, kernel)


@dataclass(frozen=True)
class OperatorRows:
    """Training rows as features, family by family.

    Attributes:
        device: device of each of n measurements.
        devices: group `device` -> its spec sheet.
        parts: family -> position among the measurements, features, and log of measured time of
            the rows that may train it.
    """

    device: NDArray[np.str_]
    devices: Mapping[str, Device]
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
            features = OperatorFeatures.concatenate([p[1] for p in pieces])
            used = features.roofline_ms > SHORTEST_MS.get(family, SHORTEST_ROW_MS)
            used &= measured[owner] > 0
            if weights is not None:
                used &= weights[owner] >= TRUSTED
            parts[family] = (owner[used], features.take(used), np.log(measured[owner[used]]))
        names = measurements.groups["device"]
        devices = {
            str(name): query.device for name, query in zip(names, measurements.queries, strict=True)
        }
        return cls(names, devices, parts)

    def family(
        self, family: str, chosen: NDArray[np.bool_]
    ) -> tuple[OperatorFeatures, Column] | None:
        """Features and log of measured time of one family's rows where `chosen` is True."""
        if family not in self.parts:
            return None
        owner, features, log_measured = self.parts[family]
        mine = chosen[owner]
        return features.take(mine), log_measured[mine]
