"""`forerun rank`: which of many devices meet the limits, in which order?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.workload import Network
from forerun.service.cli import options as o
from forerun.service.cli.output import print_json
from forerun.service.cli.set_up import takes_set_up

if TYPE_CHECKING:
    from forerun.service.stores.devices import DeviceStore


@takes_set_up
def rank(
    source: o.Source,
    device: Annotated[
        list[str] | None, typer.Option(help="name; repeat for several, all when absent")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="latency_ms, energy_j, power_w, peak_memory_mib, ...")
    ] = "latency_ms",
    max_latency_ms: Annotated[float | None, typer.Option(help="a run takes no longer")] = None,
    max_power_w: Annotated[float | None, typer.Option(help="average power, at most")] = None,
    max_memory_mib: Annotated[float | None, typer.Option(help="peak memory, at most")] = None,
    fits: Annotated[bool, typer.Option(help="only devices with memory enough")] = True,
    in_domain_only: Annotated[bool, typer.Option(help="only what was measured alike")] = False,
    risk: Annotated[str, typer.Option(help="limits judge the interval's high, or value")] = "high",
    price: Annotated[list[str] | None, typer.Option(help="l4=0.71 an hour; repeat")] = None,
    batch_size: o.BatchSize = 1,
    precision: o.Precision = "fp32",
    phase: o.Phase = "inference",
    runtime: o.UsualRuntime = None,
    threads: o.Threads = None,
    layout: o.Layout = "nchw",
    sequence_length: o.SequenceLength = None,
    power_limit: o.PowerLimit = None,
    json: o.Json = False,
    **set_up: Any,
) -> None:
    """Devices that meet the limits in order of an objective, and why the others do not."""
    given = {**locals(), **set_up}
    found = _ranked(given)
    if json:
        print_json(found)
    else:
        _show(source.name, found)


def _ranked(given: dict[str, Any]) -> dict[str, Any]:
    from forerun.service.answers.ranking import Goal, Limits, Objective, Risk, ranked

    for name, kind in (("objective", Objective), ("risk", Risk)):
        if given[name] not in get_args(kind):
            words = ", ".join(get_args(kind))
            raise InputError(f"--{name} {given[name]!r} is none of {words}.")
    devices, in_use = o.answering()
    names = [name for listed in given["device"] or () for name in listed.split(",")]
    chosen = list(dict.fromkeys(map(devices.get, names))) if names else list(devices.catalog)
    about = o.query_of(given)
    queries = [about(one) for one in chosen]
    workload = queries[0].workload
    samples = workload.batch_size if isinstance(workload, Network) else 1
    goal = Goal(given["objective"], samples, _prices(given["price"] or (), devices))
    most = {
        "latency_ms": given["max_latency_ms"],
        "power_w": given["max_power_w"],
        "peak_memory_mib": given["max_memory_mib"],
    }
    limits = Limits(
        {name: limit for name, limit in most.items() if limit is not None},
        given["fits"],
        given["in_domain_only"],
        given["risk"],
    )
    return ranked(queries, goal, limits, in_use)


def _prices(given: Sequence[str], devices: "DeviceStore") -> dict[Device, float]:
    prices = {}
    for text in (part for listed in given for part in listed.split(",")):
        name, _, price = text.partition("=")
        try:
            prices[devices.get(name)] = float(price)
        except ValueError:
            raise InputError(f"--price {text!r}: write it as l4=0.71.") from None
    return prices


def _show(source: str, found: dict[str, Any]) -> None:
    from forerun.data.metrics import metric
    from forerun.service.answers.ranking import RANKING_METRICS
    from forerun.service.cli.answer_table import NOT_CALIBRATED, fit_word, table
    from forerun.service.cli.output import screen

    out, objective = screen(), found["objective"]
    out.print(f"\n[bold]{source}[/bold] by {objective}")
    headings = ("latency", "memory", "power", "energy", "fits")
    rows = table("", objective, "90 % interval", *headings)
    for row in found["ranked"]:
        aim = row["objective"]
        ends = "" if aim["low"] is None else f"{aim['low']:,.4g} to {aim['high']:,.4g}"
        ends += " *" if aim["low"] is not None and aim["coverage"] is None else ""
        metrics = (row["metrics"][name] for name in RANKING_METRICS)
        values = (
            metric(n).text(e and e["value"]) for n, e in zip(RANKING_METRICS, metrics, strict=True)
        )
        index = f"{row['rank']:>3} {row['device']['name']}"
        rows.add_row(index, f"{aim['value']:,.4g}", ends, *values, fit_word(row["fits"]))
    out.print(rows if found["ranked"] else "no device meets the limits")
    if any(row["objective"]["coverage"] is None for row in found["ranked"]):
        out.print(NOT_CALIBRATED)
    for row in found["excluded"]:
        out.print(f"left out: {row['device']['name']}: {'; '.join(row['reasons'])}", markup=False)
