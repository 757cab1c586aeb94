"""A mixed-effects model of the average power of a GPU, with random effects per chip.

Power is the idle power of the board plus a dynamic part. The dynamic part grows with the
instruction issue rate of the compute units, with arithmetic as a share of its peak, and with memory
traffic. Idle units draw less, and memory-bound kernels issue fewer instructions. Where the host is
slower than the device, the dynamic part is drawn only for a share of the time. Total power cannot
exceed the design power, which the governor enforces by lowering the clock, nor fall below the idle
power, which the fit enforces by a one-sided residual.

Coefficients have normal priors (`TERMS`) and are maximum a posteriori estimates. The effects of a
chip are normal with the standard deviations of `EFFECTS`. A chip outside the training set has no
effects; the same chip on another board has the effects of that chip.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.power.gpu_load import (
    ACTIVITIES,
    EFFICIENCY,
    GpuLoad,
    gpu_load,
    saturating_load,
)
from forerun.models.domain.feature_range import Sheet, same_sheet
from forerun.models.networks.host_time import HostTime

KERNEL_HOST_S = 30e-6
"""Host time of one call in a loop, seconds. In torch_op_energy, calls on tiny tensors take 28 to 45
microseconds on the host of the A30 and 80 to 110 on that of the RTX 2080 Ti."""
DIFFUSION_SHARES = (EFFICIENCY["product"], 0.3)
"""Shares of peak arithmetic and of peak bandwidth when a diffusion model generates a batch: large
half-precision matrix products, whose memory traffic is assumed to be a third of the peak."""


_UNFITTED: Final = HostTime()


@dataclass(frozen=True)
class PowerRuns(Columns):
    """Inputs of the power model for n runs.

    Attributes:
        load: load of the GPUs.
        host_s: (n,) host time to launch one run, seconds.
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
        """Inputs for operators, networks, and diffusion models that generate a batch.

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
    # Loads of diffusion models come last; `place` gives each run's position in them.
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

    Memory and power limit are excluded, because boards with the same chip differ in them. Unknown
    figures are 0.
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
    """Host time of n runs, seconds: the unfitted `HostTime` for networks, 0 for diffusion."""
    seconds = np.zeros(len(queries))
    networks = [row for row, q in enumerate(queries) if isinstance(q.workload, Network)]
    if networks:
        seconds[networks] = _UNFITTED.seconds([queries[row] for row in networks])[0]
    seconds[are_kernels(queries)] = KERNEL_HOST_S
    return seconds


class _Term(NamedTuple):
    mean: float
    deviation: float


TERMS: Final[Mapping[str, _Term]] = {
    "waiting": _Term(float(np.log(50.0)), 0.6),
    "graphics_waiting": _Term(0.0, 0.3),
    "issue": _Term(float(np.log(50.0)), 0.5),
    "arithmetic": _Term(float(np.log(90.0)), 0.5),
    "byte": _Term(float(np.log(0.15)), 0.2),
    "network_time": _Term(0.0, 0.5),
    "operator_time": _Term(0.0, 0.5),
    "idle_units": _Term(-2.0, 0.5),
    **{name: _Term(0.0, 0.3) for name in ACTIVITIES[1:]},
}
"""Coefficient -> prior mean and standard deviation, in log space except for `idle_units`.

`waiting`: watts of an idle compute board with a design power of 250 W; `graphics_waiting`: factor
for graphics boards, whose GDDR memory keeps its clock; `issue` and `arithmetic`: watts per 1e11
units times cycles per second, for any kernel and for arithmetic at its peak; `byte`: nanojoules per
byte (150 pJ, `forerun.features.power.operator_features.BYTE_J`); `network_time` and
`operator_time`: device time of networks, and of operators in a loop, over the expected one;
`idle_units`: log odds of the share of issue power that idle units draw (0.12); the others: issue
power of a kernel class relative to dense matrix products. Priors are round figures, wide enough for
the training rows to move them; `waiting` is a fifth of the TDP, as in the boosters. The
prior of `idle_units` was chosen among five on matrix products of H200, B200 and GB200
(AIConfigurator), which are in neither a training set nor an evaluation."""

EFFECTS: Final[Mapping[str, float]] = {"waiting": 0.25, "dynamic": 0.2, "host": 0.4}
"""Random effect -> standard deviation between chips, in log space. The dynamic effect is at most
0.2 for six of the seven chips in the training set, and -0.43 for the RTX 2080 Ti."""

WAITING_POWER: Final = 0.5
"""Exponent of the TDP in the idle power: 33 W of 165 (A30), 33 to 37 W of 250 (P100,
V100). Chosen on these rows, between a constant (0) and a share (1)."""
REFERENCE_TDP_W: Final = 250.0
SHARPNESS: Final = 15.0
"""Exponent of the soft minimum of demand and design power: boards whose demand exceeds the limit
draw 99.5 % of it (A30)."""
OVERLAP: Final[Mapping[str, float]] = {"operator": 6.0, "network": 3.0}
"""Exponent of the norm that combines device and host time, which overlap. Estimated from times, not
power: latencies of operators in a loop are the longer of the two (exponents of 5 and more on A30
and RTX 2080 Ti); those of ShuffleNet steps, whose kernels differ in length, fit 2.8."""
MOST_WAITING: Final = 0.5
"""Largest idle power as a share of the TDP."""

SPREAD: Final[Mapping[str, float]] = {"network": 0.1, "operator": 0.15}
"""Standard deviation of residuals within a chip, in log space: larger for single operators."""
BELOW_WAITING: Final = 0.05
"""Standard deviation, in log space, of measurements below the idle power."""
EVIDENCE_ROWS: Final = 40.0
"""Maximum total weight of the rows of one chip and kind, whose residuals are correlated."""


@dataclass(frozen=True)
class SiliconEffect:
    """Random effects of a chip, in log space.

    Attributes:
        silicon: key of the chip, from `forerun.models.power.law.silicon`.
        waiting, dynamic, host: effects, as in `EFFECTS`; `host` acts on device time over host time.
    """

    silicon: Sheet
    waiting: float
    dynamic: float
    host: float


class Demand(NamedTuple):
    """Unlimited power of n runs.

    Attributes:
        waiting_w: (n,) idle power of the board, W.
        dynamic_w: (n,) dynamic power averaged over the run, W.
    """

    waiting_w: Column
    dynamic_w: Column

    def times(self, waiting: Column, dynamic: Column) -> "Demand":
        """The parts multiplied by (n,) factors."""
        return Demand(self.waiting_w * waiting, self.dynamic_w * dynamic)


@dataclass(frozen=True)
class PowerLaw:
    """The power model: coefficients are prior means before `fit`, estimates afterwards.

    Attributes:
        coefficients: values of `TERMS`, in their order.
        effects: random effects of the chips in the training set.
    """

    coefficients: tuple[float, ...] = field(
        default_factory=lambda: tuple(term.mean for term in TERMS.values())
    )
    effects: tuple[SiliconEffect, ...] = ()

    def fit(self, runs: PowerRuns, watts: Column) -> Self:
        """Maximum a posteriori estimates of coefficients and effects.

        Args:
            runs: n training runs; runs on one chip share its effects.
            watts: (n,) measured average power, W.
        """
        from scipy.optimize import least_squares

        keys, chip = _chips(runs.silicon)
        means, deviations = np.array(list(TERMS.values())).T
        between = np.array(list(EFFECTS.values()))
        scale = np.sqrt(_weights(runs, chip)) / np.where(
            runs.single, SPREAD["operator"], SPREAD["network"]
        )
        log_watts, terms = np.log(watts), len(TERMS)

        def residuals(point: Column) -> Column:
            offsets = point[terms:].reshape(len(keys), len(EFFECTS))
            demand = demand_w(point[:terms], runs, (offsets * between)[chip])
            errors = scale * (np.log(limited_w(runs, demand)) - log_watts)
            below = np.maximum(np.log(demand.waiting_w) - log_watts, 0.0) / BELOW_WAITING
            prior = (point[:terms] - means) / deviations
            return np.concatenate([prior, point[terms:], errors, below])

        start = np.concatenate([means, np.zeros(len(keys) * len(EFFECTS))])
        solution = least_squares(residuals, start, max_nfev=60).x
        offsets = solution[terms:].reshape(len(keys), len(EFFECTS)) * between
        effects = (
            SiliconEffect(key, *map(float, row)) for key, row in zip(keys, offsets, strict=True)
        )
        return type(self)(tuple(map(float, solution[:terms])), tuple(effects))

    def demand(self, runs: PowerRuns) -> Demand:
        """Unlimited power of n runs, with the effects of chips in the training set."""
        effects = {key: self._effect(key) for key in set(runs.silicon)}
        rows = [effects[key] for key in runs.silicon]
        none = (0.0, 0.0, 0.0)
        table = [none if e is None else (e.waiting, e.dynamic, e.host) for e in rows]
        offsets = np.array(table, dtype=np.float64).reshape(-1, len(EFFECTS))
        return demand_w(np.array(self.coefficients), runs, offsets)

    def _effect(self, silicon: Sheet) -> SiliconEffect | None:
        return next((e for e in self.effects if same_sheet(e.silicon, silicon)), None)


def demand_w(coefficients: Column, runs: PowerRuns, offsets: Matrix) -> Demand:
    """Unlimited power of n runs as a function of coefficients and effects.

    Args:
        coefficients: values of `TERMS`, in their order.
        runs: n runs.
        offsets: (n, 3) effects of their chips, in the order of `EFFECTS`.
    """
    waiting, graphics, issue, arithmetic, byte, network_time, operator_time, idle = coefficients[:8]
    load = runs.load
    by_law = np.exp(waiting + graphics * load.graphics + offsets[:, 0])
    by_law = by_law * (load.tdp_w / REFERENCE_TDP_W) ** WAITING_POWER
    sheet = np.where(np.isnan(load.idle_w), by_law, load.idle_w)
    slower = np.where(runs.single, operator_time, network_time) + offsets[:, 2]
    host_over_device = runs.host_s / (load.device_s * np.exp(slower))
    overlap = np.where(runs.single, OVERLAP["operator"], OVERLAP["network"])
    busy = (1.0 + host_over_device**overlap) ** (-1.0 / overlap)
    idle_share = 1.0 / (1.0 + np.exp(-idle))
    issued = idle_share * load.occupied + (1.0 - idle_share) * load.filled
    issuing = issued @ np.exp(np.concatenate([[0.0], coefficients[8:]]))
    switching = load.issue_rate * (np.exp(issue) * issuing + np.exp(arithmetic) * load.arithmetic)
    moving = np.exp(byte) * load.bandwidth_gbs * load.memory
    return Demand(
        np.minimum(sheet, MOST_WAITING * load.tdp_w),
        busy * np.exp(offsets[:, 1]) * (switching + moving),
    )


def limited_w(runs: PowerRuns, demand: Demand) -> Column:
    """Power under the board's limit, W, (n,): increases with demand, stays below the limit."""
    room = runs.load.tdp_w - demand.waiting_w
    ratio = np.maximum(demand.dynamic_w, 1e-9) / room
    # x (1 + x^s)^(-1/s) for x = demand / room, written to avoid overflow.
    small = np.minimum(ratio, 1.0 / ratio)
    held: Column = np.minimum(ratio, 1.0) * (1.0 + small**SHARPNESS) ** (-1.0 / SHARPNESS)
    return demand.waiting_w + room * held


def unlimited_w(runs: PowerRuns, demand: Demand, watts: Column) -> Column:
    """Dynamic demand that explains a measured power, W, (n,): the inverse of `limited_w`.

    A measurement at the limit only bounds the demand from below; the predicted demand is returned
    if it exceeds that bound.

    Args:
        runs: n runs.
        demand: their predicted demand.
        watts: (n,) measured power, W.
    """
    room = runs.load.tdp_w - demand.waiting_w
    share = np.clip((watts - demand.waiting_w) / room, 1e-3, None)
    at_limit = 2.0 ** (-1.0 / SHARPNESS)
    free = np.minimum(share, at_limit)
    wanted = room * free * (1.0 - free**SHARPNESS) ** (-1.0 / SHARPNESS)
    at_least: Column = np.maximum(demand.dynamic_w, wanted)
    return np.asarray(np.where(share >= at_limit, at_least, wanted), dtype=np.float64)


def _chips(silicon: Sequence[Sheet]) -> tuple[list[Sheet], Positions]:
    """Distinct chips, and the index of each row's chip among them."""
    keys = sorted(set(silicon))
    index = {key: number for number, key in enumerate(keys)}
    return keys, np.array([index[key] for key in silicon], dtype=np.intp)


def _weights(runs: PowerRuns, chip: Positions) -> Column:
    """Weight of each row; rows of one chip and kind add up to at most `EVIDENCE_ROWS`."""
    cell = 2 * chip + runs.single
    count = np.bincount(cell)[cell]
    weights: Column = np.minimum(1.0, EVIDENCE_ROWS / count)
    return weights
