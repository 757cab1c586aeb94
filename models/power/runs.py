"""Inputs of the power law for n runs: the load of the GPU and the time of the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Names
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.power.gpu_load import GpuLoad, gpu_load, saturating_load
from forerun.features.power.kernel_activity import EFFICIENCY
from forerun.models.domain.feature_range import Sheet
from forerun.models.networks.host_time import HostTime

KERNEL_HOST_S = 30e-6
"""Host time of one call in a loop, seconds. In torch_op_energy, calls on tiny tensors take 28 to 45
microseconds on the host of the A30 and 80 to 110 on that of the RTX 2080 Ti."""
DIFFUSION_SHARES = (EFFICIENCY["product"], 0.3)
"""Shares of peak arithmetic and of peak bandwidth of a diffusion model that generates a batch:
large half-precision matrix products, whose memory traffic is assumed to be a third of the peak."""


_UNFITTED: Final = HostTime()


@dataclass(frozen=True)
class PowerRuns(Columns):
    """Inputs of the power law for n runs.

    Attributes:
        load: load of the GPUs.
        host_s: (n,) time that the host needs to launch one run, seconds.
        single: (n,) whether a single operator runs in a loop, forward or with its backward pass.
        silicon: n keys; boards with equal keys have the same chip.
    """

    load: GpuLoad
    host_s: Column
    single: Mask
    silicon: Sequence[Sheet]

    def __len__(self) -> int:
        return len(self.host_s)

    @property
    def chips(self) -> Names:
        """A label for the chip of each run, shape (n,)."""
        return np.array([str(key) for key in self.silicon], dtype=np.str_)

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "PowerRuns":
        """Inputs of operators, networks, and diffusion models that generate a batch.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
            ValueError: a device has no design power.
        """
        devices = [q.device for q in queries]
        load = _loads(queries)
        single = np.array([_is_single(q) for q in queries], dtype=np.bool_)
        chips = {device: silicon(device) for device in set(devices)}
        return cls(load, _host_seconds(queries), single, [chips[device] for device in devices])


def _loads(queries: Sequence[Query]) -> GpuLoad:
    """Load of the GPU in each of n runs."""
    diffusion = np.array([isinstance(q.workload, Diffusion) for q in queries], dtype=np.bool_)
    if queries and not diffusion.any():
        return gpu_load(queries)
    others = [query for query, is_one in zip(queries, diffusion, strict=True) if not is_one]
    loads = [gpu_load(others)] if others else []
    busy = [queries[row].device for row in np.flatnonzero(diffusion).tolist()]
    loads.append(saturating_load(busy, *DIFFUSION_SHARES))
    # The loads of diffusion models come last: `place` is where each run is among them.
    place = np.argsort(np.argsort(diffusion, kind="stable"))
    return GpuLoad.concatenate(loads).take(place)


def are_kernels(queries: Sequence[Query]) -> Mask:
    """Which of n queries are about single operators, shape (n,)."""
    return np.array([isinstance(q.workload, Kernel) for q in queries], dtype=np.bool_)


def _is_single(query: Query) -> bool:
    """Whether the workload is one operator, or the forward and backward pass of one."""
    workload = query.workload
    if isinstance(workload, Network):
        return len(workload.graph) == 1
    return isinstance(workload, Kernel)


def silicon(device: Device) -> Sheet:
    """Key of a chip: log of compute units, boost clock, fp32 peak and half-precision peak.

    Memory and power limit, in which boards with the same chip differ, are not part of it. A figure
    that is not known is 0.
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
    """Host time of n runs, seconds: that of networks by `HostTime` without fit, 0 for diffusion."""
    seconds = np.zeros(len(queries))
    networks = [row for row, q in enumerate(queries) if isinstance(q.workload, Network)]
    if networks:
        seconds[networks] = _UNFITTED.seconds([queries[row] for row in networks])[0]
    seconds[are_kernels(queries)] = KERNEL_HOST_S
    return seconds
