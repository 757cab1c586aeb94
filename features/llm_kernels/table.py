"""Kernels of one family on one device as arrays: features, bounds and terms of their times.

Device figures that a sheet lacks are replaced by typical values.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.data.device import Device

_TYPICAL_CLOCK_MHZ = 1900.0
_TYPICAL_L2_MIB_PER_UNIT = 0.4
_FLOPS_PER_CYCLE_AND_UNIT = 4096.0
_L2_BYTES_PER_CYCLE_AND_UNIT = 32.0


@dataclass(frozen=True, slots=True)
class Chip:
    """Figures of a device.

    Attributes:
        bandwidth: memory bandwidth, bytes/s.
        units: compute units.
        clock_hz: highest clock, Hz.
        l2_bytes: shared cache, bytes.
        flops: dense rate of matrix units in bf16, FLOP/s.
    """

    bandwidth: float
    units: float
    clock_hz: float
    l2_bytes: float
    flops: float

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, device: Device) -> "Chip":
        """Figures of the sheet; missing clock, compute units and cache are assumed.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
        """
        flops = device.peak("bf16", matrix=True) * 1e12
        clock_hz = (device.boost_clock_mhz or _TYPICAL_CLOCK_MHZ) * 1e6
        units = float(
            device.compute_units or max(1.0, flops / clock_hz / _FLOPS_PER_CYCLE_AND_UNIT)
        )
        l2_bytes = (device.l2_mib or _TYPICAL_L2_MIB_PER_UNIT * units) * 2**20
        return cls(device.bandwidth_gbs * 1e9, units, clock_hz, l2_bytes, flops)

    @property
    def l2_bandwidth(self) -> float:
        """Rate at which all compute units read the shared cache, bytes/s."""
        return _L2_BYTES_PER_CYCLE_AND_UNIT * self.units * self.clock_hz

    @property
    def position(self) -> Column:
        """Log ratios by which devices are compared, shape (4,).

        They are bytes over FLOPs, FLOPs and bytes per compute unit and cycle, and shared cache per
        compute unit.
        """
        cycles = self.units * self.clock_hz
        return np.log(
            [
                self.bandwidth / self.flops,
                self.flops / cycles,
                self.bandwidth / cycles,
                self.l2_bytes / self.units,
            ]
        )

    def memory_s(self, moved_bytes: Column, resident_bytes: Column) -> Column:
        """Time to move n amounts of data, shape (n,), seconds.

        Data comes from the shared cache if the working set takes up to half of it, from memory if
        it does not fit, and in between from both.

        Args:
            moved_bytes: (n,) data that a kernel moves.
            resident_bytes: (n,) working set: data used before the same data is used again.
        """
        cached = np.clip(2.0 - resident_bytes / self.l2_bytes, 0.0, 1.0)
        rate = np.maximum(self.l2_bandwidth, self.bandwidth)
        return np.asarray(moved_bytes * ((1.0 - cached) / self.bandwidth + cached / rate))


LAUNCH_CLOCK_HZ = 1.9e9
"""Reference clock of launches."""


@dataclass(frozen=True, slots=True)
class KernelTable(Columns):
    """n kernels of one family on one device.

    Attributes:
        features: (n, features) dimensionless features.
        bound_s: (n,) roofline bound, seconds.
        serial_s: (n, serial terms) additive parts of the time, seconds at the sheet's figures.
        parallel_s: (n, parallel terms) overlapping parts, such as arithmetic and memory traffic.
        launch: (n,) time of a launch, relative to that at a clock of 1.9 GHz.
        least_s: (n,) lower bound of the time, seconds.
        site: (n,) keys; rows with equal keys differ only in the number of tokens.
        power_s: (n,) shortest time that the power limit allows, 0 if unknown. A kernel that is
            inefficient at full clock draws less power, so the two do not multiply: the larger
            applies.
        start_s: (n,) start and end time of a kernel, which no inefficiency prolongs; 0 where it is
            part of `launch`.
    """

    features: Matrix
    bound_s: Column
    serial_s: Matrix
    parallel_s: Matrix
    launch: Column
    least_s: Column
    site: Column
    power_s: Column
    start_s: Column

    @classmethod
    def at_full_clock(cls, **columns: Any) -> Self:
        """Kernels without known time under a power limit; all other columns are given."""
        nothing = np.zeros(len(columns["bound_s"]))
        return cls(**columns, power_s=nothing, start_s=nothing)

    def __len__(self) -> int:
        return len(self.bound_s)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """k kernels of one family on one device.

    Attributes:
        family: operation and number format, such as `gemm/bf16`.
        device: where they run.
        position: coordinates for comparing devices: the weight of one device for another is
            exp(-squared distance).
        rows: (k,) position of each kernel's query.
        engines: (k,) names of the inference engines.
        counts: (k,) executions of each.
        classes: (k,) positions in `OPERATOR_CLASSES`; -1 for kernels that are not operators.
        table: features, bounds and terms.
        log_values: (k,) log of measured seconds or shares; NaN where not measured.
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
        """The kernels at these positions, or selected by the mask."""
        columns = ("rows", "engines", "counts", "classes", "log_values")
        taken = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, table=self.table.take(rows), **taken)
