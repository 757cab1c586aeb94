"""Whole answers about training a language model: a step, its memory, and what a number of tokens
costs.

Utilisations are shares of the sum of the devices' peaks, in the format of the run's products.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.data.device import Device
from forerun.data.device_slices import no_power
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.grid_carbon import Grid
from forerun.data.language_models.training import LlmTraining, Objective
from forerun.data.level import LEVEL, USUAL
from forerun.data.list_prices import Price
from forerun.data.query import Operation, Query
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.step import MOST_SHARE, hardware_flop, model_flop, sheet_of
from forerun.models.answers.deployments.derived import inverse, product, scaled
from forerun.models.answers.interval_level import at_level, level_notes
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import UNCALIBRATED, Trust, trust_by
from forerun.models.limit import LATENCY, PEAK_MEMORY, POWER, Limit
from forerun.models.llm_training.by_kernels import answers_by_kernels, parts_s
from forerun.models.llm_training.plans import PlannedLayout, TrainingPlan, plan
from forerun.models.llm_training.predictors import MIB, LayoutMemory, TrainingPredictors
from forerun.models.llm_training.step_time import limits_of_lengths, mean_cost
from forerun.models.prediction import WIDEST_RATIO, Estimate, too_wide

STEP: Final = "step_s"
COSTS: Final = ("run_days", "run_usd", "run_kwh", "run_co2_kg")
"""Metrics of a number of tokens."""
METRICS: Final = (
    *(STEP, "tokens_per_s", "tokens_per_s_per_device", "mfu", "hfu"),
    *("allocated_memory_mib", "reserved_memory_mib", PEAK_MEMORY, POWER, *COSTS),
)
"""Metrics of an answer, in their order."""
POWER_SHARES: Final = (0.76, 0.5, 1.0)
"""Power of a device over its design power: as assumed, and the ends of its range. Nodes of eight
H100s drew 76 % of their rated power in demanding training and 82 % at most (Newkirk et al. 2025,
arXiv 2506.14551; Latif et al. 2024, arXiv 2412.08602)."""
CLOSED_FORM: Final = Limit(
    "times come from a closed form with rounded shares of the peaks, not fitted to measurements",
    LATENCY,
)
OF_POWER: Final = (
    "not measured: 76 % of TDP assumed, as on nodes of H100s; range 50 to 100 % of TDP"
)
ONE_POWER: Final = "power of all layouts: 76 % of TDP, since that of some is not known"
MEASURED_MEMORY: Final = "memory of this framework was measured on this architecture"
OTHER_MEMORY: Final = (
    "extrapolated: memory of this framework was not measured on this architecture; the "
    "interval is that of others"
)
CANNOT_RUN: Final = "does not fit in memory"
NO_ANSWER: Final = "no predictor answers it"
MISSING: Final[Mapping[str, str]] = {
    "run_days": "give tokens, the number of tokens to train on",
    "run_usd": "no list price of this device is known; give usd_per_device_hour",
    "run_kwh": "it is computed from power and time, one of which is unknown",
    "run_co2_kg": "give region or grid_g_co2_per_kwh",
}
"""Metric -> why it is not known, where nothing else says it."""
BUDGETED_DEVICES: Final = tuple(1 << power for power in range(15))
"""Numbers of devices among which a budget chooses."""
AROUND: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Numbers of devices of the front without a budget, as multiples of those of the run."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run is charged with; None where it is not known.

    Attributes:
        tokens: tokens to train on.
        price: of a device.
        grid: carbon intensity of its electricity.
    """

    tokens: float | None = None
    price: Price | None = None
    grid: Grid | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that training may cost; None where it does not matter."""

    usd: float | None = None
    days: float | None = None


@dataclass(frozen=True)
class TrainingAnswer:
    """What is known of one run.

    Attributes:
        query: the run, with its layout, and its device.
        estimates: metric of `METRICS` -> estimate.
        trust: metric -> grade of its estimate.
        missing: metric without an estimate -> the reason.
        limits: limits of all estimates.
        breakdown_s: part of a step -> seconds, which add up to the step.
        parts_mib: part of the memory of the fullest device -> MiB, which add up to what it shows.
        stages_mib: memory of each pipeline stage, MiB, before fragmentation.
        fits, fits_at_value: whether the upper end of the memory, and the best estimate, is at most
            the device's; None where the memory of the device is not known.
    """

    query: Query
    estimates: Mapping[str, Estimate]
    trust: Mapping[str, Trust]
    missing: Mapping[str, str]
    limits: tuple[Limit, ...]
    breakdown_s: Mapping[str, float]
    parts_mib: Mapping[str, float]
    stages_mib: tuple[float, ...]
    fits: bool | None
    fits_at_value: bool | None


def training_answer(
    run: LlmTraining,
    device: Device,
    known: TrainingPredictors,
    costs: Costs,
    *,
    power_of_tdp: bool = False,
    level: float = USUAL,
) -> TrainingAnswer:
    """What is known of a run with its layout.

    Args:
        run: the run.
        device: the device.
        known: what answers times and memory.
        costs: what tokens are charged with.
        power_of_tdp: whether power is `POWER_SHARES` of the TDP even where kernels tell.
        level: of the intervals, percent.

    Raises:
        UnanswerableQuery: degrees do not divide the run.
        UnknownBandwidth, UnknownPrecision: the device has no sheet with the figures.
    """
    query = Query(run, device, operation=Operation(run.devices), level=level)
    layouts = Layouts.of(run)
    if known.in_use is not None and known.by_kernels(run, layouts)[0]:
        found = _by_kernels(query, layouts, known.in_use)
    else:
        found = _by_layout(query, layouts, known)
    if power_of_tdp and (assumed := power_of(device)):
        grades = {**found.grades, POWER: Trust("C", OF_POWER)}
        found = replace(found, estimates={**found.estimates, **assumed}, grades=grades)
    limits, estimates, missing = found.limits, dict(found.estimates), dict(found.missing)
    if any(limit.severity == "refusal" for limit in limits):
        estimates.pop(STEP, None)
        missing[STEP] = CANNOT_RUN
    if (step := estimates.get(STEP)) is not None:
        estimates |= of_step(run, device, step, costs, estimates.get(POWER))
    peak = estimates.get(PEAK_MEMORY)
    return TrainingAnswer(
        query=query,
        estimates={name: estimates[name] for name in METRICS if name in estimates},
        trust={name: own for name in METRICS if name in estimates and (own := found.trust(name))},
        missing=_missing(estimates, {POWER: no_power(device) or NO_ANSWER, **missing}, costs),
        limits=limits,
        breakdown_s=found.parts_s if step is not None else {},
        parts_mib=found.parts_mib,
        stages_mib=found.stages_mib,
        fits=fits(peak, device),
        fits_at_value=fits(peak and replace(peak, high=peak.value), device),
    )


@dataclass(frozen=True)
class _Found:
    """What is known of a step before what follows from its time.

    Attributes:
        estimates: of the step's time, power and memory.
        grades: metric of these -> grade.
        missing: metric of these without an estimate -> the reason, where it is known.
        limits: of all of them.
        parts_s, parts_mib, stages_mib: as in `TrainingAnswer`.
    """

    estimates: Mapping[str, Estimate]
    grades: Mapping[str, Trust]
    missing: Mapping[str, str]
    limits: tuple[Limit, ...]
    parts_s: Mapping[str, float]
    parts_mib: Mapping[str, float]
    stages_mib: tuple[float, ...]

    def trust(self, name: str) -> Trust | None:
        """The grade of a metric; of what follows from time and power, the lower one."""
        if name in ("run_kwh", "run_co2_kg"):
            grades = [own for one in (STEP, POWER) if (own := self.grades.get(one))]
            return max(grades, key=lambda own: own.grade, default=None)
        return self.grades.get(name, self.grades.get(STEP))


def _by_layout(query: Query, layouts: Layouts, known: TrainingPredictors) -> _Found:
    """By the closed form, and what was measured of large clusters."""
    run, device = query.llm_training, query.device
    time = known.step.predict([query])[0]
    held = known.memory.of_layouts(run, device, layouts)
    usual = _memory(held, LEVEL if known.memory.is_measured(run, device) else None)
    usual |= power_of(device)
    if (step := time.estimates.get(LATENCY)) is not None:
        usual[STEP] = scaled(step, 1e-3)
    states = held.parts.model_states[0] / (held.device[0] * MIB)
    limits = [*time.limits, *_of_memory(usual, device), *level_notes(usual, query)]
    if known.step.process is None:
        limits.append(CLOSED_FORM)
    stages = held.parts.stages[0] / MIB
    return _Found(
        _at_level(usual, query, float(states)),
        _trust(usual, limits),
        {STEP: time.withheld[LATENCY]} if LATENCY in time.withheld else {},
        tuple(limits),
        {name: own / 1e3 for name, own in time.breakdown_ms.items()},
        held.breakdown_mib(0),
        tuple(stages[~np.isnan(stages)].tolist()),
    )


def _by_kernels(query: Query, layouts: Layouts, in_use: InUse) -> _Found:
    """As a network.

    Raises:
        InputError: no predictor answers it.
    """
    run, device = query.llm_training, query.device
    (own,) = answers_by_kernels(run, device, layouts, in_use, level=query.level)
    if isinstance(own, InputError):
        raise own
    estimates = {name: own.estimates[name] for name in own.trust}
    grades = dict(own.trust)
    if POWER not in estimates and (assumed := power_of(device)):
        estimates, grades = estimates | assumed, {**grades, POWER: Trust("C", OF_POWER)}
    mean = float(mean_cost(run, device, layouts)[0])
    if LATENCY in estimates:
        estimates[STEP] = scaled(estimates.pop(LATENCY), 1e-3 * mean)
        grades[STEP] = grades.pop(LATENCY)
    parts = {name: float(size) for name, size in own.breakdown_mib.items() if size > 0.0}
    limits = (*own.limits, *limits_of_lengths(query))
    total = sum(size for name, size in parts.items() if name not in ("slack", "context"))
    missing = {STEP if name == LATENCY else name: why for name, why in own.missing.items()}
    times = {name: mean * seconds for name, seconds in parts_s(own).items()}
    return _Found(estimates, grades, missing, limits, times, parts, (total,))


def _at_level(usual: Mapping[str, Estimate], query: Query, states: float) -> dict[str, Estimate]:
    """Estimates of the closed form at the query's level, not below what a step takes in any case.

    Args:
        usual: those of the usual level.
        query: the run, its device and the level.
        states: share of the memory that is held between steps.
    """
    run, found = query.llm_training, dict[str, Estimate]()
    least_s = hardware_flop(run) / (MOST_SHARE * sheet_of(run, query.device).peak * run.devices)
    for name, own in at_level(usual, query).items():
        least = least_s if name == STEP else states * own.value if name.endswith("_mib") else 0.0
        found[name] = own if own.low is None else replace(own, low=max(own.low, least))
    return found


def of_step(
    run: LlmTraining, device: Device, step: Estimate, costs: Costs, power: Estimate | None = None
) -> dict[str, Estimate]:
    """What follows from the time of a step, seconds, and the power of a device: rates,
    utilisations, and costs of tokens.
    """
    rate, peak = inverse(step, run.step_tokens), sheet_of(run, device).peak
    found = {STEP: step, "tokens_per_s": rate}
    found["tokens_per_s_per_device"] = scaled(rate, 1.0 / run.devices)
    found["mfu"] = inverse(step, model_flop(run) / (run.devices * peak))
    # What is computed again may not be at the peak either.
    found["hfu"] = _at_most_one(inverse(step, hardware_flop(run) / (run.devices * peak)))
    if costs.tokens is None:
        return found
    days = found["run_days"] = inverse(rate, costs.tokens / 86_400.0)
    hours = scaled(days, 24.0 * run.devices)
    if costs.price is not None:
        found["run_usd"] = scaled(hours, costs.price.usd_per_device_hour)
    if power is not None:
        found["run_kwh"] = scaled(product(hours, power), 1e-3)
        if costs.grid is not None:
            found["run_co2_kg"] = scaled(found["run_kwh"], costs.grid.g_co2_per_kwh / 1e3)
    return found


def power_of(device: Device) -> dict[str, Estimate]:
    """Power of one device in training; empty where its design power is not known."""
    if device.tdp_w is None:
        return {}
    value, low, high = (share * device.tdp_w for share in POWER_SHARES)
    return {POWER: Estimate(value, low, high)}


def fits(memory: Estimate | None, device: Device) -> bool | None:
    """Whether the upper end fits the device; None where its memory is not known."""
    usable = device.usable_mib
    if usable is None or memory is None or memory.high is None:
        return None
    return memory.high <= usable


def to_fit(run: LlmTraining, device: Device, known: TrainingPredictors) -> str:
    """Each change that alone lets a run fit which does not; more devices where there is none."""
    layout, rank = run.layout, run.lora_rank or 16
    tokens = min(run.sequence_tokens, 128 * layout.context)
    nf4 = "keep frozen weights in nf4" if run.lora_rank else "train adapters on weights in nf4"
    ways = {
        "recompute": replace(run, layout=replace(layout, recompute="full")),
        "take micro-batches of 1": replace(run, layout=replace(layout, micro_batch=1)),
        "train adapters (LoRA)": replace(run, lora_rank=rank),
        nf4: replace(run, lora_rank=rank, frozen_weights="nf4"),
        "shorten sequences": replace(run, sequence_tokens=tokens, lengths=(), packed=False),
    }
    usable = device.usable_mib or 0.0
    helpful = [
        way
        for way, one in ways.items()
        if one != run and known.upper_mib(one, device, Layouts.of(one))[1][0] <= usable
    ]
    return " or ".join([*helpful, *["take more devices"] * (not run.lora_rank or not helpful)])


@dataclass(frozen=True)
class PlanAnswer:
    """The layouts of a run that were searched.

    Attributes:
        plan: the search.
        front: layouts on several numbers of devices that fit, and that no other beats both in time
            and in device seconds, to which price and energy are proportional; fastest first.
        chosen: what was chosen, a sentence each.
    """

    plan: TrainingPlan
    front: tuple[PlannedLayout, ...]
    chosen: tuple[str, ...] = ()


def planned(
    run: LlmTraining,
    device: Device,
    known: TrainingPredictors,
    costs: Costs,
    *,
    objective: Objective = "time",
    budget: Budget | None = None,
    kept: int = 10,
) -> PlanAnswer:
    """The best layouts of a run, on as many devices as it has, or as a budget allows.

    Args:
        run: its own layout is not read, and its number of devices only without a budget.
        device: the device.
        known: what answers times and memory.
        costs: what tokens are charged with.
        objective: what is minimised.
        budget: the most that training may cost; None for the devices of the run.
        kept: number of layouts that are kept.

    Raises:
        UnanswerableQuery: no number of devices keeps the budget.
        UnknownBandwidth, UnknownPrecision: the device has no sheet with the figures.
    """
    chosen: tuple[str, ...] = ()
    counts = [int(run.devices * step) for step in AROUND if run.devices * step >= 1.0]
    if budget is not None:
        counts = [*BUDGETED_DEVICES]
    others = plan(run, device, known, devices=sorted({*counts}))
    if budget is not None:
        run = replace(run, devices=_affordable(others.front, device, costs, budget))
        chosen = (f"{_devices(run)}, by the budget and best estimates of the time",)
    found = plan(run, device, known, objective=objective, kept=kept)
    return PlanAnswer(found, others.front, chosen)


def _affordable(
    front: Sequence[PlannedLayout], device: Device, costs: Costs, budget: Budget
) -> int:
    """The number of devices: the cheapest that is in time, or the fastest within the price."""
    if not front:
        raise UnanswerableQuery(f"No layout fits {device.name} on up to {BUDGETED_DEVICES[-1]:,}.")
    able = [one for one in front if _within(_cost_of(one, device, costs), budget)]
    if not able:
        raise UnanswerableQuery(_beyond(front, device, costs))
    best = min(able, key=lambda one: one.device_s_per_token if budget.days else one.seconds)
    return best.run.devices


def _cost_of(one: PlannedLayout, device: Device, costs: Costs) -> Mapping[str, Estimate]:
    return of_step(one.run, device, Estimate(one.seconds, one.low_s, one.high_s), costs)


def _within(cost: Mapping[str, Estimate], budget: Budget) -> bool:
    pairs = (("run_usd", budget.usd), ("run_days", budget.days))
    return all(most is None or cost[name].value <= most for name, most in pairs)


def _beyond(front: Sequence[PlannedLayout], device: Device, costs: Costs) -> str:
    """That nothing keeps a budget, with the fastest and the cheapest that there is."""
    ends = []
    for which, one in (("fastest", front[0]), ("cheapest", front[-1])):
        cost = _cost_of(one, device, costs)
        usd = "" if "run_usd" not in cost else f" and {cost['run_usd'].value:,.3g} USD"
        days = f"{cost['run_days'].value:,.3g} days"
        ends.append(f"the {which} takes {days}{usd} on {_devices(one.run)}")
    return f"No layout that fits keeps the budget: {', '.join(ends)}."


def _devices(run: LlmTraining) -> str:
    return f"{run.devices:,} device{'s' * (run.devices > 1)}"


def _at_most_one(share: Estimate) -> Estimate:
    low, high = (None if end is None else min(1.0, end) for end in (share.low, share.high))
    return replace(share, value=min(1.0, share.value), low=low, high=high)


def _memory(held: LayoutMemory, coverage: float | None) -> dict[str, Estimate]:
    """The three kinds of memory of the fullest device; errors are those of the sum of parts."""
    device = float(held.device[0])
    low, high = float(held.low[0]) / device, float(held.high[0]) / device
    live = min(held.parts.total[0] / MIB, held.reserved[0])
    sizes = (live, held.reserved[0], device)
    names = ("allocated_memory_mib", "reserved_memory_mib", PEAK_MEMORY)
    return {
        name: Estimate(size, low * size, high * size, coverage)
        for name, size in zip(names, map(float, sizes), strict=True)
    }


def _of_memory(memory: Mapping[str, Estimate], device: Device) -> tuple[Limit, ...]:
    """That a run cannot, or may not, fit."""
    own = memory[PEAK_MEMORY]
    usable = device.usable_mib
    if device.memory_gib is None or usable is None or own.low is None or own.high is None:
        return ()
    has = f"the device has {device.memory_gib:,.4g} GiB, of which runs can use {usable / 1024:,.3g}"
    low, high = (f"{end / 1024.0:,.3g}" for end in (own.low, own.high))
    if own.low > device.memory_gib * 1024.0:
        message = f"the fullest device takes {low} GiB at least, and {has}"
        return (Limit(message, PEAK_MEMORY, "refusal"),)
    if own.high > usable:
        words = "may not fit" if own.value <= usable else "probably does not fit"
        words = "does not fit" if own.low > usable else words
        message = f"it {words}: the fullest device takes {low} to {high} GiB, and {has}"
        return (Limit(message, PEAK_MEMORY, "note"),)
    return ()


def _trust(estimates: Mapping[str, Estimate], limits: Sequence[Limit]) -> dict[str, Trust]:
    """The grades of time, power and memory."""
    step = estimates.get(STEP)
    time = trust_by([limit for limit in limits if limit.concerns(LATENCY)])
    if step is not None and step.coverage is None and time.grade != "C":
        time = Trust("C", UNCALIBRATED)
    elif step is not None and too_wide(STEP, step):
        time = Trust("C", f"the interval spans a factor of more than {WIDEST_RATIO:.0f}")
    power = Trust("C", OF_POWER)
    memory = Trust("A", MEASURED_MEMORY)
    if estimates[PEAK_MEMORY].coverage is None:
        memory = Trust("C", OTHER_MEMORY)
    return {POWER: power, STEP: time} | {
        name: memory for name in estimates if name.endswith("_mib")
    }


def _missing(
    estimates: Mapping[str, Estimate], why: Mapping[str, str], costs: Costs
) -> dict[str, str]:
    """Metric without an estimate -> the reason."""
    known = dict(MISSING)
    if costs.grid is not None:
        known["run_co2_kg"] = MISSING["run_kwh"]
    if costs.tokens is None:
        known |= dict.fromkeys(COSTS, MISSING["run_days"])
    if STEP not in estimates:
        untimed = why.get(STEP, NO_ANSWER)
        known |= dict.fromkeys(set(METRICS) - {POWER}, untimed)
    known |= why
    return {name: known[name] for name in METRICS if name not in estimates}
