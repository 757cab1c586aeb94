"""Arrays of kernels of one family on one device, and the device figures that they depend on."""

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
        l2_bytes: size of the L2 cache, bytes.
        flops: dense bf16 peak of the matrix units, FLOP/s.
    """

    bandwidth: float
    units: float
    clock_hz: float
    l2_bytes: float
    flops: float

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, device: Device) -> "Chip":
        """Figures of the spec sheet, with assumptions for missing clocks, compute units and L2.

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
        """Rate at which all compute units together read the L2 cache, bytes/s."""
        return _L2_BYTES_PER_CYCLE_AND_UNIT * self.units * self.clock_hz

    @property
    def position(self) -> Column:
        """Log ratios by which devices are compared, shape (4,).

        They are bytes per FLOP, FLOPs and bytes per compute unit and cycle, and L2 cache per
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

        The data comes from the L2 cache if the working set fits in half of it, and from memory if
        the working set exceeds it; in between, from both.

        Args:
            moved_bytes: (n,) data that a kernel moves.
            resident_bytes: (n,) working set: data used before the same is used again.
        """
        cached = np.clip(2.0 - resident_bytes / self.l2_bytes, 0.0, 1.0)
        rate = np.maximum(self.l2_bandwidth, self.bandwidth)
        return np.asarray(moved_bytes * ((1.0 - cached) / self.bandwidth + cached / rate))


LAUNCH_CLOCK_HZ = 1.9e9
"""Clock at which `launch` is 1."""


@dataclass(frozen=True, slots=True)
class KernelTable(Columns):
    """n kernels of one family on one device.

    Attributes:
        features: (n, features) dimensionless features.
        bound_s: (n,) roofline bound, seconds.
        serial_s: (n, serial terms) time terms that add up, seconds at spec-sheet rates.
        parallel_s: (n, parallel terms) time terms that overlap, such as arithmetic and memory
            traffic, seconds at spec-sheet rates.
        launch: (n,) launch time, relative to that at a clock of 1.9 GHz.
        least_s: (n,) lower bound on the time, seconds.
        site: (n,) keys; rows with equal keys differ only in the number of tokens.
        power_s: (n,) shortest time that the power limit allows, seconds; 0 if unknown. A kernel
            that is inefficient at full clock draws less power, so the two effects do not multiply:
            the longer time holds.
        start_s: (n,) time in which a kernel starts and ends, independent of its efficiency,
            seconds; 0 if it is part of `launch`.
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
        """Kernels without `power_s` and `start_s`; all other columns must be given."""
        zeros = np.zeros(len(columns["bound_s"]))
        return cls(**columns, power_s=zeros, start_s=zeros)

    def __len__(self) -> int:
        return len(self.bound_s)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """k kernels of one family on one device.

    Attributes:
        family: operation and number format, such as `gemm/bf16`.
        device: the device.
        position: coordinates by which devices are compared: the weight of one device for another
            is exp(-squared distance).
        rows: (k,) indices of the queries that the kernels belong to.
        engines: (k,) names of the inference engines.
        counts: (k,) how often each kernel runs.
        classes: (k,) indices in `OPERATOR_CLASSES`; -1 for kernels that are not operators.
        table: features, bounds and time terms.
        log_values: (k,) logarithms of measured seconds or shares; NaN if not measured.
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
