"""Time of recurrent layers, whose steps wait for each other.

    seconds = steps x (start / bandwidth + (sqrt(weights read) + sqrt(arithmetic))^2)
            + arithmetic and traffic of what does not wait, such as the product of the input

A step starts kernels that wait for the last ones, reads the weights of the state and multiplies
them with the state of all samples. Libraries overlap traffic and arithmetic of so small products
badly: the norm of order 1/2 describes the measured times better than their sum or their maximum.
The start became shorter with every generation of GPUs and libraries, about as fast as bandwidth
became larger.
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
"""Time of the product of the input over that at peak."""
MUCH_OF_THE_TIME = 0.2
"""Share of the time of a network from which the law is a limit of its answer."""


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Coefficients of the time of one step, equal for all GPUs.

    Attributes:
        start_bytes: bytes that the device reads from memory in the time in which a step starts.
        traffic: time of reading the weights over that at full bandwidth.
        arithmetic: time of arithmetic over that at peak.
    """

    start_bytes: float
    traffic: float
    arithmetic: float

    def seconds(self, layers: OperatorTable, device: Device, precision: NumberFormat) -> Column:
        """Seconds of one run of each of n recurrent layers, or of their gradients, shape (n,).

        Raises:
            UnknownPrecision: the device's sheet has no peak for the precision.
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
"""Fit to forward passes of layers: 684 of DeepBench on eight GPUs of 2015 to 2017 (CUDA 7.5 to 10)
and, within networks recorded as CUDA graphs, 22 on an H100 and an H200 (`torch_gpu`)."""
HELD_OUT_REACH = 0.75
"""Absolute log error below which nine of ten layers lie on a GPU that was left out of the fit, with
equal weight for every GPU; the median error is 23 %."""


def recurrent_limits(share: float, query: Query) -> tuple[Limit, ...]:
    """What an answer says where recurrent layers take much of the time.

    Args:
        share: their share of the time.
        query: the network or layer that was asked about.
    """
    if share < MUCH_OF_THE_TIME:
        return ()
    table = query_table(query.run)
    steps = float(table.steps @ table.repeat)
    line = (
        f"recurrent layers take {share:.0%} of the time, {steps:,.0f} steps that wait for each "
        "other, by a formula that was fitted to layers of several GPUs"
    )
    return (Limit(line, LATENCY, "transfer"),)
