"""`forerun rank`: devices by an objective. `forerun sweep`: time and energy by power limit."""

from collections.abc import Mapping, Sequence
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.options import takes_run
from forerun.service.cli.output import print_json, progress, show, working
from forerun.service.schemas.run_options import PlainRunIn, RunIn

if TYPE_CHECKING:
    from forerun.service.answers.ranking import Limits
    from forerun.service.schemas.answers import RankOut, SweepOut


@takes_run
def rank(
    source: o.Source,
    device: list[str] | None = None,
    objective: str = "latency_ms",
    max_latency_ms: float | None = None,
    max_power_w: float | None = None,
    max_memory_mib: float | None = None,
    fits: bool = True,
    in_domain_only: bool = False,
    risk: str = "high",
    prices_per_hour: Annotated[list[str] | None, typer.Option("--price")] = None,
    *,
    run: RunIn,
    json: o.Json = False,
) -> None:
    """Rank devices that meet the limits by an objective, and say why the others do not.

    Args:
        source: model file or name, as for `forerun predict`
        device: name of a device; may be repeated [all devices]
        objective: objective: latency_ms, energy_j, power_w, peak_memory_mib, ...
        max_latency_ms: largest latency of a run, ms
        max_power_w: largest average power, W
        max_memory_mib: largest peak memory, MiB
        fits: only devices with sufficient memory
        in_domain_only: only devices whose predictions are in domain
        risk: what must meet the limits: high (of the interval) or value
        prices_per_hour: price of an hour, such as l4=0.71; may be repeated [list prices, USD on
            demand]
        run: how it is run
        json: print one JSON object
    """
    most = {"latency_ms": max_latency_ms, "power_w": max_power_w, "peak_memory_mib": max_memory_mib}
    from forerun.service.schemas.answers import RankOut
    from forerun.service.stores.model_file_cache import cached_answer

    given = fits, in_domain_only, risk
    answer = cached_answer(
        RankOut,
        source,
        ["rank", device, objective, most, given, prices_per_hour, run.model_dump()],
        lambda: _ranked(
            source, device or (), run, objective, prices_per_hour or (), _limits(most, *given)
        ),
    )
    if json:
        print_json(answer)
    else:
        _show(source, run, answer)


def _show(source: Path, run: RunIn, answer: "RankOut") -> None:
    from forerun.service.cli.questions.run_query import run_title
    from forerun.service.python.ranking import Ranking

    show(Ranking.of(answer, model=run_title(source, run)).view())


def _limits(
    most: Mapping[str, float | None], fits: bool, in_domain_only: bool, risk: str
) -> "Limits":
    """The limits that a device must meet.

    Args:
        most: metric -> largest value; None for no limit.
        fits: whether its memory must suffice.
        in_domain_only: whether its predictions must be in domain.
        risk: what must meet the limits, `high` or `value`.

    Raises:
        InputError: a limit is not positive, or `risk` is neither.
    """
    from forerun.service.answers.ranking import Limits
    from forerun.service.schemas.answers import Risk

    kept = {name: limit for name, limit in most.items() if limit is not None}
    for name, limit in kept.items():
        if not 0.0 < limit < inf:
            raise InputError(f"The limit of {name} is {limit}; give a positive number.")
    return Limits(kept, fits, in_domain_only, o.one_of("risk", risk, get_args(Risk)))


def _ranked(
    source: Path,
    names: Sequence[str],
    run: RunIn,
    objective: str,
    prices: Sequence[str],
    limits: "Limits",
) -> "RankOut":
    from forerun.service.answers.ranking import Goal, prices_by_device, ranked
    from forerun.service.cli.questions.run_query import query_of, refuse_threads
    from forerun.service.schemas.answers import Objective

    aim = o.one_of("objective", objective, get_args(Objective))
    devices = o.devices_known()
    split = dict.fromkeys(name for listed in names for name in listed.split(","))
    chosen = list(dict.fromkeys(map(devices.get, split))) or list(devices.catalog)
    refuse_threads(run, chosen)
    about = query_of(source, run)
    queries = [about(each) for each in chosen]
    dollars = prices_by_device(_prices(prices), aim, chosen, devices.get)
    goal = Goal(aim, queries[0].network.batch_size, dollars)
    in_use = o.in_use(devices, "network", chosen)
    with working(f"predicting {len(chosen)} devices"):
        return ranked(queries, goal, limits, in_use)


def _prices(given: Sequence[str]) -> dict[str, float]:
    """Name of a device -> price of an hour."""
    prices = {}
    for text in (part for listed in given for part in listed.split(",")):
        name, _, price = text.partition("=")
        try:
            dollars = float(price)
        except ValueError:
            dollars = nan
        if not 0.0 < dollars < inf:
            raise InputError(f"--price {text!r}: write it as l4=0.71, above 0.")
        prices[name] = dollars
    return prices


@takes_run
def sweep(
    source: o.Source,
    device: Annotated[str, typer.Option()],
    limits: str | None = None,
    slow_down: Annotated[str, typer.Option("--slow-down", "--slowdown")] = "10%",
    picture: Path | None = None,
    *,
    run: PlainRunIn,
    json: o.Json = False,
) -> None:
    """Predict time, power and energy at several power limits, and recommend one.

    Args:
        source: model file or name, as for `forerun predict`
        device: name of the device
        limits: power limits, W, such as 150,200,250 [40 to 100 % of the TDP]
        slow_down: slowdown that the advised limit may cost: 10% or 0.1
        picture: SVG file to write
        run: how it is run
        json: print one JSON object
    """
    from forerun.service.schemas.answers import SweepOut
    from forerun.service.stores.model_file_cache import cached_answer

    most, watts = _share(slow_down), _watts(limits)
    asked = ["sweep", device, watts, most, run.model_dump()]
    answer = cached_answer(
        SweepOut, source, asked, lambda: _computed(source, device, run, watts, most)
    )
    if picture is not None:
        from forerun.service.answers.sweep_picture import sweep_picture

        drawn = sweep_picture(answer, f"{source.name} on {device}")
        try:
            picture.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--picture: {picture} cannot be written: {error.strerror}.") from None
        progress(f"drawn: {picture}")
    if json:
        print_json(answer)
    else:
        from forerun.service.cli.questions.run_query import run_title
        from forerun.service.python.ranking import Sweep

        show(Sweep.of(answer, model=run_title(source, run)).view(), answer.limit_details)


def _computed(
    source: Path, name: str, run: PlainRunIn, watts: list[float] | None, most: float
) -> "SweepOut":
    from forerun.service.answers.ranking import swept
    from forerun.service.cli.questions.run_query import query_of, refuse_threads

    devices = o.devices_known()
    device = devices.get(name)
    refuse_threads(run, [device])
    query = query_of(source, run)(device)
    in_use = o.in_use(devices, "network", [device])
    with working("predicting power limits"):
        return swept(query, watts, most, in_use)


def _share(text: str) -> float:
    """Parse a share written as `10%` or `0.1`.

    Raises:
        InputError: the text is neither, or the share is out of range.
    """
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 10.0:
        raise InputError(f"--slow-down {text!r} is not a share of the time; write 10% or 0.1.")
    return share


def _watts(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--limits {text!r}: write watts as 150,200,250.") from None
