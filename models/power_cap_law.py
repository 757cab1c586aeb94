"""Training jobs on a GPU at a power limit: a job's own figures, a device's, and the law of both.

A job of batch size b takes A / b + B an epoch at full clock: launches and host, then arithmetic.
The busy part B / (A / b + B) says how much power it wants above the device's static share and how
much of its time waits for the clock (`power_physics`). Everything stands in logarithms, so that a
device differs from others by offsets with a normal prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.power_physics import clock, stretched

Column = NDArray[np.float64]
SUITE: Final = "zeus_powercap"

LAW: Final = ("static", "linear", "sharpness")
"""Of all devices: log share of the design power, log odds, log exponent of the soft minimum."""
LAW_PRIOR: Final = ((float(np.log(0.2)), 0.3), (-0.5, 1.0), (float(np.log(5.0)), 0.4))

JOB: Final = ("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power")
"""Of a job on any device: log A and log B, in seconds; log of the dynamic power when busy and its
exponents with the busy part and with the batch; log of the part that waits for the clock."""
JOB_PRIOR: Final = ((0.0, 5.0), (0.0, 5.0), (-0.4, 0.6), (1.0, 0.4), (-0.7, 0.4), (0.0, 0.1))

DEVICE_SPREAD: Final = (0.5, 0.03, 0.5, 0.5, 0.3, 0.4)
"""Of a device's offsets: static share, headroom, launch, arithmetic, dynamic, compute."""
DEVICE_JOB_SPREAD: Final = (0.4, 0.3, 0.25, 0.3, 0.3)
"""Of a device's offsets for one job: launch, arithmetic, dynamic, busy power, compute."""

HEADROOM: Final = 0.98
DYNAMIC_UNIT: Final = 0.6
"""Of the design power: what a dynamic part of 1 means."""


@dataclass(frozen=True)
class JobRows:
    """n runs of jobs as numbers.

    Attributes:
        job: place of each in the list of jobs, or -1 for one that is not there.
        log_batch: batch size over the middle one of its job, in logarithms.
        limit_w, tdp_w: of the device.
        log_speed: of its sheet: geometric mean of arithmetic and bandwidth.
    """

    job: NDArray[np.intp]
    log_batch: Column
    limit_w: Column
    tdp_w: Column
    log_speed: Column

    @classmethod
    def of(cls, queries: Sequence[Query], jobs: Sequence[str], middles: Column) -> "JobRows":
        """Rows of these questions; a limit that is not given is the design power.

        Args:
            queries: n tests of the suite on devices with a sheet and a design power.
            jobs: names.
            middles: logarithm of the middle batch size of each job.
        """
        place = {name: number for number, name in enumerate(jobs)}
        job = np.array([place.get(job_of(query), -1) for query in queries], dtype=np.intp)
        batch = np.array([np.log(batch_of(query)) for query in queries])
        tdp = np.array([query.device.tdp_w or np.nan for query in queries])
        given = [query.operation.power_limit_w for query in queries]
        limit = np.array([np.inf if one is None else one for one in given])
        speed = np.array([log_speed(query) for query in queries])
        return cls(job, batch - middles[job], np.minimum(limit, tdp), tdp, speed)

    def take(self, rows: NDArray[np.bool_]) -> "JobRows":
        """The rows where the mask is True."""
        parts = (self.job, self.log_batch, self.limit_w, self.tdp_w, self.log_speed)
        return JobRows(*(part[rows] for part in parts))


def job_of(query: Query) -> str:
    """Data set and network of a test."""
    settings = _settings(query)
    return f"{settings['dataset']}/{settings['network']}"


def batch_of(query: Query) -> float:
    """Batch size of a test, 1 where it is not given."""
    given = _settings(query).get("batch_size", 1.0)
    return max(float(given), 1e-9)


def log_speed(query: Query) -> float:
    """Logarithm of the geometric mean of arithmetic, TFLOP/s, and bandwidth, 100 GB/s."""
    device = query.device
    peak = device.peak_tflops.get("fp32") or max(device.peak_tflops.values())
    return 0.5 * float(np.log(peak * device.bandwidth_gbs / 100.0))


def _settings(query: Query) -> dict[str, float | str]:
    assert isinstance(query.workload, Benchmark)
    return dict(query.workload.settings)


def pooled_size(jobs: int) -> int:
    """How many parameters the law and its jobs have."""
    return len(LAW) + len(JOB) * jobs


def device_size(jobs: int) -> int:
    """How many offsets a device has."""
    return len(DEVICE_SPREAD) + len(DEVICE_JOB_SPREAD) * jobs


def answers(pooled: Column, offsets: Column, rows: JobRows) -> tuple[Column, Column]:
    """Logarithms of watts and of seconds an epoch, shapes (n,).

    Args:
        pooled: parameters of the law and of each job.
        offsets: of one device.
        rows: n runs of known jobs on it.
    """
    law = pooled[: len(LAW)]
    job = pooled[len(LAW) :].reshape(-1, len(JOB))[rows.job].T
    own = offsets[: len(DEVICE_SPREAD)]
    mine = offsets[len(DEVICE_SPREAD) :].reshape(-1, len(DEVICE_JOB_SPREAD))[rows.job].T
    launch = np.exp(job[0] + own[2] + mine[0] - rows.log_batch)
    arithmetic = np.exp(job[1] - rows.log_speed + own[3] + mine[1])
    busy = arithmetic / (launch + arithmetic)
    static = rows.tdp_w * np.exp(law[0] + own[0])
    exponent = (job[3] + mine[3]) * np.log(busy) + job[5] * rows.log_batch
    dynamic = DYNAMIC_UNIT * rows.tdp_w * np.exp(job[2] + own[4] + mine[2] + exponent)
    wanted, sharp = static + dynamic, np.exp(law[2])
    headroom = HEADROOM * np.exp(own[1])
    power = ((headroom * rows.limit_w) ** -sharp + wanted**-sharp) ** (-1.0 / sharp)
    clocks = clock((power - static) / dynamic, 1.0 / (1.0 + np.exp(-law[1])))
    compute = busy * np.exp(job[4] + own[5] + mine[4])
    return np.log(power), np.log((launch + arithmetic) * stretched(clocks, compute))
