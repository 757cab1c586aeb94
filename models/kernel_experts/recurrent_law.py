"""Analytical model of recurrent layers, whose steps depend on each other.

    seconds = steps x (start / bandwidth + (sqrt(weights read) + sqrt(arithmetic))^2)
            + arithmetic and traffic that do not wait, such as the input product

Each step launches kernels that wait for the previous ones, reads the recurrent weights and
multiplies them with the state of all samples. Libraries overlap traffic and arithmetic of such
small products poorly: the norm of order 1/2 describes the measured times better than the sum or the
maximum. The start shortened with every generation of GPUs and libraries about as fast as bandwidth
grew.
"""

from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import NumberFormat
from forerun.features.chips import chip_of
from forerun.features.operators.kinds import KIND_CODE
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import ELEMENT_BYTES
from forerun.features.operators.table import OperatorTable
from forerun.models.limit import LATENCY, Limit

RECURRENT = KIND_CODE["recurrent"]
PRODUCT_OVER_PEAK = 1.5
"""Time of the input product relative to that at peak."""
MUCH_OF_THE_TIME = 0.2
"""Share of a network's time from which recurrent layers add a limit to its answer."""


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Coefficients of the time of one step, the same for all GPUs.

    Attributes:
        start_bytes: bytes that the device could read from memory while a step starts.
        traffic: time to read the weights relative to full bandwidth.
        arithmetic: time of arithmetic relative to peak.
    """

    start_bytes: float
    traffic: float
    arithmetic: float

    def seconds(self, layers: OperatorTable, device: Device, precision: NumberFormat) -> Column:
        """Seconds of one execution of each of n recurrent layers or their gradients, shape (n,).

        Raises:
            UnknownPrecision: the spec sheet has no peak for the precision.
        """
        chip, element = chip_of(device, precision), ELEMENT_BYTES[precision]
        product = 2.0 * layers.m * layers.n * layers.k
        others = np.maximum(layers.flops - layers.steps * product, 0.0)
        moved = layers.in_elements + layers.out_elements + layers.parameter_elements
        read = layers.n * layers.k * element / chip.bandwidth
        step = np.sqrt(self.traffic * read) + np.sqrt(self.arithmetic * (product / chip.matrix))
        rest = np.maximum(
            PRODUCT_OVER_PEAK * others / chip.matrix, moved * element / chip.bandwidth
        )
        return np.asarray(layers.steps * (self.start_bytes / chip.bandwidth + step**2) + rest)


LAW = StepLaw(start_bytes=2.64e7, traffic=0.74, arithmetic=0.67)
"""Fitted to forward passes: 684 layers of DeepBench on eight GPUs from 2015 to 2017 (CUDA 7.5 to
10) and, within networks recorded as CUDA graphs, 22 on an H100 and an H200 (`torch_gpu`)."""
HELD_OUT_REACH = 0.75
"""Absolute log error that covers nine in ten layers on held-out GPUs, with equal weight per GPU;
the median error is 23 %."""


def recurrent_limits(share: float, query: Query) -> tuple[Limit, ...]:
    """A limit where recurrent layers take much of the time.

    Args:
        share: their share of the time.
        query: the queried network or layer.
    """
    if share < MUCH_OF_THE_TIME:
        return ()
    table = query_table(query.run)
    steps = float(table.steps @ table.repeat)
    line = (
        f"recurrent layers take {share:.0%} of the time, {steps:,.0f} sequential steps, by a "
        "formula fitted to layers on several GPUs"
    )
    return (Limit(line, LATENCY, "transfer"),)
