"""What does a fleet of 1,000 GPUs need over a week of traffic? Printed as a Markdown table.

`python -m forerun.training.reports.fleet` takes the two traces of Azure (2023). Each lasts an hour;
it is stretched to a day, so that one minute stands for 25, and repeated seven times. The cheapest
layout of Llama 3.1 70B that keeps the limits and has no pipeline stages is planned. The request
rate is chosen so that the busiest window of 15 minutes needs 1,000 GPUs. The table shows the share
of requests that keep the limits among those that the event model replays (it cannot replay pipeline
stages), the savings over a fixed fleet of 1,000 GPUs, how many servers of eight GPUs fit into the
design power of 125 servers' GPUs, and the processor time of it all in seconds. For comparison,
POLCA (Patel et al., ASPLOS 2024) adds 30 % of servers in a simulation that caps frequencies when
the power is exceeded, on unpublished traces and with the power of whole servers.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from time import process_time
from typing import Final

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import Engine
from forerun.data.language_models.requests import Requests
from forerun.data.language_models.traces import named_trace
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.deployments.fleets import replayed
from forerun.models.answers.deployments.plans import PlanPricing
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.llm_serving.fleet import (
    Autoscaling,
    Fleet,
    Traffic,
    fleet_over_time,
    servers_under,
)
from forerun.models.llm_serving.plans import ServingLimits, Stock, plan

MODEL: Final = "meta-llama/Llama-3.1-70B"
TRACES: Final = ("splitwise_conv", "splitwise_code")
DEVICES: Final = ("a100-sxm-80gb", "h100-sxm-80gb")
LIMITS: Final = ServingLimits({"ttft_ms": 2000.0, "tpot_ms": 75.0})
GPUS: Final = 1_000
TRIED: Final = 50.0
"""Request rate, per second, for which the replicas of the busiest window are counted first."""
KEPT: Final = 20
WINDOW_S: Final = 900.0
DAY_S: Final = 86_400.0
DAYS: Final = 7
REPLAYED: Final = 300_000
RISK: Final = 0.01
COLUMNS: Final = (
    "trace | replica | requests/s | limits not held | replayed | keep the limits | windows | "
    "fewer hours | less energy | servers at risk 0.01 | if power is exact | CPU s"
)


def main() -> None:
    """Print a line for each trace and type of device."""
    in_use = InUse(bundled(Scope(frozenset({"llm_deployment", "llm_serving"}))))
    print(f"| {COLUMNS} |\n|{'---|' * len(COLUMNS.split('|'))}")
    for trace, device in product(TRACES, DEVICES):
        print(f"| {trace} | {' | '.join(row(trace, device, in_use))} |")


def week_of(trace: Requests, days: int = DAYS) -> Requests:
    """A trace stretched to a day, and repeated."""
    span_s = trace.arrival_s[-1] - trace.arrival_s[0]
    arrival_s = (trace.arrival_s - trace.arrival_s[0]) * DAY_S / span_s
    several = [replace(trace, arrival_s=arrival_s + day * DAY_S) for day in range(days)]
    return Requests.concatenate(several)


def row(trace: str, name: str, in_use: InUse) -> Iterator[str]:
    """The cells of a trace and a type of device."""
    began = process_time()
    requests, pricing = week_of(named_trace(trace)), PlanPricing(in_use)
    device, load = DeviceCatalog.load().get(name), replace(requests.load(), requests_per_s=TRIED)
    found = plan(
        [named_language_model(MODEL)], load, [Engine()], [Stock(device, GPUS)], pricing,
        limits=LIMITS, objective="devices", kept=KEPT,
    )  # fmt: skip
    units = [option.unit for option in found.best]
    unit = next(own for own in units if own.query.deployment.pool.parallelism.pipeline == 1)

    def fleet_at(rate: float) -> Fleet:
        traffic = Traffic.of(requests, WINDOW_S, replace(load, requests_per_s=rate))
        return fleet_over_time(unit, traffic, pricing, LIMITS, Autoscaling(120.0, 300.0))

    rate = TRIED * GPUS / (unit.devices * fleet_at(TRIED).wanted.max())
    fleet = fleet_at(rate)
    check = replayed(fleet, LIMITS.times, in_use, most=REPLAYED)
    assert check is not None, "the busiest window has all GPUs that it needs"
    (own, fixed), count = fleet.totals(), GPUS // fleet.server_devices
    cap_w = count * fleet.server_devices * (device.tdp_w or 0.0)
    yield f"{unit.devices} {name}, {int(fleet.wanted.min())} to {int(fleet.wanted.max())}"
    yield f"{rate:,.0f}"
    yield f"{100 * fleet.missed_share:.1f} %"
    yield f"{check.requests:,}"
    yield f"{100 * check.kept:.2f} % ({100 * check.low:.2f} to {100 * check.high:.2f})"
    yield f"{100 * check.windows_kept:.1f} %"
    yield f"{100 * (1 - own.device_hours / fixed.device_hours):.0f} %"
    yield f"{100 * (1 - own.kwh / fixed.kwh):.0f} %"
    for certain in (False, True):
        number = servers_under(fleet, cap_w, RISK, certain=certain)
        yield "-" if number is None else f"{number} (+{100 * (number / count - 1):.0f} %)"
    yield f"{process_time() - began:.0f}"


if __name__ == "__main__":
    main()
