"""The page *Language models*: power, rate and energy of serving one."""

from collections.abc import Mapping
from typing import Annotated, Any, Self, get_args

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse

from forerun.data.workload import LlmArchitecture, RequestKind, WeightFormat
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.encodings import doubling, layer, logarithmic, number, shown
from forerun.service.http.pages.numbers import short
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_form import EmptyIsAbsent, Name
from forerun.service.http.pages.run_page import sorted_devices
from forerun.service.http.routes.serving import serving_of
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.serving import MOST_DEVICES, LlmEstimateIn, LlmIn

PATH = "/llm"
LARGEST_CURVE = 1024
"""Largest number of concurrent requests of the curves, unless the form asks for more."""

METRICS: Mapping[str, str] = {
    "tokens_per_s": "Tokens per second",
    "power_w": "Power of one device",
    "energy_per_token_j": "Energy of one token",
}
"""Metric -> heading, in the order of the page."""

SIZES: tuple[tuple[str, float], ...] = (
    ("1 billion", 1.24), ("8 billion", 8.03), ("14 billion", 14.8), ("32 billion", 32.8),
    ("70 billion", 70.6),
)  # fmt: skip
"""Usual sizes of language models: title -> billions of parameters."""

router = page_router()
Degree = Annotated[int, Field(ge=1, le=MOST_DEVICES)]


class LlmForm(EmptyIsAbsent):
    """A language model, how it is served, and the device."""

    device: Name = "h100-sxm-80gb"
    device_count: Degree = 1
    parameters_billion: float = Field(default=8.03, ge=1e-4, le=1e6)
    active_billion: float | None = Field(default=None, ge=1e-4, le=1e6)
    request: RequestKind = "chat"
    max_sequences: int = Field(default=64, ge=1, le=65_536)
    weights: WeightFormat = "bf16"
    architecture: LlmArchitecture = "dense"
    tensor_parallel: Degree = 1
    expert_parallel: Degree = 1
    experts: int = Field(default=0, ge=0, le=65_536)
    experts_per_token: int = Field(default=0, ge=0, le=65_536)

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> Self:
        """The form that asks what a request to `/v1/llm/estimate` asks."""
        model = dict(request["model"])
        billions = {"parameters_billion": model.pop("total_parameters") / 1e9}
        if "active_parameters" in model:
            billions["active_billion"] = model.pop("active_parameters") / 1e9
        same = {"device": request["device"], "device_count": request.get("device_count", 1)}
        return cls(**billions, **model, **same)

    def asked(self, max_sequences: int | None = None) -> LlmEstimateIn:
        """The request, at a number of concurrent requests; that of the form when None.

        Raises:
            ValidationError: more parameters or experts are active than there are.
        """
        active = self.active_billion
        same = {"request", "weights", "architecture", "tensor_parallel", "expert_parallel"}
        same |= {"experts", "experts_per_token"}
        model = LlmIn(
            total_parameters=1e9 * self.parameters_billion,
            active_parameters=None if active is None else 1e9 * active,
            max_sequences=max_sequences or self.max_sequences,
            **self.model_dump(include=same),
        )
        return LlmEstimateIn(model=model, device=self.device, device_count=self.device_count)


@router.get(PATH)
async def llm_page(
    request: Request, form: Annotated[LlmForm, Query()], answers: TheAnswers, state: TheState
) -> HTMLResponse:
    """The estimate of the form, and curves over concurrent requests."""

    def page() -> HTMLResponse:
        context = _answer(form, answers)
        if asks_for_part(request):
            return rendered("llm_answer.html", PATH, **context)
        more: dict[str, Any] = {
            "catalog": [d for d in sorted_devices(answers) if d.kind == "gpu"],
            "sizes": SIZES,
            "choices": {
                "request": {name: name.replace("_", " ") for name in get_args(RequestKind)},
                "weights": {name: name for name in get_args(WeightFormat)},
                "architecture": {
                    "dense": "dense", "experts": "mixture of experts",
                    "hybrid": "attention and state space",
                },
            },
        }  # fmt: skip
        return rendered("llm.html", PATH, **context, **more)

    return await state.run(page)


def _answer(form: LlmForm, answers: Answers) -> dict[str, Any]:
    """The context of `llm_answer.html`."""
    most = max(LARGEST_CURVE, 2 * form.max_sequences)
    powers = {2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most}
    counts = sorted(powers | {form.max_sequences})
    by_count = {count: serving_of(form.asked(count), answers) for count in counts}
    return {
        "form": form,
        "metrics": METRICS,
        "answer": by_count[form.max_sequences],
        "device": answers.device(form.device),
        "curves": [load_chart(metric, by_count) for metric in METRICS],
    }


def load_chart(metric: str, by_count: Mapping[int, ServingOut]) -> Chart:
    """A metric over the number of concurrent requests, with its interval."""
    rows: list[Mapping[str, Cell]] = []
    unit = ""
    for count, answer in by_count.items():
        each = answer.metrics.get(metric)
        if each is not None:
            unit = each.unit
            rows.append({
                "count": count, "value": each.value, "low": each.low, "high": each.high,
                "text": f"{short(each.value)} {unit}",
            })  # fmt: skip
    ends = [row[end] for row in rows for end in ("low", "value", "high")]
    values = [end for end in ends if isinstance(end, float)]
    linear = metric == "power_w"
    y = number("value", unit) if linear else logarithmic("value", unit, values)
    colour = "var(--c1)"
    spec = {
        "height": 230,
        "encoding": {"x": doubling("count", "concurrent requests")},
        "layer": [
            layer({"type": "area", "opacity": 0.15, "color": colour},
                  y={**y, "field": "low"}, y2={"field": "high"}),
            layer({"type": "line", "color": colour}, y=y),
            layer({"type": "point", "color": colour, "opacity": 1}, y=y,
                  tooltip=shown(count="requests", text="estimate")),
        ],
    }  # fmt: skip
    summary = f"{METRICS[metric]} over the number of concurrent requests, with intervals."
    columns = {"count": "requests", "value": unit, "low": "low", "high": "high"}
    return Chart(METRICS[metric], summary, spec, rows, columns)
