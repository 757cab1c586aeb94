"""The page *Language models*: what serving one takes."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self, get_args

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.weights import BYTES
from forerun.data.workload import LlmArchitecture, RequestKind
from forerun.features.readers.language_model.reader import named_models
from forerun.service.answers.llm.estimates import llm_estimates
from forerun.service.answers.llm.support import is_answered
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import (
    Chart,
    doubling,
    interval_cells,
    interval_curve,
    label,
    logarithmic,
    number,
)
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_form import (
    EmptyIsAbsent,
    Name,
    Refused,
    refusals,
    sorted_devices,
)
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.llm.deployment import MOST_DEVICES
from forerun.service.schemas.serving import LlmEstimateIn

PATH = "/llm"
LARGEST_CURVE = 1024
"""Largest number of concurrent requests of the curves, unless the form asks for more."""

METRICS: Mapping[str, str] = {
    "tokens_per_s": "Tokens per second",
    "power_w": "Power of one device",
    "energy_per_token_j": "Energy of one token",
}
"""Metric of a model by its size -> heading, in the order of the page."""

WITH_LENGTHS: Mapping[str, str] = {
    "ttft_ms": "Time to first token",
    "ttft_service_ms": "Time to first token, without queueing",
    "tpot_ms": "Time per output token",
    "request_latency_ms": "Latency of a request",
    "requests_per_s": "Requests per second",
    "tokens_per_s": "Tokens per second",
    "tokens_per_s_per_device": "Tokens per second of one device",
    "peak_memory_mib": "Memory of one device",
    "power_w": "Power of one device",
    "energy_per_token_j": "Energy of one token",
    "usd_per_million_tokens": "Price of a million tokens",
}
"""Metric of a deployed model -> row of the table."""

CURVES = ("tokens_per_s", "tpot_ms", "ttft_ms")
"""Metrics of a deployed model that are drawn over the number of concurrent requests."""

SIZES: tuple[tuple[str, float], ...] = (
    ("1 billion", 1.24), ("8 billion", 8.03), ("14 billion", 14.8), ("32 billion", 32.8),
    ("70 billion", 70.6),
)  # fmt: skip
"""Usual sizes of language models: title -> billions of parameters."""

USUAL_MODEL = "llama-3.1-8b"
"""Model that is asked about where the address gives none."""

MOST_CHANGES = 24
"""Most changes after which the nearest question that can run is given up."""

Ask = Callable[["LlmForm"], ServingOut | InputError]

router = page_router()
Degree = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
Tokens = Annotated[float, Field(ge=1, le=1e7)]


class LlmForm(EmptyIsAbsent):
    """A language model by its name or size, how it is served, and the device."""

    device: Name = "h100-sxm-80gb"
    device_count: Degree | None = None
    name: Name | None = None
    parameters_billion: float | None = Field(default=None, ge=1e-4, le=1e6)
    active_billion: float | None = Field(default=None, ge=1e-4, le=1e6)
    request: RequestKind = "chat"
    max_sequences: int = Field(default=64, ge=1, le=65_536)
    weights: Name | None = None
    architecture: LlmArchitecture = "dense"
    tensor_parallel: Degree | None = None
    expert_parallel: Degree = 1
    experts: int = Field(default=0, ge=0, le=65_536)
    experts_per_token: int = Field(default=0, ge=0, le=65_536)
    input_tokens: Tokens = 1024
    output_tokens: Tokens = 256
    requests_per_s: float | None = Field(default=None, gt=0, le=1e6)
    engine: EngineName = "vllm"
    usd_per_device_hour: float | None = Field(default=None, ge=0, le=1e6)

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> Self:
        """The form that asks what a request to `/v1/llm/estimate` about a size asks."""
        model = dict(request["model"])
        billions = {"parameters_billion": model.pop("total_parameters") / 1e9}
        if "active_parameters" in model:
            billions["active_billion"] = model.pop("active_parameters") / 1e9
        same = {"device": request["device"], "device_count": request.get("device_count", 1)}
        return cls(**billions, **model, **same)

    @property
    def named(self) -> str | None:
        """Name of the model; None where it is described by its size."""
        return self.name or (USUAL_MODEL if self.parameters_billion is None else None)

    def asked(self, max_sequences: int | None = None) -> LlmEstimateIn:
        """The request, at a number of concurrent requests; that of the form when None.

        Raises:
            ValidationError: more parameters or experts are active than there are.
        """
        count = max_sequences or self.max_sequences
        return self._with_lengths(count) if self.named else self._by_size(count)

    def _with_lengths(self, count: int) -> LlmEstimateIn:
        same = {"device", "device_count", "input_tokens", "output_tokens", "requests_per_s"}
        content = self.model_dump(include={*same, "usd_per_device_hour"}, exclude_none=True)
        if self.requests_per_s is None:
            content["concurrency"] = count
        model = {"name": self.named, "quantization": self.weights}
        parallelism = {"expert": self.expert_parallel}
        if self.tensor_parallel is not None:
            parallelism["tensor"] = self.tensor_parallel
        parts = {"model": model, "engine": {"name": self.engine}, "parallelism": parallelism}
        return LlmEstimateIn.model_validate(content | parts)

    def _by_size(self, count: int) -> LlmEstimateIn:
        assert self.parameters_billion is not None
        same = {"request", "architecture", "expert_parallel", "experts", "experts_per_token"}
        model = self.model_dump(include=same) | {
            "total_parameters": 1e9 * self.parameters_billion,
            "max_sequences": count,
            "tensor_parallel": self.tensor_parallel or 1,
            "weights": self.weights or "bf16",
        }
        if self.active_billion is not None:
            model["active_parameters"] = 1e9 * self.active_billion
        content = {"model": model, "device": self.device, "device_count": self.device_count or 1}
        return LlmEstimateIn.model_validate(content)


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
            "catalog": list(filter(is_answered, sorted_devices(answers))),
            "sizes": SIZES,
            "models": named_models(),
            "choices": {
                "request": {name: name.replace("_", " ") for name in get_args(RequestKind)},
                "weights": {name: name for name in BYTES},
                "engine": {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM",
                           "llama.cpp": "llama.cpp", "other": "another"},
                "architecture": {
                    "dense": "dense", "experts": "mixture of experts",
                    "hybrid": "attention and state space",
                },
            },
        }  # fmt: skip
        return rendered("llm.html", PATH, **context, **more)

    return await state.run(page)


def _answer(form: LlmForm, answers: Answers) -> dict[str, Any]:
    """The context of `llm_answer.html`.

    Raises:
        InputError: what the form asks cannot be answered.
    """
    most = max(LARGEST_CURVE, 2 * form.max_sequences)
    powers = {2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most}
    counts = [] if form.requests_per_s and form.named else sorted(powers | {form.max_sequences})
    asked = [form.asked(), *map(form.asked, counts)]
    in_use = answers.adaptation.current()
    answer, *others = llm_estimates(asked, answers.device, in_use)

    def ask(other: LlmForm) -> ServingOut | InputError:
        return llm_estimates([other.asked()], answers.device, in_use)[0]

    if isinstance(answer, InputError):
        answer = _divided(form, ask) or answer
    if isinstance(answer, InputError):
        raise answer
    by_count = {c: o for c, o in zip(counts, others, strict=True) if isinstance(o, ServingOut)}
    device = answers.device(form.device)
    drawn = CURVES if form.named else tuple(METRICS)
    return {
        "form": form,
        "metrics": WITH_LENGTHS if form.named else METRICS,
        "answer": answer,
        "refused": _refused(form, answer, ask, device),
        "device": device,
        "curves": [load_chart(metric, by_count) for metric in drawn if by_count],
    }


def _divided(form: LlmForm, ask: Ask) -> ServingOut | None:
    """The answer that says why a model has no room on the given number of devices, None without.

    Where no degree is given, the model is divided over as many as it needs, which may be more.
    """
    if form.device_count is None or form.tensor_parallel is not None:
        return None
    found = ask(form.model_copy(update={"tensor_parallel": form.device_count}))
    return found if isinstance(found, ServingOut) and refusals(found.limit_details) else None


def _refused(form: LlmForm, answer: ServingOut, ask: Ask, device: Device) -> Refused | None:
    """Why the model cannot serve as asked, and the nearest that it can; None where it can."""
    why = refusals(answer.limit_details)
    if not why:
        return None
    subject = f"{form.named} on {answer.device_count:,} × {label(device)}"
    other = form
    for _ in range(MOST_CHANGES):
        changes = _changes(other, answer)
        if not changes:
            break
        other = other.model_copy(update=changes)
        found = ask(other)
        if isinstance(found, InputError):
            break
        answer = found
        if not refusals(answer.limit_details):
            words = _difference(form, other, answer)
            return Refused(subject, why, words, other.address(PATH))
    return Refused(subject, why)


def _changes(form: LlmForm, answer: ServingOut) -> dict[str, Any]:
    """Fields of the form that bring a question nearer to one that can run; empty for none."""
    most, deployment = answer.model and answer.model.most_tokens, answer.deployment
    if most and form.input_tokens + form.output_tokens > most:
        output = min(form.output_tokens, float(most // 2))
        return {"input_tokens": most - output, "output_tokens": output}
    if deployment is None:
        return {}
    if not all(own.fits for own in deployment.memory):
        if form.device_count or form.tensor_parallel:
            return {"device_count": None, "tensor_parallel": None}
        return {"input_tokens": form.input_tokens // 2} if form.input_tokens >= 2 else {}
    if form.requests_per_s and deployment.capacity:
        able = min(deployment.capacity.requests_per_s, form.requests_per_s)
        return {"requests_per_s": float(f"{0.9 * able:.2g}")}
    return {}


def _difference(form: LlmForm, other: LlmForm, answer: ServingOut) -> str:
    """What another form asks that the first one does not."""
    words = [
        f"{getattr(other, field):,.{digits}f} {what}"
        for field, what, digits in (
            ("input_tokens", "input tokens", 0),
            ("output_tokens", "output tokens", 0),
            ("requests_per_s", "requests/s", 2),
        )
        if getattr(other, field) != getattr(form, field)
    ]
    if other.device_count != form.device_count or other.tensor_parallel != form.tensor_parallel:
        words.append(f"{answer.device_count:,} devices")
    return ", ".join(words)


def load_chart(metric: str, by_count: Mapping[int, ServingOut]) -> Chart:
    """A metric over the number of concurrent requests, with its interval."""
    known = {n: own for n, answer in by_count.items() if (own := answer.metrics.get(metric))}
    rows = [{"count": count, **interval_cells(own, own.unit)} for count, own in known.items()]
    unit = next((own.unit for own in known.values()), "")
    ends = [end for own in known.values() for end in (own.low, own.value, own.high)]
    y = number("value", unit) if metric == "power_w" else logarithmic("value", unit, ends)
    x = doubling("count", "concurrent requests")
    spec = interval_curve(x, y, count="requests", text="estimate")
    heading = WITH_LENGTHS[metric]
    summary = f"{heading} over the number of concurrent requests, with intervals."
    columns = {"count": "requests", "value": unit, "low": "low", "high": "high"}
    return Chart(heading, summary, spec, rows, columns)
