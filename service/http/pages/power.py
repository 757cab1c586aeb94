"""The page *Power*: time, power and energy of one network at several power limits."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from forerun.data.metrics import TITLES, metric
from forerun.service.http.answers import Answers
from forerun.service.http.pages import run_form
from forerun.service.http.pages.chart import (
    Cell,
    Chart,
    coloured,
    interval_cells,
    interval_curve,
    joined_points,
    label,
    number,
    short,
    shown,
)
from forerun.service.http.pages.rendering import form_page
from forerun.service.http.routes.questions import sweep_of
from forerun.service.http.schemas import SweepIn
from forerun.service.schemas.answers import LimitedOut, SweepOut

PATH = "/power"
USUAL_DEVICE = "a100-pcie-80gb"
CURVES = ("latency_ms", "power_w", "energy_per_sample_j")
"""Metrics that are drawn over the power limit."""


class PowerForm(run_form.RunForm):
    """One network on one device, and the slowdown that a limit may cost."""

    devices: list[run_form.Name] = Field(default=[USUAL_DEVICE], max_length=1)
    slow_down_percent: float = Field(default=10.0, ge=0, le=1000)


def _answer(form: PowerForm, answers: Answers) -> dict[str, Any]:
    """The context of `power_answer.html`."""
    if form.graph is None or not form.devices:
        presets = run_form.network_presets(PATH, [USUAL_DEVICE])
        return {"form": form, "sweep": None, "presets": presets, "further": []}
    asked = form.asked(form.devices[0])
    refused = run_form.refused_runs(form, run_form.device_answers(form, answers), PATH, answers)
    sweep = sweep_of(
        SweepIn(
            workload=form.workload(),
            device=form.devices[0],
            software=asked.software,
            slow_down=form.slow_down_percent / 100,
        ),
        answers,
    )
    device = answers.device(form.devices[0])
    return {
        "subject": f"{form.named} on {label(device)}",
        "form": form,
        "sweep": sweep,
        "refused": refused,
        "device": device,
        "front": front_chart(sweep),
        "curves": [limit_chart(sweep, field) for field in CURVES],
    }


def limit_chart(sweep: SweepOut, field: str) -> Chart:
    """One figure of a run over the power limit, with its interval."""
    title, unit = TITLES[field], metric(field).unit
    rows = [
        {"limit": run.limit_w, **interval_cells(getattr(run, field), unit)} for run in sweep.runs
    ]
    x = number("limit", "power limit, W", scale={"zero": False})
    spec = interval_curve(x, number("value", unit), limit="limit, W", text="estimate")
    first, last = rows[0], rows[-1]
    summary = (
        f"{title} over power limits: {first['text']} at {short(sweep.runs[0].limit_w)} W, "
        f"{last['text']} at {short(sweep.runs[-1].limit_w)} W."
    )
    columns = {"limit": "limit, W", "value": unit, "low": "low", "high": "high"}
    return Chart(title, summary, spec, rows, columns)


def front_chart(sweep: SweepOut) -> Chart:
    """Energy over time of one run at every limit; the advised limits are marked."""
    rows: list[Mapping[str, Cell]] = [
        {"limit": run.limit_w, "ms": run.latency_ms.value, "j": run.energy_j.value,
         "kind": _kind(run, sweep), "text": f"{short(run.limit_w)} W"}
        for run in sweep.runs
    ]  # fmt: skip
    close = {"scale": {"zero": False}}
    x, y = (
        number("ms", "time of one run, ms", **close),
        number("j", "energy of one run, J", **close),
    )
    colour = coloured("kind", (row["kind"] for row in rows))
    tooltip = shown(text="limit", kind="", ms="ms", j="J")
    in_order = {"order": {"field": "limit"}}
    spec = joined_points(x, y, "text", in_order, color=colour, tooltip=tooltip)
    least = sweep.least_energy.limit_w
    summary = f"Energy over time at {len(rows)} power limits; least energy at {short(least)} W."
    columns = {"limit": "limit, W", "ms": "time, ms", "j": "energy, J", "kind": ""}
    return Chart("Energy and time at every power limit", summary, spec, rows, columns)


def _kind(run: LimitedOut, sweep: SweepOut) -> str:
    """What distinguishes a limit from the others."""
    if run.limit_w == sweep.least_energy.limit_w:
        return "least energy"
    if run.limit_w == sweep.within_slow_down.limit_w:
        return "advised"
    return "best trade-off" if run.on_front else "beaten"


router = form_page(PATH, "power", PowerForm, _answer, run_form.form_context)
