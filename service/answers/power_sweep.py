"""Time, power and energy of one workload on one device at several power limits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.answers.assumed import not_known, set_up_limits
from forerun.models.answers.drawn_power import within_drawn
from forerun.models.answers.evidence import distinct
from forerun.models.answers.interval_level import at_level, level_notes
from forerun.models.answers.served_models import InUse
from forerun.models.answers.wording import in_words
from forerun.models.limit import LATENCY, POWER
from forerun.models.power.limit_response import ENERGY
from forerun.models.power.limit_sweep import LimitedRun, power_sweep
from forerun.models.prediction import Estimate
from forerun.models.router import Router
from forerun.service.answers.answer import predictor_out
from forerun.service.schemas.answers import (
    NO_IDLE,
    NO_PEAK,
    AdviceOut,
    DeviceOut,
    IntervalOut,
    LimitedOut,
    LimitOut,
    SweepOut,
    per_sample,
    samples_of,
)

LEAST_SHARE, STEPS = 0.4, 13
"""The default sweep: this many limits, from this share of the design power to all of it."""

SLOW_DOWN = 0.1
"""Default for the slowdown that the advised limit may cost, as a share of the fastest time."""


def default_limits(device: Device) -> list[float]:
    """`STEPS` power limits, W, in whole watts where rounding keeps them distinct.

    Raises:
        InputError: the spec sheet gives no design power.
    """
    if device.tdp_w is None:
        raise InputError(f"The sheet of {device.name} gives no tdp_w; say which limits_w to sweep.")
    shares = np.linspace(LEAST_SHARE, 1.0, STEPS)
    limits = [float(share * device.tdp_w) for share in shares]
    return [float(round(w)) for w in limits] if device.tdp_w >= 10 * STEPS else limits


def swept(
    query: Query, limits_w: Sequence[float] | None, slow_down: float, in_use: InUse
) -> SweepOut:
    """Predict one workload at several power limits and advise which limit to set.

    Args:
        query: the workload and the device; its own power limit is replaced.
        limits_w: power limits of one device, W; `default_limits` when None.
        slow_down: slowdown that the advised limit may cost, as a share of the fastest time.
        in_use: the predictor in use.

    Raises:
        InputError: a limit is not valid, or no limits are given and the sheet has no design power.
        UnanswerableQuery: the time or the power cannot be predicted.
    """
    predictor = in_use.loaded.predictor
    if isinstance(predictor, Router):
        predictor = predictor.only(("latency_ms", "power_w", "energy_j"))
        query = predictor.seen(query)
    hidden = not_known(query)
    if hidden:
        raise UnanswerableQuery(f"{next(iter(hidden.values())).capitalize()}.")
    given = default_limits(query.device) if limits_w is None else limits_w
    with np.errstate(all="ignore"):
        sweep = power_sweep(predictor, query, given)
    _check_finite(sweep.runs)
    samples = samples_of(query)
    by_user = POWER in in_use.measured.get(query.device, {})
    runs = [_within(run, query, measured=by_user) for run in sweep.runs]
    limits = distinct(in_words(limit) for run in sweep.runs for limit in run.limits)
    limits = [own for own in (*limits, *set_up_limits(query)) if own.concerns("energy_j")]
    limits += level_notes((LATENCY, POWER), query)
    return SweepOut(
        device=DeviceOut(name=query.device.name, origin=query.device.origin),
        tdp_w=query.device.tdp_w,
        idle_w=query.device.idle_w,
        peak_power_w=None,
        missing={"peak_power_w": NO_PEAK}
        | ({} if query.device.idle_w is not None else {"idle_w": NO_IDLE}),
        samples=samples,
        runs=[_run(run, samples) for run in runs],
        least_energy=AdviceOut.filled(sweep.least_energy),
        slow_down=slow_down,
        within_slow_down=AdviceOut.filled(sweep.within(slow_down)),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        level=query.level,
        graph=query.workload.graph.digest if isinstance(query.workload, Network) else None,
        predictor=predictor_out(in_use, in_use.rows.get(query.device, 0)),
        picture=None,
    )


def _within(run: LimitedRun, query: Query, *, measured: bool) -> LimitedRun:
    """A run with no power above what the device draws under its limit."""
    limited = replace(query, operation=replace(query.operation, power_limit_w=run.limit_w))
    found = {POWER: run.power_w, ENERGY: run.energy_j, LATENCY: run.latency_ms}
    own = within_drawn(at_level(found, query), limited, measured=measured)
    return replace(run, power_w=own[POWER], energy_j=own[ENERGY], latency_ms=own[LATENCY])


def _run(run: LimitedRun, samples: int) -> LimitedOut:
    return LimitedOut.filled(
        run,
        latency_ms=_aim(run.latency_ms, metric("latency_ms").unit),
        power_w=_aim(run.power_w, metric("power_w").unit),
        energy_j=_aim(run.energy_j, metric("energy_j").unit),
        energy_per_sample_j=per_sample(run.energy_j, samples),
    )


def _aim(estimate: Estimate, unit: str) -> IntervalOut:
    value, low, high = _ends(estimate)
    return IntervalOut(value=value, low=low, high=high, coverage=estimate.coverage, unit=unit)


def _ends(estimate: Estimate) -> tuple[float, float | None, float | None]:
    return estimate.value, estimate.low, estimate.high


def _check_finite(runs: Sequence[LimitedRun]) -> None:
    ends = [x for r in runs for e in (r.latency_ms, r.power_w, r.energy_j) for x in _ends(e)]
    ends += [x for run in runs for x in (run.slow_down, run.saving)]
    if not np.isfinite([x for x in ends if x is not None]).all():
        raise UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )
