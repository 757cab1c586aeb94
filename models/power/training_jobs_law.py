"""Law of power and time of training jobs on a GPU under a power limit.

An epoch with batch size b takes A / b for launches and the host and B for arithmetic. The two
overlap, so that the epoch takes ((A / b)^q + B^q)^(1/q). The busy share, B over that time,
determines how much dynamic power the job demands above the static power of the device; a limit that
allows less lowers the clock, which lengthens B (`limit_physics`). All parameters are in log space
(shares in log odds), so that a device differs from others by additive offsets with a normal prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns, Positions
from forerun.data.query import Query
from forerun.models.power.limit_response import clock, stretched

SUITE: Final = "zeus_powercap"

LAW: Final = ("static", "linear", "sharpness", "fixed")
"""Parameters common to all devices: log of static power over design power; log odds of the share of
dynamic power that is proportional to the clock; log exponent of the soft minimum; log odds of the
share of dynamic power, mostly of memory, that does not depend on the clock."""
LAW_PRIOR: Final = ((-1.8, 0.3), (0.0, 1.0), (0.9, 0.4), (-1.0, 0.7))

JOB: Final = (
    *("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power", "overlap"),
)
"""Parameters of a job on any device: log A and log B, in seconds; log of its dynamic power when
busy; the exponent of dynamic power in the busy share; log of the share of B that scales with
1/clock; the exponent of dynamic power in the batch size; log of the exponent q."""
JOB_PRIOR: Final = (
    *((0.0, 5.0), (0.0, 5.0), (-0.2, 0.6), (1.0, 0.4), (-0.5, 0.4), (0.0, 0.1), (0.7, 0.4)),
)

DEVICE: Final = (
    *("static", "headroom", "launch", "arithmetic", "dynamic", "compute", "linear", "sharpness"),
    "fixed",
)
DEVICE_SPREAD: Final = (0.6, 0.03, 0.5, 0.5, 0.3, 0.4, 0.7, 0.3, 0.5)
"""Prior standard deviations of a device's offsets, in the order of `DEVICE`."""
DEVICE_JOB: Final = ("launch", "arithmetic", "dynamic", "busy_power", "compute", "batch_power")
DEVICE_JOB_SPREAD: Final = (0.3, 0.2, 0.15, 0.15, 0.2, 0.03)
"""Prior standard deviations of a device's offsets for one job, in the order of `DEVICE_JOB`."""
SAME_NETWORK: Final = 0.8
"""Prior correlation of a device's offsets for two jobs that train the same network."""

DYNAMIC_UNIT: Final = 0.6
"""Unit of the dynamic power of a job, as a share of the design power."""
SOFT_FLOOR: Final = 0.03
"""Width of the soft maximum of limit minus static power and 0, as a share of the design power."""


@dataclass(frozen=True)
class JobRows(Columns):
    """Inputs of the law for n runs of jobs.

    Attributes:
        job: (n,) index into the list of jobs, or -1 for a job that is not in it.
        log_batch: (n,) log of batch size over the middle batch size of the job.
        limit_w, tdp_w: (n,) power limit and design power of the device, W.
        log_speed: (n,) as `log_speed` computes it from the device's spec sheet.
    """

    job: Positions
    log_batch: Column
    limit_w: Column
    tdp_w: Column
    log_speed: Column

    @classmethod
    def of(cls, queries: Sequence[Query], jobs: Sequence[str], middles: Column) -> "JobRows":
        """Rows of these queries; a power limit that is not given is the design power.

        Args:
            queries: n jobs of the suite on devices with a spec sheet and a design power.
            jobs: names of the jobs.
            middles: (jobs,) log of the middle batch size of each job.
        """
        index = {name: number for number, name in enumerate(jobs)}
        job = np.array([index.get(job_of(query), -1) for query in queries], dtype=np.intp)
        batch = np.array([np.log(batch_of(query)) for query in queries])
        tdp = np.array([query.device.tdp_w or np.nan for query in queries])
        given = [query.operation.power_limit_w for query in queries]
        limit = np.array([np.inf if value is None else value for value in given])
        speed = np.array([log_speed(query) for query in queries])
        return cls(job, batch - middles[job], np.minimum(limit, tdp), tdp, speed)


def job_of(query: Query) -> str:
    """Name of the job of a query: `DATASET/NETWORK`."""
    settings = query.benchmark.by_name
    return f"{settings['dataset']}/{settings['network']}"


def batch_of(query: Query) -> float:
    """Batch size of a query, 1 where it is not given."""
    given = query.benchmark.by_name.get("batch_size", 1.0)
    return max(float(given), 1e-9)


def log_speed(query: Query) -> float:
    """Log of the geometric mean of fp32 peak (TFLOP/s) and bandwidth (units of 100 GB/s)."""
    device = query.device
    peak = device.peak_tflops.get("fp32") or max(device.peak_tflops.values())
    return 0.5 * float(np.log(peak * device.bandwidth_gbs / 100.0))


def pooled_size(jobs: int) -> int:
    """Number of parameters of the law and of all jobs together."""
    return len(LAW) + len(JOB) * jobs


def device_size(jobs: int) -> int:
    """Number of offsets of one device."""
    return len(DEVICE) + len(DEVICE_JOB) * jobs


def answers(pooled: Column, offsets: Column, rows: JobRows) -> tuple[Column, Column]:
    """Logarithms of watts and of seconds an epoch, shapes (n,).

    Args:
        pooled: (`pooled_size`,) parameters of the law and of each job.
        offsets: (`device_size`,) offsets of one device.
        rows: n runs of known jobs on that device.
    """
    law = pooled[: len(LAW)]
    job = pooled[len(LAW) :].reshape(-1, len(JOB))[rows.job].T
    own = offsets[: len(DEVICE)]
    both = offsets[len(DEVICE) :].reshape(-1, len(DEVICE_JOB))[rows.job].T
    overlap = np.exp(job[6])
    launch = job[0] + own[2] + both[0] - rows.log_batch
    arithmetic = job[1] - rows.log_speed + own[3] + both[1]
    busy = arithmetic - _joined(launch, arithmetic, overlap)
    dynamic = job[2] + own[4] + both[2] + (job[3] + both[3]) * busy
    dynamic = DYNAMIC_UNIT * rows.tdp_w * np.exp(dynamic + (job[5] + both[5]) * rows.log_batch)
    fixed = _share(law[3] + own[8])
    saved = (1.0 - fixed) * dynamic
    static = rows.tdp_w * np.exp(law[0] + own[0]) + fixed * dynamic
    left = 0.5 * (np.exp(own[1]) * rows.limit_w - static)
    left = left + np.hypot(left, SOFT_FLOOR * rows.tdp_w)
    sharp = np.exp(law[2] + own[7])
    drawn = (left**-sharp + saved**-sharp) ** (-1.0 / sharp)
    clocks = clock(drawn / saved, _share(law[1] + own[6]))
    slowed = np.log(stretched(clocks, np.exp(job[4] + own[5] + both[4])))
    return np.log(static + drawn), _joined(launch, arithmetic + slowed, overlap)


def _joined(launch: Column, arithmetic: Column, overlap: Column) -> Column:
    """Log of the time of two overlapping parts: their norm of order `overlap`, shape (n,)."""
    joined: Column = np.logaddexp(overlap * launch, overlap * arithmetic) / overlap
    return joined


def _share(log_odds: float) -> float:
    return float(1.0 / (1.0 + np.exp(-log_odds)))
