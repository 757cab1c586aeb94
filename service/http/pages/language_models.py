"""The page *Language models*: what serving one takes on several devices."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from forerun.data.device import Device
from forerun.data.errors import BadRequest, InputError, in_field
from forerun.data.language_models.weights import BYTES
from forerun.data.metrics import TITLES, metric
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
from forerun.service.http.pages.request_form import Given, RequestForm, request_page
from forerun.service.http.pages.run_form import (
    Refused,
    doublings,
    in_words,
    refusals,
)
from forerun.service.schemas.answers import IntervalOut, ServingOut
from forerun.service.schemas.llm.answers import DeploymentOut
from forerun.service.schemas.llm.deployment import MOST_DEVICES
from forerun.service.schemas.serving import SERVING_FIELDS, LlmEstimateIn

MOST_REQUESTS = 1_000_000
"""Largest number of concurrent requests that is answered."""

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

MOST_CHANGES = 24
"""Most changes after which the nearest question that can run is given up."""

CHANGED: Mapping[str, str] = {
    "input_tokens": "input tokens", "output_tokens": "output tokens",
    "requests_per_s": "requests/s",
}  # fmt: skip
"""Field that the nearest question may change -> what it counts."""

Ask = Callable[[Sequence[Given]], list[ServingOut | InputError]]
FORM: Final = RequestForm(
    path="/llm",
    kind=LlmEstimateIn,
    fields=SERVING_FIELDS,
    usual={
        **{"name": "llama-3.1-8b", "device": "h100-sxm-80gb"},
        **{"input_tokens": "1024", "output_tokens": "256", "concurrency": "64"},
    },
    instead={
        "concurrency": "requests_per_s num_prompts",
        "requests_per_s": "concurrency",
        "num_prompts": "concurrency",
        "command": "name config input_tokens output_tokens concurrency",
    },
    choices={"quantization": {name: name for name in BYTES}},
    boxes=frozenset({"device"}),
    offers=is_answered,
)


@dataclass(frozen=True)
class Served:
    """The answer for one device, or why there is none.

    Attributes:
        given: what is asked about this device alone.
        name: what the page calls the model.
        device: the spec sheet.
        answer: the estimate, or the error that prevents one.
        asked: number of concurrent requests; None where another load is asked.
        by_count: number of concurrent requests -> answer, where there is one.
        refused: why it cannot serve as asked, or why requests wait; None where it can.
    """

    given: Given
    name: str
    device: Device
    answer: ServingOut | InputError
    asked: float | None
    by_count: Mapping[float, ServingOut]
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


def _answer(given: Given, answers: Answers) -> dict[str, Any]:
    """The context of `llm_answer.html`.

    Raises:
        InputError, ValidationError: what is given is not valid, or cannot be answered on any of the
            devices.
    """
    in_use = answers.adaptation.current()

    def ask(given: Sequence[Given]) -> list[ServingOut | InputError]:
        return llm_estimates([FORM.asked(each) for each in given], answers.device, in_use)

    names = dict.fromkeys(given["device"].split())
    if len(names) > MOST_COMPARED:
        with in_field("device"):
            raise BadRequest(f"{len(names)} devices are more than {MOST_COMPARED}: leave some out.")
    found = [_served({**given, "device": name}, answers, ask) for name in names]
    if found and all(isinstance(each.answer, InputError) for each in found):
        raise cast(InputError, found[0].answer)
    served = [each for each in found if not (each.refused and each.refused.fatal)]
    able = [each for each in served if each.deployments]
    charts = (
        *(load_chart(name, able) for name in CURVES),
        layouts_chart(able[0].given, label(able[0].device), ask) if able else None,
        parts_chart("Where the time goes", "%", _shares(able)),
        parts_chart("What takes the memory of a device", "MiB", _memory(able)),
    )
    name = found[0].name if found else ""
    return {
        "subject": f"{name} on {', '.join(each.title for each in found)}",
        "description": "; ".join(f"{e.title}: {in_words(e.metrics)}" for e in able),
        "name": name,
        "served": served,
        "others": [each for each in found if each not in served],
        "metrics": METRICS,
        "refused": [each.refused for each in found if each.refused],
        "charts": [chart for chart in charts if chart],
    }


def _served(given: Given, answers: Answers, ask: Ask) -> Served:
    """The answer for the one device of a question."""
    asked = FORM.asked(given)
    name, count = given.get("name") or asked.model.name or "your model", asked.concurrency
    counts = doublings(count, MOST_REQUESTS) if count else []
    answer, *others = ask([given, *({**given, "concurrency": own} for own in counts)])
    if isinstance(answer, InputError):
        answer = _divided(given, ask) or answer
    with in_field("device"):
        device = answers.device(given["device"])
    by_count = {c: o for c, o in zip(counts, others, strict=True) if isinstance(o, ServingOut)}
    served = Served(given, name, device, answer, count, by_count)
    return (
        served
        if isinstance(answer, InputError)
        else replace(served, refused=_refused(given, f"{name} on {served.title}", answer, ask))
    )


def _divided(given: Given, ask: Ask) -> ServingOut | None:
    """The answer that says why a model has no room on the given number of devices, None without.

    Where no degree is given, the model is divided over as many as it needs, which may be more.
    """
    if "device_count" not in given or "tensor" in given:
        return None
    (found,) = ask([{**given, "tensor": given["device_count"]}])
    return found if isinstance(found, ServingOut) and refusals(found.limit_details) else None


def _refused(given: Given, subject: str, answer: ServingOut, ask: Ask) -> Refused | None:
    """Why the model cannot serve as asked, or all requests at once; None where it can.

    The nearest question that can is part of it.
    """
    why, waiting = refusals(answer.limit_details), _waiting(answer)
    if not why and not waiting:
        return None
    other: Given = given
    for _ in range(MOST_CHANGES):
        changes = _changes(other, answer)
        if not changes:
            break
        other = {**other, **changes}
        (found,) = ask([other])
        if isinstance(found, InputError):
            break
        answer = found
        if not refusals(answer.limit_details) and not (_waiting(answer) and waiting):
            rate = answer.metrics.get("tokens_per_s")
            more = f": {quantity(rate.value, rate.unit)}" if waiting and rate else ""
            words = _difference(given, other, answer) + more
            return Refused(subject, why or waiting, words, FORM.address(other), bool(why))
    return Refused(subject, why or waiting, fatal=bool(why))


def _waiting(answer: ServingOut) -> str:
    """That requests wait for a place in the cache; empty where none waits."""
    return next((limit for limit in answer.limits if "the others wait" in limit), "")


def _changes(given: Given, answer: ServingOut) -> dict[str, Any]:
    """Fields that bring a question nearer to one that can run; empty for none."""
    load = FORM.asked(given).load()
    most, deployment = answer.model and answer.model.most_tokens, answer.deployment
    if most and load.input_tokens + load.output_tokens > most:
        output = min(load.output_tokens, float(most // 2))
        return {"input_tokens": most - output, "output_tokens": output}
    if deployment is None:
        return {}
    if not all(own.fits for own in deployment.memory):
        if given.get("device_count") or given.get("tensor"):
            return {"device_count": None, "tensor": None}
        return {"input_tokens": load.input_tokens // 2} if load.input_tokens >= 2 else {}
    if load.requests_per_s and deployment.capacity:
        able = min(deployment.capacity.requests_per_s, load.requests_per_s)
        return {"requests_per_s": float(f"{0.9 * able:.2g}")}
    if _waiting(answer) and 2 * answer.device_count <= MOST_DEVICES:
        return {"device_count": 2 * answer.device_count}
    return {}


def _difference(given: Given, other: Given, answer: ServingOut) -> str:
    """What another question asks that the first one does not."""
    changed = {name for name, own in other.items() if own != given.get(name)}
    words = [f"{short(other[name])} {what}" for name, what in CHANGED.items() if name in changed]
    if changed & {"device_count", "tensor"}:
        words.append(f"{answer.device_count:,} devices")
    return ", ".join(words)


def load_chart(name: str, found: Sequence[Served]) -> Chart | None:
    """A metric over the number of concurrent requests, with its interval; None where not known.

    Args:
        name: the metric.
        found: the answers for each device. The number of requests that is asked is marked, and
            those that fill a cache.
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
    asked = found[0].asked or 0.0
    spec["layer"] += [marked("count", [asked]), marked("count", full, (1, 3))]
    summary = (
        f"{TITLES[name]} over the number of concurrent requests, with intervals. Dashed: "
        f"{asked:,.0f} as asked. Dotted: the caches are full{''.join(f', {n:,}' for n in full)}."
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


def layouts_chart(given: Given, device: str, ask: Ask) -> Chart | None:
    """Rate of a device against rate of a user, for formats of the weights and layouts.

    None where fewer than two of them can serve what is asked.
    """
    formats = dict.fromkeys(own or given.get("quantization") for own in FORMATS)
    asked = [
        {**given, "quantization": own, "tensor": degree, "device_count": degree}
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
                "weights": each["quantization"] or "as published", "user": 1e3 / tpot.value,
                "device": rate.value, "usd": price.value if price else None,
                "layout": f"tensor parallel {each['tensor']}",
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


router = request_page(FORM, _answer)
