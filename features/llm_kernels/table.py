"""Kernels of one family on one device, as arrays: features, bounds and terms of their times."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.data.device import Device

LAUNCH_CLOCK_HZ = 1.9e9
"""Clock that launches are relative to."""


@dataclass(frozen=True, slots=True)
class KernelTable(Columns):
    """n kernels of one family on one device.

    Attributes:
        features: (n, features) dimensionless features.
        bound_s: (n,) roofline bound, seconds.
        serial_s: (n, serial terms) parts of the time that add up, seconds at the sheet's figures.
        parallel_s: (n, parallel terms) parts that overlap, such as arithmetic and memory traffic.
        launch: (n,) time of a launch, relative to that at a clock of 1.9 GHz.
        least_s: (n,) what no kernel is faster than, seconds.
        site: (n,) keys; rows of equal keys differ in the number of tokens alone.
        power_s: (n,) shortest time that the power limit allows, 0 where it is not known. A kernel
            that is inefficient at full clock draws less power, so the two do not multiply: the
            greater one holds.
    """

    features: Matrix
    bound_s: Column
    serial_s: Matrix
    parallel_s: Matrix
    launch: Column
    least_s: Column
    site: Column
    power_s: Column

    @classmethod
    def at_full_clock(cls, **columns: Any) -> Self:
        """Kernels whose time under a power limit is not known; all other columns are given."""
        return cls(**columns, power_s=np.zeros(len(columns["bound_s"])))

    def __len__(self) -> int:
        return len(self.bound_s)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """k kernels of one family on one device.

    Attributes:
        family: operation and number format, such as `gemm/bf16`.
        device: where they run.
        position: coordinates by which devices are compared: the weight of one device for another
            is exp(-squared distance).
        rows: (k,) positions of the queries that they belong to.
        engines: (k,) names of the inference engines.
        counts: (k,) how often each runs.
        classes: (k,) positions in `OPERATOR_CLASSES`; -1 for kernels that are no operators.
        table: features, bounds and terms.
        log_values: (k,) logarithms of measured seconds or shares; NaN where nothing was measured.
    """

    family: str
    device: Device
    position: tuple[float, ...]
    rows: Positions
    engines: Names
    counts: Column
    classes: Positions
    table: KernelTable
    log_values: Column

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Mask | Positions) -> Self:
        """The kernels at these positions, or where the mask is True."""
        columns = ("rows", "engines", "counts", "classes", "log_values")
        taken = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, table=self.table.take(rows), **taken)
