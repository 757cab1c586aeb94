"""Runs whose power is asked or was measured: the load of the GPU, and the time of the host."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.gpu_load import GpuLoad, gpu_load, saturating_load
from forerun.features.kernel_activity import EFFICIENCY
from forerun.models.domain import Sheet
from forerun.models.host_time import HostTime

Column = NDArray[np.float64]

KERNEL_HOST_S = 30e-6
"""What the host takes for one call in a loop: calls on tiny tensors take 28 to 45 microseconds
next to the A30 of torch_op_energy and 80 to 110 next to its RTX 2080 Ti."""
DIFFUSION_SHARES = (EFFICIENCY["product"], 0.3)
"""Arithmetic and memory of a diffusion model that draws a whole batch: large half-precision
products, whose traffic is taken as a third of what memory could move."""


@dataclass(frozen=True)
class PowerRuns:
    """n runs as the law of power sees them.

    Attributes:
        load: of the GPUs.
        host_s: (n,) time in which a host prepares one run, seconds.
        single: (n,) whether one operator runs in a loop, forward or with its backward pass.
        silicon: n keys; boards with one key hold the same chip.
    """

    load: GpuLoad
    host_s: Column
    single: NDArray[np.bool_]
    silicon: Sequence[Sheet]

    def __len__(self) -> int:
        return len(self.host_s)

    def take(self, rows: NDArray[np.bool_]) -> "PowerRuns":
        """The rows where the mask is True."""
        keys = [self.silicon[int(row)] for row in np.flatnonzero(rows)]
        return PowerRuns(self.load.take(rows), self.host_s[rows], self.single[rows], keys)

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "PowerRuns":
        """Operators, networks, and diffusion models that draw whole batches.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
            ValueError: a device has no design power.
        """
        drawing = np.array([isinstance(q.workload, Diffusion) for q in queries], dtype=np.bool_)
        rest = [q for q, draws in zip(queries, drawing, strict=True) if not draws]
        devices = [q.device for q in queries]
        if rest:
            load = gpu_load(rest)
            if drawing.any():
                drawn = [d for d, draws in zip(devices, drawing, strict=True) if draws]
                load = _merged(load, saturating_load(drawn, *DIFFUSION_SHARES), drawing)
        else:
            load = saturating_load(devices, *DIFFUSION_SHARES)
        single = np.array([_is_single(q) for q in queries], dtype=np.bool_)
        chips = {device: silicon(device) for device in set(devices)}
        return cls(load, _host_seconds(queries), single, [chips[device] for device in devices])


def _is_single(query: Query) -> bool:
    """An operator, or the forward and backward pass of one."""
    workload = query.workload
    if isinstance(workload, Network):
        return len(workload.graph) == 1
    return isinstance(workload, Kernel)


def silicon(device: Device) -> Sheet:
    """What boards with the same chip share: units, clock and peaks, but neither memory nor limit.

    Logarithms; 0 for a figure that is not known.
    """
    peaks = device.peak_tflops
    figures = (
        float(device.compute_units or 1),
        device.boost_clock_mhz or 1.0,
        peaks.get("fp32") or max(peaks.values()),
        peaks.get("fp16") or peaks.get("bf16") or 1.0,
    )
    return tuple(round(float(np.log(figure)), 6) for figure in figures)


def _host_seconds(queries: Sequence[Query]) -> Column:
    """By the prior of the law of dispatch (`HostTime`); a diffusion model does not wait for it."""
    seconds = np.zeros(len(queries))
    networks = [row for row, q in enumerate(queries) if isinstance(q.workload, Network)]
    if networks:
        seconds[networks] = HostTime().seconds([queries[row] for row in networks])[0]
    for row, query in enumerate(queries):
        if isinstance(query.workload, Kernel):
            seconds[row] = KERNEL_HOST_S
    return seconds


def _merged(first: GpuLoad, second: GpuLoad, is_second: NDArray[np.bool_]) -> GpuLoad:
    columns = {}
    for one in fields(GpuLoad):
        of_first = getattr(first, one.name)
        column = np.empty((len(is_second), *of_first.shape[1:]))
        column[~is_second] = of_first
        column[is_second] = getattr(second, one.name)
        columns[one.name] = column
    return GpuLoad(**columns)
