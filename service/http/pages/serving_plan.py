"""The page *What should I run?*: a model, its traffic and limits, and the plan to serve it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forerun.data.language_models.traces import PACKAGED, read_trace
from forerun.data.list_prices import priced_devices
from forerun.service.answers.llm.planning import llm_plan
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Cell, Chart, layer, number, short, shown
from forerun.service.http.pages.charts import trade_off
from forerun.service.http.pages.request_form import Given, RequestForm, request_page
from forerun.service.schemas.llm.serving_plan import (
    EXAMPLE_PLAN,
    PLAN_FIELDS,
    LlmPlanIn,
    class_of,
    draft_of,
    size_of,
    stock_of,
)
from forerun.service.schemas.llm.serving_plan_answers import FleetOut, PlannedServingOut

FORM: Final = RequestForm(
    path="/plan",
    kind=LlmPlanIn,
    fields=PLAN_FIELDS,
    instead={
        **dict.fromkeys(("input_tokens", "output_tokens"), "sizes trace requests classes"),
        "sizes": "input_tokens output_tokens trace requests classes",
        "classes": "requests_per_s input_tokens output_tokens sizes trace requests",
        "trace": "input_tokens output_tokens sizes requests classes",
        "requests": "input_tokens output_tokens sizes trace classes",
    },
    choices={"trace": PACKAGED},
    lists={
        "formats": lambda text: text.replace(",", " ").split(),
        "devices": lambda text: [*map(stock_of, text.replace(",", " ").split())],
        "sizes": lambda text: [*map(size_of, text.split())],
        "classes": lambda text: [*map(class_of, text.split())],
        "drafts": lambda text: [*map(draft_of, text.split())],
        "requests": lambda text: read_trace(text).rows(),
    },
)


def _examples() -> dict[str, Any]:
    """What a form without a question needs: examples of numbers, and devices with a list price."""
    example = {name: f"such as {own}" for name, own in EXAMPLE_PLAN.items()}
    return {"priced": priced_devices(), "example": example}


def _answer(given: Given, answers: Answers) -> dict[str, Any]:
    """The context of `plan_answer.html`.

    Raises:
        InputError, ValidationError: what is given is not valid, or cannot be answered.
    """
    plan = llm_plan(FORM.asked(given), answers.device, answers.adaptation.current())
    return {
        "subject": f"{given.get('name', 'your model')}: {plan.title()}",
        "plan": plan,
        "front": front_chart(plan.front),
        "fleet": plan.fleet and fleet_chart(plan.fleet),
        "address": None if "requests" in given else f"{FORM.address(given)}&engine=",
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


router = request_page(FORM, _answer, _examples)
