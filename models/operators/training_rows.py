"""Measured kernels as training rows of the boosters of operator families."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, Positions
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.workload import NumberFormat
from forerun.features.operators.features import (
    FAMILIES,
    FAMILY_OF_KIND,
    FEATURES,
    OperatorFeatures,
    operator_features,
)
from forerun.features.operators.query_table import gather
from forerun.features.operators.table import OperatorTable

SHORTEST_MS = {"conv": 0.01, "bmm": 0.01, "linear": 0.01}
"""Family -> lower bound of the roofline time of training rows, in place of `SHORTEST_ROW_MS`."""
LOWEST_WEIGHT = 0.5
"""Rows with a smaller weight are unreliable and not trained on."""

SHORTEST_ROW_MS = 0.02
"""Rows with a shorter roofline time are dominated by the launch and not trained on."""


CORRECTION_WIDTH = 2 + max(len(names) for names in FEATURES.values())
"""Number of columns of few-shot corrections, enough for the features of every family."""


def correction_columns(features: OperatorFeatures, times_ms: Column) -> Matrix:
    """Features of few-shot corrections: the family's features, log roofline time, log time over it.

    Args:
        features: n kernels of one family.
        times_ms: (n,) predicted times, or measured ones to standardise by the training rows.

    Returns:
        Shape (n, 2 + number of the family's features).
    """
    bound = np.log(features.roofline_ms)
    return np.column_stack([features.matrix, bound, np.log(times_ms) - bound])


def by_family(
    table: OperatorTable, device: Device, precision: NumberFormat
) -> Iterator[tuple[str, Mask, OperatorFeatures]]:
    """Each family among n kernels, the mask of its kernels, and their features."""
    families = FAMILY_OF_KIND[table.kind]
    for code in np.flatnonzero(np.bincount(families)).tolist():
        selected, family = families == code, FAMILIES[code]
        own = table if selected.all() else table.take(selected)
        yield family, selected, operator_features(own, device, precision, family)


@dataclass(frozen=True, slots=True)
class TimedKernels:
    """Predicted times of n kernels on one device.

    Attributes:
        times: (n,) milliseconds.
        deviation: (n,) standard deviation of the log error after adaptation to the device; NaN
            without it.
        features: (n, CORRECTION_WIDTH) standardised features of few-shot corrections.
        families: (n,) names of families.
        site, kernel: (n,) keys that are equal for kernels of one site, and for equal kernels.
    """

    times: Column
    deviation: Column
    features: Matrix
    families: Names
    site: Column
    kernel: Column

    @classmethod
    def empty(cls, size: int) -> Self:
        """Times of `size` kernels, to be filled in."""
        times, site, kernel = np.zeros((3, size))
        families = np.full(size, "", dtype="<U16")
        features = np.zeros((size, CORRECTION_WIDTH))
        return cls(times, np.full(size, np.nan), features, families, site, kernel)


@dataclass(frozen=True)
class OperatorRows:
    """Training rows by operator family.

    Attributes:
        device: (n,) values of the group `device`.
        devices: value of the group `device` -> spec sheet.
        parts: family -> positions among the n measurements, features and log measured milliseconds
            of its training rows.
    """

    device: Names
    devices: Mapping[str, Device]
    parts: Mapping[str, tuple[Positions, OperatorFeatures, Column]]

    @classmethod
    def of(cls, measurements: Measurements) -> "OperatorRows":
        """The reliable rows that are not dominated by the launch.

        Args:
            measurements: n kernels with `latency_ms` and the group `device`.
        """
        measured = measurements.values["latency_ms"]
        weights = measurements.weights
        collected: dict[str, list[tuple[Positions, OperatorFeatures]]] = {}
        for part in gather(measurements.queries):
            for family, selected, features in by_family(part.table, part.device, part.precision):
                collected.setdefault(family, []).append((part.owner[selected], features))
        parts = {}
        for family, pieces in collected.items():
            owner = np.concatenate([p[0] for p in pieces])
            features = OperatorFeatures.concatenate([p[1] for p in pieces])
            used = features.roofline_ms > SHORTEST_MS.get(family, SHORTEST_ROW_MS)
            used &= measured[owner] > 0
            if weights is not None:
                used &= weights[owner] >= LOWEST_WEIGHT
            parts[family] = (owner[used], features.take(used), np.log(measured[owner[used]]))
        names = measurements.groups["device"]
        devices = {
            str(name): query.device for name, query in zip(names, measurements.queries, strict=True)
        }
        return cls(names, devices, parts)

    def family(self, family: str, chosen: Mask) -> tuple[OperatorFeatures, Column] | None:
        """Features and log measured milliseconds of one family's rows where `chosen` is True.

        None where the measurements hold no kernel of this family.

        Args:
            family: name of the family.
            chosen: (n,) mask of the measurements.
        """
        if family not in self.parts:
            return None
        owner, features, log_measured = self.parts[family]
        selected = chosen[owner]
        return features.take(selected), log_measured[selected]
