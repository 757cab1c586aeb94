"""Training jobs on a GPU at a power limit: a job's own figures, a device's, and the law of both.

A job of batch size b needs A / b an epoch for launches and host and B for arithmetic; the two hide
behind each other, so that an epoch takes ((A / b)^q + B^q)^(1/q). The busy part, B over that, says
how much power the job wants above the device's static share; a limit that leaves less lowers the
clock, which stretches B (`power_physics`). Everything stands in logarithms, so that a device
differs from others by offsets with a normal prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.power.limit_physics import clock, stretched

Column = NDArray[np.float64]
SUITE: Final = "zeus_powercap"

LAW: Final = ("static", "linear", "sharpness", "fixed")
"""Of all devices: log of the static share of the design power; log odds of the part of dynamic
power that goes with the clock alone; log exponent of the soft minimum; log odds of the part of
dynamic power, of memory above all, that no lower clock saves."""
LAW_PRIOR: Final = ((-1.8, 0.3), (0.0, 1.0), (0.9, 0.4), (-1.0, 0.7))

JOB: Final = (
    *("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power", "overlap"),
)
"""Of a job on any device: log A and log B, in seconds; log of its dynamic power when busy, and the
exponents of that with the busy part and with the batch (last but one); log of the part of B that
waits for the clock; log of the exponent q."""
JOB_PRIOR: Final = (
    *((0.0, 5.0), (0.0, 5.0), (-0.2, 0.6), (1.0, 0.4), (-0.5, 0.4), (0.0, 0.1), (0.7, 0.4)),
)

DEVICE: Final = (
    *("static", "headroom", "launch", "arithmetic", "dynamic", "compute", "linear", "sharpness"),
    "fixed",
)
DEVICE_SPREAD: Final = (0.6, 0.03, 0.5, 0.5, 0.3, 0.4, 0.7, 0.3, 0.5)
"""Of a device's offsets, in the order of `DEVICE`."""
DEVICE_JOB: Final = ("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power")
DEVICE_JOB_SPREAD: Final = (0.3, 0.2, 0.15, 0.15, 0.2, 0.03)
"""Of a device's offsets for one job, in the order of `DEVICE_JOB`."""
SAME_NETWORK: Final = 0.8
"""Correlation of a device's offsets for two jobs that train one network."""

DYNAMIC_UNIT: Final = 0.6
"""Of the design power: what a dynamic part of 1 means."""
SOFT_FLOOR: Final = 0.03
"""Of the design power: width over which a limit at the static share turns into the least clock."""


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
        columns = (self.log_batch, self.limit_w, self.tdp_w, self.log_speed)
        return JobRows(self.job[rows], *(column[rows] for column in columns))


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
    return len(DEVICE) + len(DEVICE_JOB) * jobs


def answers(pooled: Column, offsets: Column, rows: JobRows) -> tuple[Column, Column]:
    """Logarithms of watts and of seconds an epoch, shapes (n,).

    Args:
        pooled: parameters of the law and of each job.
        offsets: of one device.
        rows: n runs of known jobs on it.
    """
    law = pooled[: len(LAW)]
    job = pooled[len(LAW) :].reshape(-1, len(JOB))[rows.job].T
    own = offsets[: len(DEVICE)]
    mine = offsets[len(DEVICE) :].reshape(-1, len(DEVICE_JOB))[rows.job].T
    overlap = np.exp(job[6])
    launch = job[0] + own[2] + mine[0] - rows.log_batch
    arithmetic = job[1] - rows.log_speed + own[3] + mine[1]
    busy = arithmetic - _joined(launch, arithmetic, overlap)
    dynamic = job[2] + own[4] + mine[2] + (job[3] + mine[3]) * busy
    dynamic = DYNAMIC_UNIT * rows.tdp_w * np.exp(dynamic + (job[5] + mine[5]) * rows.log_batch)
    fixed = _share(law[3] + own[8])
    saved = (1.0 - fixed) * dynamic
    static = rows.tdp_w * np.exp(law[0] + own[0]) + fixed * dynamic
    left = 0.5 * (np.exp(own[1]) * rows.limit_w - static)
    left = left + np.hypot(left, SOFT_FLOOR * rows.tdp_w)
    sharp = np.exp(law[2] + own[7])
    drawn = (left**-sharp + saved**-sharp) ** (-1.0 / sharp)
    clocks = clock(drawn / saved, _share(law[1] + own[6]))
    slowed = np.log(stretched(clocks, np.exp(job[4] + own[5] + mine[4])))
    return np.log(static + drawn), _joined(launch, arithmetic + slowed, overlap)


def _joined(launch: Column, arithmetic: Column, overlap: Column) -> Column:
    """Logarithm of the time of two parts that hide behind each other, shape (n,)."""
    joined: Column = np.logaddexp(overlap * launch, overlap * arithmetic) / overlap
    return joined


def _share(log_odds: float) -> float:
    return float(1.0 / (1.0 + np.exp(-log_odds)))
