"""The page *What should I run?*: a model, its traffic and limits, and the plan to serve it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field, model_validator
from starlette.responses import HTMLResponse

from forerun.data.language_models.deployment import EngineName
from forerun.data.list_prices import priced_devices
from forerun.features.readers.language_model.reader import named_models
from forerun.models.llm_serving.plans import Risk, ServingObjective
from forerun.service.answers.llm.planning import llm_plan
from forerun.service.http.pages.chart import Cell, Chart, quantity
from forerun.service.http.pages.charts import trade_off
from forerun.service.http.pages.rendering import page_or_part, page_router
from forerun.service.http.pages.run_form import EmptyIsAbsent, Link, Name, gpus
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.llm.deployment import Tokens
from forerun.service.schemas.llm.serving_plan import LlmPlanIn, Milliseconds, Rate
from forerun.service.schemas.llm.serving_plan_answers import PlannedServingOut

PATH = "/plan"
LIMITS = ("ttft_ms", "tpot_ms")
COLUMNS = (*LIMITS, "request_latency_ms")
"""Metrics of the table of options."""
EXAMPLES = (
    Link("Chat with 70 B", "Five requests a second, on any GPU with a list price.", PATH),
    Link(
        "8 B on small GPUs",
        "L4, A10G or L40S, weights in fp8.",
        f"{PATH}?name=llama-3.1-8b&devices=l4&devices=a10g&devices=l40s&format=fp8&tpot_ms=80",
    ),
    Link(
        "Mixture of experts",
        "DeepSeek-V3 at 20 requests a second.",
        f"{PATH}?name=deepseek-v3&requests_per_s=20&devices=h200-sxm-141gb&devices=b200-sxm-180gb",
    ),
)
router = page_router()


class PlanForm(EmptyIsAbsent):
    """Three questions: which model, which traffic, which limits."""

    name: Name = "llama-3.1-70b"
    format: Name | None = None
    engine: EngineName = "vllm"
    requests_per_s: Rate = 5.0
    input_tokens: Tokens = 2000.0
    output_tokens: Tokens = 300.0
    ttft_ms: Milliseconds | None = 1000.0
    tpot_ms: Milliseconds | None = 50.0
    devices: list[Name] = Field(default_factory=list, max_length=32)
    objective: ServingObjective = "price"
    risk: Risk = "upper"

    @model_validator(mode="before")
    @classmethod
    def _without_cleared_limits(cls, given: Any) -> Any:
        """A limit that was left empty is none; an address without one has the default."""
        return {name: (value or None) if name in LIMITS else value for name, value in given.items()}

    def asked(self) -> LlmPlanIn:
        """The request for a plan."""
        content = self.model_dump(exclude={"name", "format"}, exclude_none=True)
        content |= {"model": self.name, "formats": [self.format] if self.format else []}
        asked: LlmPlanIn = LlmPlanIn.model_validate(
            content | {"devices": self.devices or None, "engine": {"name": self.engine}}
        )
        return asked


@router.get(PATH)
async def plan_page(
    request: Request, form: Annotated[PlanForm, Query()], answers: TheAnswers, state: TheState
) -> HTMLResponse:
    """The plan of the form."""

    def answer() -> dict[str, Any]:
        plan = llm_plan(form.asked(), answers.device, answers.adaptation.current())
        chart = front_chart(plan.front)
        return {
            "subject": f"{form.name}, {form.requests_per_s:g} requests a second",
            "form": form,
            "plan": plan,
            "columns": COLUMNS,
            "examples": EXAMPLES,
            "charts": [] if chart is None else [chart],
        }

    def fields() -> dict[str, Any]:
        listed = gpus(answers, form.devices)
        return {"catalog": listed, "models": named_models(), "priced": priced_devices()}

    return await state.run(lambda: page_or_part(request, "plan", PATH, answer(), fields))


def front_chart(front: Sequence[PlannedServingOut]) -> Chart | None:
    """Price, or power where no price is known, over the time of a request.

    None where there are fewer than two options.
    """
    is_priced = any(one.usd_per_hour is not None for one in front)
    rows: list[Mapping[str, Cell]] = []
    for one in front:
        cost = one.usd_per_hour if is_priced else one.power_w
        latency = one.metrics.get("request_latency_ms")
        if latency is not None and cost is not None:
            rows.append({
                "devices": f"{one.devices} {one.device.partition('-')[0]}",
                "seconds": latency.value / 1e3, "cost": cost, "option": one.words(),
                "text": quantity(latency.value, "ms"),
            })  # fmt: skip
    unit = "USD an hour" if is_priced else "W of all devices"
    columns = {"devices": "", "seconds": "s for a request", "cost": unit, "option": "option"}
    return trade_off("What speed costs", rows, ("seconds", "cost"), columns)
