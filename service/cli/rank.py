"""`forerun rank`: rank devices that meet limits by an objective."""

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
    from forerun.service.schemas.answers import RankOut

if TYPE_CHECKING:
    from forerun.service.stores.devices import DeviceStore


@takes_set_up
def rank(
    source: o.Source,
    device: Annotated[
        list[str] | None, typer.Option(help="name of a device; may be repeated [all devices]")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="objective: latency_ms, energy_j, power_w, peak_memory_mib, ...")
    ] = "latency_ms",
    max_latency_ms: Annotated[
        float | None, typer.Option(help="largest latency of a run, ms")
    ] = None,
    max_power_w: Annotated[float | None, typer.Option(help="largest average power, W")] = None,
    max_memory_mib: Annotated[float | None, typer.Option(help="largest peak memory, MiB")] = None,
    fits: Annotated[bool, typer.Option(help="only devices with sufficient memory")] = True,
    in_domain_only: Annotated[
        bool, typer.Option(help="only devices whose predictions are in domain")
    ] = False,
    risk: Annotated[
        str, typer.Option(help="what must meet the limits: high (of the interval) or value")
    ] = "high",
    price: Annotated[
        list[str] | None, typer.Option(help="price of an hour, such as l4=0.71; may be repeated")
    ] = None,
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
    """Rank devices that meet the limits by an objective, and say why the others do not."""
    given = {**locals(), **set_up}
    answer = _ranked(given)
    if json:
        print_json(answer)
    else:
        _show(source.name, answer)


def _ranked(given: dict[str, Any]) -> "RankOut":
    from forerun.service.answers.ranking import Goal, Limits, ranked
    from forerun.service.schemas.answers import Objective, Risk

    for name, kind in (("objective", Objective), ("risk", Risk)):
        if given[name] not in get_args(kind):
            words = ", ".join(get_args(kind))
            raise InputError(f"--{name} {given[name]!r} is none of {words}.")
    devices, in_use = o.answering()
    names = [name for listed in given["device"] or () for name in listed.split(",")]
    chosen = list(dict.fromkeys(map(devices.get, names))) if names else list(devices.catalog)
    about = o.query_of(given)
    queries = [about(each) for each in chosen]
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


def _show(source: str, answer: "RankOut") -> None:
    from forerun.data.metrics import metric
    from forerun.service.answers.ranking import RANKING_METRICS
    from forerun.service.cli.answer_table import NOT_CALIBRATED, fit_word, table
    from forerun.service.cli.output import screen

    out, objective = screen(), answer.objective
    out.print(f"\n[bold]{source}[/bold] by {objective}")
    headings = ("latency", "memory", "power", "energy", "fits")
    rows = table("", objective, "90 % interval", *headings)
    for row in answer.ranked:
        aim = row.objective
        ends = "" if aim.low is None else f"{aim.low:,.4g} to {aim.high:,.4g}"
        ends += " *" if aim.low is not None and aim.coverage is None else ""
        metrics = (row.metrics[name] for name in RANKING_METRICS)
        values = (
            metric(n).text(None if e is None else e.value)
            for n, e in zip(RANKING_METRICS, metrics, strict=True)
        )
        name = f"{row.rank:>3} {row.device.name}"
        rows.add_row(name, f"{aim.value:,.4g}", ends, *values, fit_word(row.fits))
    out.print(rows if answer.ranked else "no device meets the limits")
    if any(row.objective.coverage is None for row in answer.ranked):
        out.print(NOT_CALIBRATED)
    for left in answer.excluded:
        out.print(f"left out: {left.device.name}: {'; '.join(left.reasons)}", markup=False)
