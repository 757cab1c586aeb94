"""`forerun sweep`: the trade-off of time and energy over power limits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.options import takes_run
from forerun.service.cli.output import print_json, progress, working
from forerun.service.schemas.run_options import PlainRunIn

if TYPE_CHECKING:
    from forerun.service.schemas.answers import SweepOut

COLUMNS = {
    "latency_ms": "time",
    "power_w": "power",
    "energy_j": "energy",
    "energy_per_sample_j": "a sample",
}


@takes_run
def sweep(
    source: o.Source,
    device: Annotated[str, typer.Option(help="name of the device")],
    limits: Annotated[
        str | None,
        typer.Option(help="power limits, W, such as 150,200,250 [40 to 100 % of the TDP]"),
    ] = None,
    slow_down: Annotated[
        str,
        typer.Option(
            "--slow-down", "--slowdown", help="slowdown that the advised limit may cost: 10% or 0.1"
        ),
    ] = "10%",
    picture: Annotated[Path | None, typer.Option(help="SVG file to write")] = None,
    *,
    run: PlainRunIn,
    json: o.Json = False,
) -> None:
    """Predict time, power and energy at several power limits, and advise which to set."""
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

        _show(run_title(source, run), answer)


def _computed(
    source: Path, name: str, run: PlainRunIn, watts: list[float] | None, most: float
) -> "SweepOut":
    from forerun.service.answers.power_sweep import swept
    from forerun.service.cli.questions.run_query import query_of

    devices = o.devices_known()
    device = devices.get(name)
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
        raise InputError(f"--slow-down {text!r} is no share of the time; write 10% or 0.1.")
    return share


def _watts(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--limits {text!r}: write watts as 150,200,250.") from None


def _show(source: str, answer: "SweepOut") -> None:
    from forerun.service.cli.output import screen
    from forerun.service.cli.questions.answer_table import HEADINGS, table

    out = screen()
    out.print(f"\n[bold]{source}[/bold] on [bold]{answer.device.name}[/bold]")
    rows = table("limit", *COLUMNS.values(), "energy, range", "slower", "saved", "front")
    for run in answer.runs:
        low, high = run.energy_j.low, run.energy_j.high
        rows.add_row(
            f"{run.limit_w:,.4g} W",
            *(f"{getattr(run, name).value:,.4g} {getattr(run, name).unit}" for name in COLUMNS),
            "" if low is None else f"{low:,.3g} to {high:,.3g} J",
            f"{100 * run.slow_down:.1f} %",
            f"{100 * run.saving:.1f} %",
            "*" if run.on_front else "",
        )
    out.print(rows)
    for title, advice in (
        ("least energy", answer.least_energy),
        (f"at most {100 * answer.slow_down:.3g} % slower", answer.within_slow_down),
    ):
        saved, slower = 100 * advice.saving, 100 * advice.slow_down
        watts = f"{advice.limit_w:,.4g} W"
        out.print(f"{title}: {watts}, saves {saved:.1f} %, {slower:.1f} % slower")
    for limit in answer.limit_details:
        out.print(f"[yellow]{HEADINGS[limit.severity]}:[/yellow]", end=" ")
        out.print(limit.message, markup=False)
