"""The page *Training*: in which layout a language model trains, whether it fits, what it costs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forerun.service.answers.llm.training import training_estimate, training_plan
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Cell, Chart, label
from forerun.service.http.pages.charts import parts_chart, trade_off
from forerun.service.http.pages.request_form import Given, RequestForm, request_page
from forerun.service.schemas.llm.training import (
    TRAINING_FIELDS,
    TrainingEstimateIn,
    TrainingPlanIn,
)
from forerun.service.schemas.llm.training_answers import PlannedOut, TrainingOut

METRICS = (
    "step_s", "tokens_per_s", "tokens_per_s_per_device", "mfu", "hfu", "allocated_memory_mib",
    "reserved_memory_mib", "peak_memory_mib", "power_w", "run_days", "run_usd", "run_kwh",
)  # fmt: skip
"""Metrics that the page shows, in order."""
COLUMNS = ("step_s", "mfu", "peak_memory_mib", "run_days", "run_usd")
"""Those of the table of layouts."""


FORM: Final = RequestForm(
    path="/training",
    kind=TrainingPlanIn,
    fields=TRAINING_FIELDS,
    usual={
        **{"name": "llama-3.1-8b", "device": "rtx-4090", "devices": "1", "tokens": "10000000"},
        **{"lora_rank": "16", "frozen_weights": "nf4"},
    },
    lists={"lengths": str.split},
)


def _answer(given: Given, answers: Answers) -> dict[str, Any]:
    """The context of `training_answer.html`.

    Raises:
        InputError, ValidationError: what is given is not valid, or cannot be answered.
    """
    if given["lora_rank"] == "0":
        given = {**given, "frozen_weights": None}  # no weights are frozen
    in_use, asked = answers.adaptation.current(), FORM.asked(given)
    plan = training_plan(asked, answers.device, in_use)
    first = next(iter((*plan.best, *plan.misses)))
    content = asked.model_dump(include=set(TrainingEstimateIn.model_fields), exclude_unset=True)
    run = plan.run.model_dump() | {"layout": first.layout.model_dump()}
    estimate = training_estimate(
        TrainingEstimateIn.model_validate(content | run), answers.device, in_use
    )
    times = {part.name.replace("_", " "): part.seconds for part in estimate.breakdown}
    charts = (
        parts_chart("Where the time of a step goes", "s", {"step": times}),
        parts_chart("Memory of the fullest stage", "MiB", {"fullest stage": _memory(estimate)}),
        parts_chart("Memory of each pipeline stage", "MiB", _stages(estimate)),
        front_chart(plan.front),
    )
    device = label(answers.device(given["device"]))
    return {
        "subject": f"{given['name']} on {plan.run.devices:,} × {device}",
        "plan": plan,
        "first": estimate,
        "time": {part.meaning: part.seconds for part in estimate.breakdown},
        "metrics": METRICS,
        "columns": COLUMNS,
        "charts": [chart for chart in charts if chart],
    }


SHOWN: Mapping[str, str] = {
    **{"recomputed": "activations", "running": "activations", "gathered": "buffers"},
    **{"allocator": "context", "slack": "context", "workspace": "activations"},
}
"""Part of the memory -> the part that it is drawn with."""


def _memory(answer: TrainingOut) -> dict[str, float]:
    """Part of the memory of the fullest device, with what is free -> MiB."""
    parts: dict[str, float] = defaultdict(float)
    for name, own in answer.memory.fullest_mib.items():
        parts[SHOWN.get(name, name)] += own
    if answer.memory.usable_mib is not None:
        parts["free"] = max(0.0, answer.memory.usable_mib - sum(parts.values()))
    return parts


def _stages(answer: TrainingOut) -> dict[str, dict[str, float]]:
    """Pipeline stage -> its memory, with what is free; empty without a pipeline."""
    stages, usable = answer.memory.stages_mib, answer.memory.usable_mib
    if len(stages) == 1:
        return {}
    return {
        f"stage {place}": {"in use": own, "free": max(0.0, (usable or own) - own)}
        for place, own in enumerate(stages, 1)
    }


def front_chart(front: Sequence[PlannedOut]) -> Chart | None:
    """Price, or energy where no price is known, over days, for several numbers of devices.

    None where there are fewer than two layouts.
    """
    cost = "run_usd" if any("run_usd" in one.metrics for one in front) else "run_kwh"
    rows: list[Mapping[str, Cell]] = [
        {"days": days.value, "cost": price.value, "devices": f"{one.devices:,} devices",
         "layout": one.words()}
        for one in front
        if (days := one.metrics.get("run_days")) and (price := one.metrics.get(cost))
    ]  # fmt: skip
    unit = {"run_usd": "price, USD", "run_kwh": "energy of the devices, kWh"}[cost]
    columns = {"devices": "", "days": "days", "cost": unit, "layout": "layout"}
    return trade_off("Days and price by number of devices", rows, ("days", "cost"), columns)


router = request_page(FORM, _answer)
