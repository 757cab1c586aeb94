"""Fleets over time, as answers to plans have them."""

from contextlib import suppress
from math import floor
from typing import Final

from forerun.data.errors import UnanswerableQuery, in_field
from forerun.data.grid_carbon import Grid
from forerun.models.answers.deployments.fleets import replayed
from forerun.models.answers.deployments.plans import PlanPricing
from forerun.models.answers.served_models import InUse
from forerun.models.llm_serving.fleet import (
    Autoscaling,
    Fleet,
    Traffic,
    fleet_over_time,
    servers_under,
)
from forerun.models.llm_serving.plans import ServingLimits, ServingOption
from forerun.service.answers.llm.mixing import known
from forerun.service.schemas.llm.serving_plan import LlmPlanIn
from forerun.service.schemas.llm.serving_plan_answers import (
    FleetCostOut,
    FleetOut,
    FleetReplayOut,
    PowerCapOut,
)

REPLAYED: Final = 30_000
"""Requests that the event model replays at most, about."""


def fleet_out(
    first: ServingOption, asked: LlmPlanIn, limits: ServingLimits, grid: Grid | None, in_use: InUse
) -> FleetOut | None:
    """The first option of a plan over the windows of a trace; None where no window is given.

    Raises:
        BadRequest: the trace has no span, or too many windows.
    """
    requests = asked.traced()
    if asked.window_s is None or requests is None:
        return None
    with in_field("window_s"):
        traffic = Traffic.of(requests, asked.window_s, asked.load())
    found = fleet_over_time(
        first.unit, traffic, PlanPricing(in_use), limits,
        Autoscaling(asked.startup_s, asked.stabilization_s),
    )  # fmt: skip
    replay = None
    with suppress(UnanswerableQuery):
        replay = replayed(found, limits.times, in_use, most=REPLAYED)
    scaled, fixed = (
        FleetCostOut(
            device_hours=own.device_hours,
            kwh=known(own.kwh),
            usd=known(own.device_hours * first.unit.stock.usd),
            kg_co2=None if grid is None else known(own.kwh * grid.g_co2_per_kwh / 1e3),
        )
        for own in found.totals()
    )
    return FleetOut(
        window_s=traffic.width_s,
        fixed_replicas=int(found.wanted.max()),
        requests_per_s=traffic.rates.tolist(),
        replicas=found.ready.tolist(),
        power_kw=[*map(known, found.kilowatts().tolist())],
        keeps=(~found.missed).tolist(),
        scaled=scaled,
        fixed=fixed,
        missed_share=found.missed_share,
        replay=None if replay is None else FleetReplayOut.filled(replay),
        cap=_cap(found, asked),
    )


def _cap(found: Fleet, asked: LlmPlanIn) -> PowerCapOut | None:
    if asked.cap_kw is None:
        return None
    watts, tdp_w = 1e3 * asked.cap_kw, found.unit.query.device.tdp_w
    return PowerCapOut(
        cap_kw=asked.cap_kw,
        risk=asked.cap_risk,
        server_devices=found.server_devices,
        by_design_power=None if tdp_w is None else floor(watts / (found.server_devices * tdp_w)),
        design_kw=tdp_w and int(found.ready.max()) * found.unit.devices * tdp_w / 1e3,
        servers=servers_under(found, watts, asked.cap_risk),
        servers_if_exact=servers_under(found, watts, asked.cap_risk, certain=True),
    )
