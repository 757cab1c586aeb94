"""The page *Training*: in which layout a language model trains, whether it fits, what it costs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from forerun.data.language_models.training import (
    Batch,
    Degree,
    Objective,
    Tokens,
    TrainingFramework,
    TrainingPrecision,
)
from forerun.data.training_options import FrozenFormat
from forerun.features.readers.language_model.reader import named_models
from forerun.service.answers.llm.training import training_estimate, training_plan
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Cell, Chart, label
from forerun.service.http.pages.charts import parts_chart, trade_off
from forerun.service.http.pages.rendering import form_page
from forerun.service.http.pages.run_form import Config, EmptyIsAbsent, Name, gpus, model_of
from forerun.service.schemas.llm.training import Amount, TrainingEstimateIn, TrainingPlanIn
from forerun.service.schemas.llm.training_answers import PlannedOut, TrainingOut

PATH = "/training"
METRICS = (
    "step_s", "tokens_per_s", "tokens_per_s_per_device", "mfu", "hfu", "allocated_memory_mib",
    "reserved_memory_mib", "peak_memory_mib", "power_w", "run_days", "run_usd", "run_kwh",
)  # fmt: skip
"""Metrics that the page shows, in order."""
COLUMNS = ("step_s", "mfu", "peak_memory_mib", "run_days", "run_usd")
"""Those of the table of layouts."""


class TrainingForm(EmptyIsAbsent):
    """A language model by its name or its config.json, and how it is trained on what."""

    name: Name = "llama-3.1-8b"
    config: Config | None = None
    device: Name = "rtx-4090"
    devices: Degree = 1
    lora_rank: int = Field(default=16, ge=0, le=65_536)
    frozen_weights: FrozenFormat = "nf4"
    sequence_tokens: Tokens | None = None
    global_batch: Batch | None = None
    tokens: Amount = 1e7
    precision: TrainingPrecision = "bf16"
    framework: TrainingFramework | None = None
    objective: Objective = "time"
    usd_per_device_hour: float | None = Field(default=None, ge=0, le=1e6)

    def asked(self) -> TrainingPlanIn:
        """The request for a plan.

        Raises:
            BadRequest: the text of config.json is no JSON.
        """
        content = self.model_dump(exclude={"name", "config"}, exclude_none=True)
        content["model"] = model_of(self.name, self.config)
        if not self.lora_rank:
            del content["frozen_weights"]
        asked: TrainingPlanIn = TrainingPlanIn.model_validate(content)
        return asked


def _fields(form: TrainingForm, answers: Answers) -> dict[str, Any]:
    return {"catalog": gpus(answers, [form.device]), "models": named_models()}


def _answer(form: TrainingForm, answers: Answers) -> dict[str, Any]:
    """The context of `training_answer.html`.

    Raises:
        InputError: what the form asks cannot be answered.
    """
    in_use, asked = answers.adaptation.current(), form.asked()
    plan = training_plan(asked, answers.device, in_use)
    first = next(iter((*plan.best, *plan.misses)))
    content = asked.model_dump(include=set(TrainingEstimateIn.model_fields), exclude_unset=True)
    run = plan.run.model_dump() | {"layout": first.layout.model_dump()}
    estimate = training_estimate(
        TrainingEstimateIn.model_validate(content | run), answers.device, in_use
    )
    charts = (
        parts_chart("Where the time of a step goes", "s", {"step": _timed(estimate)}),
        parts_chart("Memory of the fullest stage", "MiB", {"fullest stage": _memory(estimate)}),
        parts_chart("Memory of each pipeline stage", "MiB", _stages(estimate)),
        front_chart(plan.front),
    )
    subject = f"{form.name} on {plan.run.devices:,} × {label(answers.device(form.device))}"
    return {
        "subject": subject,
        "form": form,
        "plan": plan,
        "first": estimate,
        "time": {part.meaning: part.seconds for part in estimate.breakdown},
        "metrics": METRICS,
        "columns": COLUMNS,
        "charts": [chart for chart in charts if chart],
    }


def _timed(answer: TrainingOut) -> dict[str, float]:
    """Part of a step -> seconds."""
    return {part.name.replace("_", " "): part.seconds for part in answer.breakdown}


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


router = form_page(PATH, "training", TrainingForm, _answer, _fields)
