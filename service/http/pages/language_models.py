"""The page *Language models*: what serving one takes on several devices."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import Field

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.weights import BYTES
from forerun.data.metrics import TITLES, metric
from forerun.features.readers.language_model.reader import named_models
from forerun.service.answers.llm.estimates import llm_estimates
from forerun.service.answers.llm.support import is_answered
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import (
    Cell,
    Chart,
    category,
    doubling,
    interval_cells,
    interval_curve,
    label,
    layer,
    logarithmic,
    marked,
    quantity,
    short,
    shown,
)
from forerun.service.http.pages.charts import parts_chart
from forerun.service.http.pages.rendering import form_page
from forerun.service.http.pages.run_form import (
    Config,
    EmptyIsAbsent,
    Name,
    Refused,
    in_words,
    model_of,
    refusals,
    sorted_devices,
)
from forerun.service.schemas.answers import IntervalOut, ServingOut
from forerun.service.schemas.llm.answers import DeploymentOut
from forerun.service.schemas.llm.deployment import MOST_DEVICES
from forerun.service.schemas.serving import LlmEstimateIn

PATH = "/llm"
LARGEST_CURVE = 1024
"""Largest number of concurrent requests of the curves, unless the form asks for more."""

METRICS = (
    "ttft_ms", "ttft_service_ms", "tpot_ms", "request_latency_ms", "requests_per_s", "tokens_per_s",
    "tokens_per_s_per_device", "peak_memory_mib", "power_w", "energy_per_token_j",
    "usd_per_million_tokens",
)  # fmt: skip
"""Metrics that the page shows, in order."""

CURVES = ("tokens_per_s", "tpot_ms", "ttft_ms")
"""Metrics that are drawn over the number of concurrent requests."""

MOST_COMPARED = 6
FORMATS = (None, "fp8", "int4")
"""Formats of the weights that are compared; None is that of the form, or as published."""

DEGREES = (1, 2, 4, 8)
"""Degrees of tensor parallelism that are compared."""

USUAL_MODEL = "llama-3.1-8b"

MOST_CHANGES = 24
"""Most changes after which the nearest question that can run is given up."""

CHANGED: Mapping[str, str] = {
    "input_tokens": "input tokens", "output_tokens": "output tokens",
    "requests_per_s": "requests/s",
}  # fmt: skip
"""Field that the nearest question may change -> what it counts."""

Ask = Callable[[Sequence["LlmForm"]], list[ServingOut | InputError]]

Degree = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
Tokens = Annotated[float, Field(ge=1, le=1e7)]


class LlmForm(EmptyIsAbsent):
    """A language model by its name or its config.json, how it is served, and the devices."""

    device: list[Name] = Field(default=["h100-sxm-80gb"], max_length=MOST_COMPARED)
    device_count: Degree | None = None
    name: Name = USUAL_MODEL
    config: Config | None = None
    max_sequences: int = Field(default=64, ge=1, le=65_536)
    weights: Name | None = None
    tensor_parallel: Degree | None = None
    expert_parallel: Degree = 1
    input_tokens: Tokens = 1024
    output_tokens: Tokens = 256
    requests_per_s: float | None = Field(default=None, gt=0, le=1e6)
    engine: EngineName = "vllm"
    usd_per_device_hour: float | None = Field(default=None, ge=0, le=1e6)

    def asked(self, count: int | None = None) -> LlmEstimateIn:
        """The request about the first device.

        Args:
            count: number of concurrent requests; that of the form when None.

        Raises:
            BadRequest: the text of config.json is no JSON.
        """
        same = {"device_count", "input_tokens", "output_tokens", "requests_per_s"}
        content = self.model_dump(include={*same, "usd_per_device_hour"}, exclude_none=True)
        if self.requests_per_s is None:
            content["concurrency"] = count or self.max_sequences
        model = model_of(self.name, self.config) | {"quantization": self.weights}
        parallelism = {"expert": self.expert_parallel}
        if self.tensor_parallel is not None:
            parallelism["tensor"] = self.tensor_parallel
        parts = {"model": model, "engine": {"name": self.engine}, "parallelism": parallelism}
        return LlmEstimateIn.model_validate({**content, **parts, "device": self.device[0]})


@dataclass(frozen=True)
class Served:
    """The answer for one device, or why there is none.

    Attributes:
        form: the form that asks about this device alone.
        device: the spec sheet.
        answer: the estimate, or the error that prevents one.
        by_count: number of concurrent requests -> answer, where there is one.
        refused: why it cannot serve as asked, or why requests wait; None where it can.
    """

    form: LlmForm
    device: Device
    answer: ServingOut | InputError
    by_count: Mapping[int, ServingOut]
    refused: Refused | None = None

    @property
    def title(self) -> str:
        """Number and name of the devices."""
        count = 1 if isinstance(self.answer, InputError) else self.answer.device_count
        return f"{count:,} × {label(self.device)}"

    @property
    def metrics(self) -> Mapping[str, IntervalOut | None]:
        """Metric -> estimate; empty where there is no answer."""
        return {} if isinstance(self.answer, InputError) else self.answer.metrics

    @property
    def deployments(self) -> list[DeploymentOut]:
        """The deployment that answers; empty where there is none."""
        own = None if isinstance(self.answer, InputError) else self.answer.deployment
        return [] if own is None else [own]


def _fields(form: LlmForm, answers: Answers) -> dict[str, Any]:
    return {
        "catalog": list(filter(is_answered, sorted_devices(answers, form.device))),
        "models": named_models(),
        "choices": {
            "weights": {name: name for name in BYTES},
            "engine": {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM",
                       "llama.cpp": "llama.cpp", "other": "another"},
        },
    }  # fmt: skip


def _answer(form: LlmForm, answers: Answers) -> dict[str, Any]:
    """The context of `llm_answer.html`.

    Raises:
        InputError: what the form asks cannot be answered on any of its devices.
    """
    in_use = answers.adaptation.current()

    def ask(forms: Sequence[LlmForm]) -> list[ServingOut | InputError]:
        return llm_estimates([each.asked() for each in forms], answers.device, in_use)

    names = dict.fromkeys(form.device)
    found = [_served(form.model_copy(update={"device": [n]}), answers, ask) for n in names]
    if found and all(isinstance(each.answer, InputError) for each in found):
        raise cast(InputError, found[0].answer)
    served = [each for each in found if not (each.refused and each.refused.fatal)]
    able = [each for each in served if each.deployments]
    charts = (
        *(load_chart(name, able, form.max_sequences) for name in CURVES),
        layouts_chart(able[0].form, label(able[0].device), ask) if able else None,
        parts_chart("Where the time goes", "%", _shares(able)),
        parts_chart("What takes the memory of a device", "MiB", _memory(able)),
    )
    return {
        "subject": f"{form.name} on {', '.join(each.title for each in found)}",
        "description": "; ".join(f"{e.title}: {in_words(e.metrics)}" for e in able),
        "form": form,
        "served": served,
        "others": [each for each in found if each not in served],
        "metrics": METRICS,
        "refused": [each.refused for each in found if each.refused],
        "charts": [chart for chart in charts if chart],
    }


def _served(form: LlmForm, answers: Answers, ask: Ask) -> Served:
    """The answer for the one device of a form."""
    most = max(LARGEST_CURVE, 2 * form.max_sequences)
    powers = {2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most}
    counts = [] if form.requests_per_s else sorted(powers | {form.max_sequences})
    answer, *others = ask([form, *(form.model_copy(update={"max_sequences": n}) for n in counts)])
    if isinstance(answer, InputError):
        answer = _divided(form, ask) or answer
    device = answers.device(form.device[0])
    by_count = {c: o for c, o in zip(counts, others, strict=True) if isinstance(o, ServingOut)}
    refused = None if isinstance(answer, InputError) else _refused(form, answer, ask, device)
    return Served(form, device, answer, by_count, refused)


def _divided(form: LlmForm, ask: Ask) -> ServingOut | None:
    """The answer that says why a model has no room on the given number of devices, None without.

    Where no degree is given, the model is divided over as many as it needs, which may be more.
    """
    if form.device_count is None or form.tensor_parallel is not None:
        return None
    (found,) = ask([form.model_copy(update={"tensor_parallel": form.device_count})])
    return found if isinstance(found, ServingOut) and refusals(found.limit_details) else None


def _refused(form: LlmForm, answer: ServingOut, ask: Ask, device: Device) -> Refused | None:
    """Why the model cannot serve as asked, or all requests at once; None where it can.

    The nearest question that can is part of it.
    """
    why, waiting = refusals(answer.limit_details), _waiting(answer)
    if not why and not waiting:
        return None
    subject = f"{form.name} on {answer.device_count:,} × {label(device)}"
    other = form
    for _ in range(MOST_CHANGES):
        changes = _changes(other, answer)
        if not changes:
            break
        other = other.model_copy(update=changes)
        (found,) = ask([other])
        if isinstance(found, InputError):
            break
        answer = found
        if not refusals(answer.limit_details) and not (_waiting(answer) and waiting):
            rate = answer.metrics.get("tokens_per_s")
            more = f": {quantity(rate.value, rate.unit)}" if waiting and rate else ""
            words = _difference(form, other, answer) + more
            return Refused(subject, why or waiting, words, other.address(PATH), bool(why))
    return Refused(subject, why or waiting, fatal=bool(why))


def _waiting(answer: ServingOut) -> str:
    """That requests wait for a place in the cache; empty where none waits."""
    return next((limit for limit in answer.limits if "the others wait" in limit), "")


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
    if _waiting(answer) and 2 * answer.device_count <= MOST_DEVICES:
        return {"device_count": 2 * answer.device_count}
    return {}


def _difference(form: LlmForm, other: LlmForm, answer: ServingOut) -> str:
    """What another form asks that the first one does not."""
    words = [
        f"{short(getattr(other, field))} {what}"
        for field, what in CHANGED.items()
        if getattr(other, field) != getattr(form, field)
    ]
    if other.device_count != form.device_count or other.tensor_parallel != form.tensor_parallel:
        words.append(f"{answer.device_count:,} devices")
    return ", ".join(words)


def load_chart(name: str, found: Sequence[Served], asked: int) -> Chart | None:
    """A metric over the number of concurrent requests, with its interval; None where not known.

    Args:
        name: the metric.
        found: the answers for each device.
        asked: number of concurrent requests that is marked, as are those that fill a cache.
    """
    rows: list[Mapping[str, Cell]] = [
        {"device": each.title, "count": count, **interval_cells(own, own.unit)}
        for each in found
        for count, answer in each.by_count.items()
        if (own := answer.metrics.get(name))
    ]
    if not rows:
        return None
    unit = metric(name).unit
    ends = [row[end] for row in rows for end in ("low", "value", "high")]
    y = logarithmic("value", unit, (end for end in ends if isinstance(end, float)))
    x = doubling("count", "concurrent requests")
    spec = interval_curve(
        x, y, category("device"), device="device", count="requests", text="estimate"
    )
    places = [int(own.largest_concurrency) for e in found for own in e.deployments[0].memory]
    full = [own for own in places if 1 <= own <= max(c for e in found for c in e.by_count)]
    spec["layer"] += [marked("count", [asked]), marked("count", full, (1, 3))]
    summary = (
        f"{TITLES[name]} over the number of concurrent requests, with intervals. Dashed: {asked:,} "
        f"as asked. Dotted: the caches are full{''.join(f', {n:,}' for n in full)}."
    )
    columns = {"device": "device", "count": "requests", "value": unit, "low": "low", "high": "high"}
    return Chart(TITLES[name], summary, spec, rows, columns)


def _shares(found: Sequence[Served]) -> dict[str, dict[str, float]]:
    """Bar -> part of the work -> its share of a prompt or of an output token, percent."""
    bars: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for each in found:
        device = f", {label(each.device)}" if len(found) > 1 else ""
        for part in each.deployments[0].parts:
            for of, share in (("prompt", part.prefill_share), ("token", part.decode_share)):
                if share is not None:
                    bars[f"{of}{device}"][part.name.replace("_", " ")] = 100.0 * share
    return dict(bars)


def _memory(found: Sequence[Served]) -> dict[str, dict[str, float]]:
    """Bar -> part of the memory of one device, with what is free -> MiB."""
    bars = {}
    for each in found:
        for own in each.deployments[0].memory:
            phase = "" if own.phase == "both" else f", {own.phase}"
            parts = {"weights": own.weights_mib, "cache": own.cache_mib,
                     "activations": own.activations_mib, "context": own.overhead_mib}  # fmt: skip
            free = max(0.0, own.usable_mib - sum(parts.values()))
            bars[f"{label(each.device)}{phase}"] = {**parts, "free": free}
    return bars


def layouts_chart(form: LlmForm, device: str, ask: Ask) -> Chart | None:
    """Rate of a device against rate of a user, for formats of the weights and layouts.

    None where fewer than two of them can serve what the form asks.
    """
    formats = dict.fromkeys(own or form.weights for own in FORMATS)
    asked = [
        form.model_copy(update={"weights": own, "tensor_parallel": degree, "device_count": degree})
        for own in formats
        for degree in DEGREES
    ]
    rows: list[Mapping[str, Cell]] = []
    for each, answer in zip(asked, ask(asked), strict=True):
        if isinstance(answer, InputError) or refusals(answer.limit_details):
            continue
        tpot, rate, price = (
            answer.metrics.get(name)
            for name in ("tpot_ms", "tokens_per_s_per_device", "usd_per_million_tokens")
        )
        if tpot and rate:
            rows.append({
                "weights": each.weights or "as published", "user": 1e3 / tpot.value,
                "device": rate.value, "usd": price.value if price else None,
                "layout": f"tensor parallel {each.tensor_parallel}",
            })  # fmt: skip
    if len(rows) < 2:
        return None
    columns = {
        "weights": "weights", "layout": "layout", "user": "tokens/s of a user",
        "device": "tokens/s of a device", "usd": "USD for a million tokens",
    }  # fmt: skip
    x, y = (
        logarithmic(field, columns[field], [float(str(row[field])) for row in rows])
        for field in ("user", "device")
    )
    shape = category("layout", legend={"orient": "bottom"})
    mark = {"type": "point", "size": 80}
    spec = layer(mark, x=x, y=y, color=category("weights"), shape=shape, tooltip=shown(**columns))
    title = f"Formats of the weights and layouts on {device}"
    return Chart(title, f"{title}: rate of a device over that of a user.", spec, rows, columns)


router = form_page(PATH, "llm", LlmForm, _answer, _fields)
