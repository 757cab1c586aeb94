"""Kernels of one family on one device, as arrays: features, bounds and terms of their times."""

from dataclasses import dataclass

from forerun.data.columns import Column, Columns, Matrix

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
    """

    features: Matrix
    bound_s: Column
    serial_s: Matrix
    parallel_s: Matrix
    launch: Column
    least_s: Column
    site: Column

    def __len__(self) -> int:
        return len(self.bound_s)
