"""Rank devices for one workload under limits, and one device's power limits.

It is said why a device is excluded. A sweep has time, power and energy of one workload on one
device at several power limits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose
from typing import Final, TypeAlias

import numpy as np

from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery, in_field
from forerun.data.list_prices import list_price
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.answers.answer import PEAK
from forerun.models.answers.assumed import not_known, set_up_limits
from forerun.models.answers.drawn_power import within_drawn
from forerun.models.answers.evidence import distinct
from forerun.models.answers.interval_level import at_level, level_notes
from forerun.models.answers.served_models import InUse
from forerun.models.answers.wording import in_words
from forerun.models.limit import LATENCY, POWER
from forerun.models.power.limit_response import ENERGY
from forerun.models.power.limit_sweep import LimitedRun, power_sweep
from forerun.models.router import Router
from forerun.service.answers.answer import answers_to, predictor_out, rendered
from forerun.service.answers.question import Question, question_about
from forerun.service.schemas.answers import (
    NO_IDLE,
    NO_PEAK,
    AdviceOut,
    DeviceOut,
    EstimateOut,
    ExcludedOut,
    IntervalOut,
    LimitedOut,
    Objective,
    PredictionOut,
    RankedOut,
    RankOut,
    Risk,
    SweepOut,
    per_sample,
    samples_of,
)

RANKING_METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
MS_AN_HOUR = 3.6e6
SAME: Final = 0.01
"""Share of an objective below which a difference between devices tells nothing: host time, which
hides the GPU at small batches, leaves differences of a thousandth."""
Answered: TypeAlias = Callable[[Sequence[Question]], Sequence[PredictionOut | InputError]]
"""Answers n questions, each with an answer or the error in place of one."""
_SOURCE: Mapping[str, str] = {"throughput_per_w": "energy_j", "cost": "latency_ms"}
_UNITS: Mapping[str, str] = {"throughput_per_w": "1/J", "cost": "USD per run"}


@dataclass(frozen=True, slots=True)
class Limits:
    """The constraints on a device.

    Attributes:
        most: metric -> largest allowed value, in the metric's unit.
        must_fit: whether the device's memory must be sufficient; it applies to networks only.
        in_domain_only: whether the objective and the limited metrics must be in domain.
        risk: whether the upper end of the interval or the best estimate must meet the limits.
    """

    most: Mapping[str, float]
    must_fit: bool = True
    in_domain_only: bool = False
    risk: Risk = "high"


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective by which devices are ranked.

    Attributes:
        objective: name of the objective.
        samples: samples in one run.
        prices_per_hour: device -> price of an hour, in any currency; list prices in USD where it
            is empty.
    """

    objective: Objective
    samples: int = 1
    prices_per_hour: Mapping[Device, float] | None = None

    @property
    def metric(self) -> str:
        """The metric from which the objective is computed."""
        return _SOURCE.get(self.objective, self.objective)

    @property
    def unit(self) -> str:
        """Unit of the objective's value."""
        if self.objective == "cost" and not self.prices_per_hour:
            return "USD"
        return _UNITS.get(self.objective) or metric(self.objective).unit

    def of(self, device: Device, estimate: EstimateOut) -> IntervalOut | None:
        """The objective on a device.

        It is None where the device has no price, or where the throughput per watt is infinite
        because a run takes no energy.
        """
        own = IntervalOut.filled(estimate, unit=self.unit)
        if self.objective == "cost":
            price = self._price_per_hour(device)
            return None if price is None else own.times(price, self.unit, MS_AN_HOUR)
        if self.objective == "throughput_per_w":
            return own.over(self.samples, self.unit) if own.value else None
        return own

    @property
    def no_price(self) -> str:
        """Why a device has no price."""
        return "no price is given" if self.prices_per_hour else "no list price is known; give one"

    def _price_per_hour(self, device: Device) -> float | None:
        if self.prices_per_hour:
            return self.prices_per_hour.get(device)
        listed = list_price(device.name)
        return None if listed is None else listed.usd_per_device_hour


def ranked(queries: Sequence[Query], goal: Goal, limits: Limits, in_use: InUse) -> RankOut:
    """Predict one workload on n devices and rank them.

    Args:
        queries: the workload on n devices.
        goal: the objective.
        limits: the constraints.
        in_use: the predictor in use; it is called once.
    """
    questions = [question_about(query, RANKING_METRICS) for query in queries]
    answers = answers_to(questions, in_use)
    kept, excluded = ranking([query.device for query in queries], answers, goal, limits)
    return RankOut(
        objective=goal.objective,
        risk=limits.risk,
        ranked=kept,
        excluded=excluded,
        graph=questions[0].graph,
        predictor=predictor_out(in_use, sum(in_use.rows.values())),
    )


def outcomes(
    queries: Sequence[Query], goal: Goal, limits: Limits, answered: Answered
) -> dict[str, "Outcome"]:
    """Name of each device -> the device with its objective, or the reasons to exclude it.

    Args:
        queries: the workload on n devices of different names.
        goal: the objective.
        limits: the constraints.
        answered: answers n questions; it is asked once, and only about metrics that decide.
    """
    decisive = {goal.metric, *limits.most} | ({PEAK} if limits.must_fit else set())
    metrics = tuple(name for name in RANKING_METRICS if name in decisive)
    answers = answered([question_about(query, metrics) for query in queries])
    return {
        query.device.name: kept_or_reasons(query.device, answer, goal, limits)
        for query, answer in zip(queries, answers, strict=True)
    }


def prices_by_device(
    given: Mapping[str, float],
    objective: Objective,
    devices: Sequence[Device],
    device_named: Callable[[str], Device],
) -> dict[Device, float]:
    """Device -> price of an hour.

    Args:
        given: name of a device -> price of an hour.
        objective: the objective of the ranking.
        devices: the candidates.
        device_named: name -> device.

    Raises:
        InputError: a price is given for a device that is not ranked, or the objective is not cost.
    """
    by_name = {device.name: device for device in devices}
    prices = {}
    with in_field("prices_per_hour"):
        if given and objective != "cost":
            raise InputError(f"Prices are for the objective cost; this one is {objective}.")
        for name, price in given.items():
            device = by_name.get(name) or device_named(name)
            if device not in by_name.values():
                raise InputError(f"prices_per_hour: {name} is not among the devices.")
            prices[device] = price + 0.0  # a zero without a sign
    return prices


def ranking(
    devices: Sequence[Device],
    answers: Sequence[PredictionOut | InputError],
    goal: Goal,
    limits: Limits,
) -> tuple[list[RankedOut], list[ExcludedOut]]:
    """Rank answers: those that meet the limits, the best first, and the excluded ones.

    Args:
        devices: n candidates.
        answers: n answers with all of `RANKING_METRICS`, or the error in place of an answer.
        goal: the objective.
        limits: the constraints.
    """
    kept: list[Kept] = []
    excluded: list[ExcludedOut] = []
    for device, answer in zip(devices, answers, strict=True):
        outcome = kept_or_reasons(device, answer, goal, limits)
        if isinstance(outcome, Kept):
            kept.append(outcome)
        else:
            named = DeviceOut(name=device.name, origin=device.origin)
            reasons = list(dict.fromkeys(reason.sentence for reason in outcome))
            excluded.append(ExcludedOut(device=named, reasons=reasons))
    sign = -1.0 if goal.objective == "throughput_per_w" else 1.0
    kept.sort(key=lambda row: (sign * row.aim.value, row.answer.device.name))
    ranked: list[RankedOut] = []
    rank = 1
    for index, row in enumerate(kept):
        if not isclose(row.aim.value, kept[rank - 1].aim.value, rel_tol=SAME):
            rank = index + 1
        overlaps_best = index == 0 or _overlap(row.aim, kept[0].aim)
        metrics = {name: row.answer.metrics[name] for name in RANKING_METRICS}
        own = {"objective": row.aim, "margins": row.margins, "metrics": metrics}
        ranked.append(RankedOut.filled(row.answer, rank=rank, overlaps_best=overlaps_best, **own))
    return ranked, excluded


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a device is excluded.

    Attributes:
        sentence: the reason in words.
        unknown: whether something is not known, in place of a limit that is known to be broken.
    """

    sentence: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A device that meets the limits: the objective, the answer, and the margin to each limit."""

    aim: IntervalOut
    answer: PredictionOut
    margins: dict[str, float]


Outcome = Kept | list[Reason]


def kept_or_reasons(
    device: Device, answer: PredictionOut | InputError, goal: Goal, limits: Limits
) -> Outcome:
    """The device with its objective, or the reasons to exclude it.

    Args:
        device: the candidate.
        answer: its answer with the metrics that the objective and the limits need, or the error in
            place of one.
        goal: the objective.
        limits: the constraints.
    """
    if isinstance(answer, InputError):
        return [Reason(str(answer), unknown=True)]
    reasons, margins = _against(answer, limits)
    estimate = answer.metrics[goal.metric]
    aim = None if estimate is None else goal.of(device, estimate)
    if estimate is None:
        sentence = f"{goal.metric} is not known: {answer.missing[goal.metric]}"
        reasons.append(Reason(sentence, unknown=True))
    elif aim is None:
        why = goal.no_price if goal.objective == "cost" else f"{goal.metric} is zero"
        reasons.append(Reason(f"{goal.objective} is not known: {why}", unknown=True))
    if limits.in_domain_only:
        reasons += _out_of_domain(answer, {goal.metric, *limits.most})
    return reasons if reasons or aim is None else Kept(aim, answer, margins)


def _against(answer: PredictionOut, limits: Limits) -> tuple[list[Reason], dict[str, float]]:
    """The broken limits in words, and the margin to each limit (negative where it is broken)."""
    reasons: list[Reason] = []
    margins: dict[str, float] = {}
    for name, most in limits.most.items():
        estimate = answer.metrics[name]
        if estimate is None:
            reasons.append(Reason(f"{name} is not known: {answer.missing[name]}", unknown=True))
            continue
        largest = estimate.high if limits.risk == "high" else estimate.value
        if largest is not None and name == "power_w":
            largest = min(largest, _enforced_w(answer))
        if largest is None:
            sentence = f"{name} has no upper end; risk `value` compares the best estimate"
            reasons.append(Reason(sentence, unknown=True))
            continue
        margins[name] = most - largest
        if largest > most:
            end = "upper end of " if limits.risk == "high" else ""
            text = metric(name).text
            reasons.append(Reason(f"{end}{name} is {text(largest)}, the limit {text(most)}"))
    if limits.must_fit and answer.graph is not None:
        reasons += _does_not_fit(answer, limits.risk)
    return reasons, margins


def _enforced_w(answer: PredictionOut) -> float:
    """The average power that the device enforces, W; infinity where it is not known."""
    known = (answer.power.power_limit_w, answer.power.tdp_w)
    return min((watts for watts in known if watts is not None), default=inf)


def _does_not_fit(answer: PredictionOut, risk: Risk) -> list[Reason]:
    fits, peak = answer.fits, answer.metrics["peak_memory_mib"]
    if fits is None or peak is None:
        why = answer.missing.get("peak_memory_mib", "the sheet gives no memory")
        return [Reason(f"whether it fits is not known: {why}", unknown=True)]
    if fits.fits if risk == "high" else fits.fits_at_value:
        return []
    needed = fits.needed_mib if risk == "high" else peak.value
    upto = "up to " if risk == "high" else ""
    sizes = f"{needed:,.0f} MiB needed, {fits.usable_mib:,.0f} MiB usable"
    return [Reason(f"does not fit: {upto}{sizes}")]


def _out_of_domain(answer: PredictionOut, names: set[str]) -> list[Reason]:
    estimates = ((name, answer.metrics[name]) for name in sorted(names))
    return [
        Reason(f"{name} is outside what was measured")
        for name, estimate in estimates
        if estimate is not None and not estimate.in_domain
    ]


def _overlap(first: IntervalOut, second: IntervalOut) -> bool:
    """Whether two intervals overlap; a value without an interval counts as a point."""
    lows = [aim.value if aim.low is None else aim.low for aim in (first, second)]
    highs = [aim.value if aim.high is None else aim.high for aim in (first, second)]
    return max(lows) <= min(highs)


LEAST_SHARE, STEPS = 0.4, 13
"""The default sweep: this many limits, from this share of the TDP to all of it."""

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
    common = rendered(query, limits, in_use)
    del common["in_domain"]
    return SweepOut(
        **common,
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
        graph=query.workload.graph.digest if isinstance(query.workload, Network) else None,
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
        latency_ms=IntervalOut.filled(run.latency_ms, unit="ms"),
        power_w=IntervalOut.filled(run.power_w, unit="W"),
        energy_j=IntervalOut.filled(run.energy_j, unit="J"),
        energy_per_sample_j=per_sample(run.energy_j, samples),
    )


def _check_finite(runs: Sequence[LimitedRun]) -> None:
    estimates = [own for run in runs for own in (run.latency_ms, run.power_w, run.energy_j)]
    ends = [end for own in estimates for end in (own.value, own.low, own.high)]
    ends += [x for run in runs for x in (run.slow_down, run.saving)]
    if not np.isfinite([x for x in ends if x is not None]).all():
        raise UnanswerableQuery(
            "The answer overflows; check the sizes and the figures of the spec sheet."
        )
