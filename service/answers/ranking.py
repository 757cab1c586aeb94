"""Rank devices for one workload under limits, and say why a device is excluded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isclose
from typing import Final, TypeAlias

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.list_prices import list_price
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.models.answers.answer import PEAK
from forerun.models.answers.served_models import InUse
from forerun.service.answers.answer import answers_to, predictor_out
from forerun.service.answers.question import Question, question_about
from forerun.service.schemas.answers import (
    DeviceOut,
    EstimateOut,
    ExcludedOut,
    IntervalOut,
    Objective,
    PredictionOut,
    RankedOut,
    RankOut,
    Risk,
)

RANKING_METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
MS_AN_HOUR = 3.6e6
SAME: Final = 0.01
"""Share of an objective below which a difference between devices tells nothing: host time, which
hides the GPU at small batches, leaves differences of a thousandth."""
Answered: TypeAlias = Callable[[Sequence[Question]], Sequence[PredictionOut | InputError]]
"""Answers n questions, each with an answer or the error in place of one."""
_SOURCE: Mapping[str, str] = {"throughput_per_w": "energy_j", "cost": "latency_ms"}
_UNITS: Mapping[str, str] = {"throughput_per_w": "1/J", "cost": "price of a run"}


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
        ends = estimate.value, estimate.low, estimate.high
        if self.objective == "cost":
            price = self._price_per_hour(device)
            if price is None:
                return None
            value, low, high = (None if end is None else price * end / MS_AN_HOUR for end in ends)
        elif self.objective == "throughput_per_w":
            value, high, low = (self.samples / end if end else None for end in ends)
        else:
            value, low, high = ends
        if value is None:
            return None
        coverage, unit = estimate.coverage, self.unit
        return IntervalOut(value=value, low=low, high=high, coverage=coverage, unit=unit)

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
    if given and objective != "cost":
        raise InputError(f"Prices are for the objective cost; this one is {objective}.")
    by_name = {device.name: device for device in devices}
    prices = {}
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
        overlaps = index == 0 or _overlap(row.aim, kept[0].aim)
        metrics = {name: row.answer.metrics[name] for name in RANKING_METRICS}
        own = {"objective": row.aim, "margins": row.margins, "metrics": metrics}
        ranked.append(RankedOut.filled(row.answer, rank=rank, overlaps_best=overlaps, **own))
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
