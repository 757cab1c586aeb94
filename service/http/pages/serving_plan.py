"""The page *What should I run?*: a model, its traffic and limits, and the plan to serve it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import HTMLResponse

from forerun.data.errors import InputError, in_field
from forerun.data.language_models.traces import PACKAGED, read_trace
from forerun.data.list_prices import priced_devices
from forerun.features.readers.language_model.reader import named_models
from forerun.service.answers.llm.planning import llm_plan
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Cell, Chart, layer, number, short, shown
from forerun.service.http.pages.charts import trade_off
from forerun.service.http.pages.rendering import (
    asks_for_part,
    page_or_part,
    page_router,
    problem_page,
)
from forerun.service.http.pages.run_form import form_field, gpus, model_of
from forerun.service.http.state import TheAnswers, TheBody
from forerun.service.problems import Problem, problem_of, unfit
from forerun.service.requests.field_names import renamed
from forerun.service.schemas.llm.serving_plan import (
    EXAMPLE_PLAN,
    PLAN_FIELDS,
    WRITTEN,
    LlmPlanIn,
    size_of,
    stock_of,
)
from forerun.service.schemas.llm.serving_plan_answers import FleetOut, PlannedServingOut

PATH: Final = "/plan"
LISTS: Final[Mapping[str, Callable[[str], list[Any]]]] = {
    "formats": lambda text: text.replace(",", " ").split(),
    "devices": lambda text: [*map(stock_of, text.replace(",", " ").split())],
    "sizes": lambda text: [*map(size_of, text.split())],
    "requests": lambda text: read_trace(text).rows(),
}
"""Field with a list -> how its text is read."""
router = page_router()


@cache
def _fields() -> Mapping[str, dict[str, Any]]:
    """Each field of a plan but for the model, in the order of the schema."""
    paths = PLAN_FIELDS.paths.items()
    found = {name: form_field(name, PLAN_FIELDS.fields[path]) for name, path in paths}
    found["trace"]["choices"] = PACKAGED
    return found


def _asked(given: Mapping[str, str]) -> LlmPlanIn:
    """The request for a plan.

    Raises:
        InputError, ValidationError: what is given is not valid.
    """
    content: dict[str, Any] = dict(given)
    with in_field("model"):
        model = model_of(content.pop("name", None), content.pop("config", None))
    for name in content.keys() & LISTS.keys():
        with in_field(name):
            content[name] = LISTS[name](content[name])
    asked: LlmPlanIn = LlmPlanIn.model_validate(PLAN_FIELDS.request(content) | {"model": model})
    return asked


def _field_of(path: str) -> str:
    """The field of the form at a path of the request."""
    names = {"model": "name"} | {own: name for name, own in PLAN_FIELDS.paths.items()}
    part = path.partition(".")[0]
    return names.get(path, names.get(part, path))


def _label(path: str) -> str:
    """What the form calls the field at a path of the request."""
    name, last = _field_of(path), path.rpartition(".")[2]
    label = "Model" if name == "name" else _fields().get(name, {}).get("label", path)
    label = label.partition(",")[0]
    return f"{WRITTEN[last]} of {label.lower()}" if last in WRITTEN else label


def _problem(error: InputError | ValidationError) -> Problem:
    """What is wrong, with fields as the form names them."""
    if isinstance(error, ValidationError):
        return unfit(error.errors(), name_of=_label)
    names = {name: _label(path).lower() for name, path in PLAN_FIELDS.paths.items()}
    found = problem_of(error)
    for one in (found, *(found.errors or ())):
        one.detail = renamed(one.detail, names | {"usd_per_device_hour": "NAME@USD"})
    return found


@router.get(PATH)
@router.post(PATH)
def plan_page(request: Request, body: TheBody, answers: TheAnswers) -> HTMLResponse:
    """The plan of the form, whose fields are those of POST /v1/llm/plan by the names of options.

    A form with a trace of its own is the body of the request, since no address is as long.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(f"{request.url.query}&{body.decode(errors='replace')}"):
        own = "name" if name == "model" else name
        given[own] = f"{given[own]} {value}" if own in given else value

    def form() -> dict[str, Any]:
        return {
            "given": given,
            "form": {name: given.get(name) for name in ("name", "config")},
            "fields_of": _fields(),
            "usual": EXAMPLE_PLAN,
            "catalog": gpus(answers, ()),
            "priced": priced_devices(),
            "models": named_models(),
        }

    try:
        asks = given or asks_for_part(request)
        answer = _answer(given, answers) if asks else {"plan": None}
    except (InputError, ValidationError) as error:
        return problem_page(request, _problem(error), _field_of, "plan.html", form)
    return page_or_part(request, "plan", PATH, answer, form)


def _answer(given: Mapping[str, str], answers: Answers) -> dict[str, Any]:
    """The context of `plan_answer.html`.

    Raises:
        InputError, ValidationError: what is given is not valid, or cannot be answered.
    """
    plan = llm_plan(_asked(given), answers.device, answers.adaptation.current())
    return {
        "subject": f"{given.get('name', 'your model')}: {plan.title()}",
        "plan": plan,
        "front": front_chart(plan.front),
        "fleet": plan.fleet and fleet_chart(plan.fleet),
        "address": None if "requests" in given else f"{PATH}?{urlencode(given)}&engine=",
    }


def fleet_chart(fleet: FleetOut) -> Chart:
    """Replicas over time as steps, over the rate of requests."""
    count, width_h = len(fleet.replicas), fleet.window_s / 3600
    rates, replicas = ([*own, own[-1]] for own in (fleet.requests_per_s, fleet.replicas))
    rows: list[Mapping[str, Cell]] = [
        {"hours": place * width_h, "rate": rates[place], "replicas": replicas[place]}
        for place in range(count + 1)
    ]
    columns = {"hours": "from, hours", "rate": "requests a second", "replicas": "replicas"}
    x, label = number("hours", "hours from the first request"), shown(**columns)
    rate = number("rate", "requests a second (area)", axis={"orient": "right", "grid": False})
    y = number("replicas", "replicas (line; dashed: fixed fleet)")
    load = {"type": "area", "interpolate": "step-after", "opacity": 0.25}
    line = {"type": "line", "interpolate": "step-after", "color": "var(--c2)"}
    dashed, most = {"type": "rule", "strokeDash": [6, 4]}, {"replicas": fleet.fixed_replicas}
    spec = {
        "layer": [
            layer(load, x=x, y=rate, tooltip=label),
            {"layer": [layer(line, x=x, y=y), {"data": {"values": [most]}, **layer(dashed, y=y)}]},
        ],
        "resolve": {"scale": {"y": "independent"}},
    }
    summary = (
        f"{min(fleet.replicas):,} to {max(fleet.replicas):,} replicas in {count:,} windows of "
        f"{short(fleet.window_s)} s, over the rate of requests; fixed: {fleet.fixed_replicas:,}."
    )
    return Chart("Replicas over time against the load", summary, spec, rows, columns)


def front_chart(front: Sequence[PlannedServingOut]) -> Chart | None:
    """Price, or power where no price is known, over the time of a request.

    None where there are fewer than two options.
    """
    cost = "usd_per_hour" if any(one.usd_per_hour is not None for one in front) else "power_w"
    rows: list[Mapping[str, Cell]] = [
        {"devices": f"{one.devices} {one.device.partition('-')[0]}", "seconds": own.value / 1e3,
         "cost": getattr(one, cost), "option": one.words()}
        for one in front
        if (own := one.metrics.get("request_latency_ms")) and getattr(one, cost) is not None
    ]  # fmt: skip
    unit = {"usd_per_hour": "USD an hour", "power_w": "W of all devices"}[cost]
    columns = {"devices": "", "seconds": "s for a request", "cost": unit, "option": "option"}
    return trade_off("What speed costs", rows, ("seconds", "cost"), columns)
